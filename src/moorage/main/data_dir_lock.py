"""The lock of a data directory: one process holds it, and so may adopt all earlier operations at once (RULES §3)."""

import fcntl
import os
from pathlib import Path

from moorage.model.errors import Conflict, Invalid
from moorage.model.private_files import private_directory


class DataLock:
    """Locks a data directory until `release` or the end of the process.

    Raises Conflict when another process holds it, and Invalid when the directory cannot be written.
    """

    def __init__(self, data: Path) -> None:
        self._path = data / "lock"
        try:
            private_directory(data)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as failure:
            raise Invalid(
                f"state cannot be kept in {data} ({failure.strerror}): choose another directory with --data-dir"
            ) from failure
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            os.close(self._file)
            raise Conflict(
                f"another moorage already runs on {data}: stop it, or choose another directory with --data-dir"
            ) from held
        os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        os.close(self._file)
