"""A back end for Cinder that needs no rights and no tools: one sparse file for each volume and snapshot.

Images are written as they are (raw): there is no `qemu-img` here.  Hosts get the path of the file.

An export is a file, too: `exports/VOLUME@HOST` below the directory, from when the connection is initialized until it is
terminated.  So a test can count what is exported, and to whom.  A back end that is told to fail for a host (`broken/HOST`) does.
"""
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import contextlib
import os
import shutil
import threading
from pathlib import Path

from cinder import exception
from cinder.volume import driver
from oslo_config import cfg

GIB = 1024**3
LOCK = threading.Lock()
OPTIONS = [
    cfg.StrOpt("files_directory", default="/tmp", help="Where the files are."),
    cfg.IntOpt(
        "files_gb", default=100_000, help="How large it says it is: the scheduler takes the back end with most room."
    ),
]


class Driver(driver.VolumeDriver):
    """`volume_driver = cinder_files.Driver`."""

    VERSION = "1.0"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(OPTIONS)
        self._directory = Path(self.configuration.files_directory)

    def _path(self, name):
        return self._directory / name

    def check_for_setup_error(self):
        for each in (self._directory, self._directory / "exports", self._directory / "broken"):
            each.mkdir(parents=True, exist_ok=True)

    def _update_volume_stats(self):
        pool = {
            "pool_name": "files",
            "total_capacity_gb": self.configuration.files_gb,
            "free_capacity_gb": self.configuration.files_gb,
            "provisioned_capacity_gb": 0,
            "allocated_capacity_gb": 0,
            "reserved_percentage": 0,
            "max_over_subscription_ratio": 20.0,
            "thin_provisioning_support": True,
            "multiattach": True,
            "online_extend_support": True,
        }
        self._stats = {
            "volume_backend_name": "files",
            "vendor_name": "Moorage",
            "driver_version": self.VERSION,
            "storage_protocol": "local",
            "pools": [pool],
        }

    # ------------------------------------------------------------------------------------------------ files

    def _make(self, path, size):
        with path.open("wb") as file:
            file.truncate(size * GIB)

    def _copy(self, source, target, size):
        with source.open("rb") as read, target.open("wb") as written:
            end = os.fstat(read.fileno()).st_size
            at = 0
            while at < end:
                try:
                    start = os.lseek(read.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                at = os.lseek(read.fileno(), start, os.SEEK_HOLE)
                read.seek(start)
                written.seek(start)
                shutil.copyfileobj(_Some(read, at - start), written)
            written.truncate(size * GIB)

    def _forget(self, path):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

    def create_volume(self, volume):
        self._make(self._path(volume.name), volume.size)

    def delete_volume(self, volume):
        self._forget(self._path(volume.name))

    def extend_volume(self, volume, new_size):
        os.truncate(self._path(volume.name), new_size * GIB)

    def create_snapshot(self, snapshot):
        self._copy(self._path(snapshot.volume_name), self._path(snapshot.name), snapshot.volume_size)

    def delete_snapshot(self, snapshot):
        self._forget(self._path(snapshot.name))

    def create_volume_from_snapshot(self, volume, snapshot):
        self._copy(self._path(snapshot.name), self._path(volume.name), volume.size)

    def create_cloned_volume(self, volume, src_vref):
        self._copy(self._path(src_vref.name), self._path(volume.name), volume.size)

    def revert_to_snapshot(self, context, volume, snapshot):
        self._copy(self._path(snapshot.name), self._path(volume.name), volume.size)

    # ------------------------------------------------------------------------------------------------ images

    def clone_image(self, context, volume, image_location, image_meta, image_service):
        self._make(self._path(volume.name), volume.size)
        self._download(context, volume, image_service, image_meta["id"])
        return {}, True

    def copy_image_to_volume(self, context, volume, image_service, image_id, disable_sparse=False):
        self._make(self._path(volume.name), volume.size)
        self._download(context, volume, image_service, image_id)

    def _download(self, context, volume, image_service, image_id):
        with self._path(volume.name).open("r+b") as file:
            image_service.download(context, image_id, file)
            if file.tell() > volume.size * GIB:
                raise exception.ImageTooBig(image_id=image_id, reason="it does not fit")
            file.truncate(volume.size * GIB)

    def copy_volume_to_image(self, context, volume, image_service, image_meta):
        with self._path(volume.name).open("rb") as file:
            image_service.update(context, image_meta["id"], {}, file)

    # ------------------------------------------------------------------------------------------------ hosts

    def ensure_export(self, context, volume):
        pass

    def create_export(self, context, volume, connector):
        pass

    def remove_export(self, context, volume):
        pass

    def validate_connector(self, connector):
        """Raises InvalidConnectorException for a connector without a host."""
        if not connector.get("host"):
            raise exception.InvalidConnectorException(missing="host")

    def initialize_connection(self, volume, connector):
        """Export a volume. Raises VolumeBackendAPIException for a host that the test made unreachable."""
        if (self._directory / "broken" / connector["host"]).exists():
            raise exception.VolumeBackendAPIException(data=f"there is no way to {connector['host']}")
        with LOCK:
            export = self._directory / "exports" / f"{volume.name}@{connector['host']}"
            used = export.read_text() if volume.multiattach and export.exists() else ""
            export.write_text(used + "x")
        data = {"device_path": str(self._path(volume.name)), "volume_id": volume.id, "format": "raw"}
        return {"driver_volume_type": "local", "data": data}

    def terminate_connection(self, volume, connector, **kwargs):
        """Whether another server on that host has the volume still; then it stays exported.

        It is counted, not looked up: of two that end at once each would find the other's attachment.
        """
        exports = self._directory / "exports"
        with LOCK:
            if connector is None:
                for each in exports.glob(f"{volume.name}@*"):
                    each.unlink()
                return False
            export = exports / f"{volume.name}@{connector['host']}"
            left = export.read_text()[1:] if export.exists() else ""
            if left:
                export.write_text(left)
            else:
                export.unlink(missing_ok=True)
            return bool(left)

    def retype(self, context, volume, new_type, diff, host):
        return True, None


class _Some:
    """So many bytes of a file."""

    def __init__(self, file, left):
        self._file = file
        self._left = left

    def read(self, size=-1):
        piece = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece
