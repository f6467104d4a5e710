"""Payloads of commands about the volumes of a guest, and of their answers."""

from typing import Any

import msgspec

from moorage.model.guest import VolumeDisk


class AttachVolume(msgspec.Struct, frozen=True):
    disk: VolumeDisk


class DetachVolume(msgspec.Struct, frozen=True):
    volume: str


class SwapVolume(msgspec.Struct, frozen=True):
    """Copy what is on one volume to another while the guest runs, and let it go on with the other."""

    old: str
    disk: VolumeDisk


class ExtendVolume(msgspec.Struct, frozen=True):
    """A volume has grown; the guest is to see it."""

    volume: str
    size_gib: int


class TakeVolumeSnapshot(msgspec.Struct, frozen=True):
    """The guest is to write to another file of the volume, which the volume service has made (qcow2)."""

    volume: str
    snapshot: str
    new_file: str


class DropVolumeSnapshot(msgspec.Struct, frozen=True):
    """A file goes out of the volume's chain."""

    volume: str
    snapshot: str
    merge_file: str | None = None
    merge_target: str | None = None


class Connector(msgspec.Struct, frozen=True):
    """The answer to `volume_connector`: what the volume service is told of the host, to export volumes to it."""

    connector: dict[str, Any] = {}
