"""Config drives of simulated guests as files; each is replaced atomically, and removed with its guest."""

import os
from collections.abc import Collection
from pathlib import Path

from moorage.model.errors import HostFailed
from moorage.model.ids import ServerId
from moorage.model.private_files import private_directory, private_file


class DriveFiles:
    """The drives of one host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, server: ServerId, image: bytes) -> None:
        """Write it, over an earlier one. Raises HostFailed when the disk is full."""
        file = self._file(server)
        coming = file.with_suffix(".new")
        try:
            private_directory(self._directory)
            private_file(coming)
            coming.write_bytes(image)
            os.replace(coming, file)
        except OSError as failure:
            raise HostFailed("the host's disk is full", private=f"{file}: {failure}", code="host_full") from failure

    def read(self, server: ServerId) -> bytes | None:
        file = self._file(server)
        return file.read_bytes() if file.exists() else None

    def drop(self, server: ServerId) -> None:
        self._file(server).unlink(missing_ok=True)

    def tidy(self, guests: Collection[ServerId]) -> None:
        """Remove drives without a guest, which a killed process left."""
        if self._directory.is_dir():
            for file in self._directory.iterdir():
                if file.stem not in guests:
                    file.unlink(missing_ok=True)

    def _file(self, server: ServerId) -> Path:
        return self._directory / f"{server}.iso"
