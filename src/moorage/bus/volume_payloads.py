"""Payloads of commands about the volumes of a guest, and of their answers."""

from typing import Any

import msgspec

from moorage.model.guest import VolumeDisk


class AttachVolume(msgspec.Struct, frozen=True):
    disk: VolumeDisk


class DetachVolume(msgspec.Struct, frozen=True):
    volume: str


class SwapVolume(msgspec.Struct, frozen=True):
    """Copy a volume to another one while the guest runs, and let the guest use the other one."""

    old: str
    disk: VolumeDisk


class ExtendVolume(msgspec.Struct, frozen=True):
    """Tell the guest that a volume has grown."""

    volume: str
    size_gib: int


class TakeVolumeSnapshot(msgspec.Struct, frozen=True):
    """Let the guest write to another file of the volume, which the volume service has made (qcow2)."""

    volume: str
    snapshot: str
    new_file: str


class DropVolumeSnapshot(msgspec.Struct, frozen=True):
    """Remove a file from the volume's chain."""

    volume: str
    snapshot: str
    merge_file: str | None = None
    merge_target: str | None = None


class Connector(msgspec.Struct, frozen=True):
    """The answer to `volume_connector`: what the volume service needs to know of the host to export volumes to it."""

    connector: dict[str, Any] = {}
