"""The config drive: a small ISO 9660 image, labelled `config-2`, that a guest reads at its first start.

Every driver makes it from the guest's spec; a host calls no service for it.  Names are stored in Rock Ridge and in Joliet, so that Linux
and Windows read them unchanged.
"""

import io

import pycdlib

from moorage.model.errors import HostFailed
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.metadata_tree import files

LABEL = "config-2"
IMAGE_MAX_BYTES = 64 * 1024 * 1024
"""Size of Nova's vfat drives; our image is only as large as its contents."""


def build(document: InstanceMetadata) -> bytes:
    """Build the image. Raises HostFailed when it is too large."""
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL, app_ident_str="moorage")
    short: dict[str, str] = {"": ""}
    size = 0
    for path, content in files(document):
        size += len(content)
        if size > IMAGE_MAX_BYTES:
            raise HostFailed("the config drive is too large", private=f"{path}: {size} bytes", code="guest_failed")
        folder, name = path.rsplit("/", 1)
        _add_folders(iso, folder, short)
        iso.add_fp(
            io.BytesIO(content),
            len(content),
            f"{short[folder]}/F{len(short):05d}.;1",
            rr_name=name,
            joliet_path=f"/{path}",
        )
        short[path] = ""
    image = io.BytesIO()
    iso.write_fp(image)
    iso.close()
    return image.getvalue()


def _add_folders(iso: pycdlib.PyCdlib, folder: str, short: dict[str, str]) -> None:
    """Add folders. ISO 9660's own names have eight letters: numbers are used here, because nothing reads them."""
    words = folder.split("/")
    for depth in range(1, len(words) + 1):
        path, above = "/".join(words[:depth]), "/".join(words[: depth - 1])
        if path in short:
            continue
        short[path] = f"{short[above]}/D{len(short):05d}"
        iso.add_directory(short[path], rr_name=words[depth - 1], joliet_path=f"/{path}")
