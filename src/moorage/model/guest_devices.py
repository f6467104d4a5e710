"""The volumes and interfaces of a guest, as its host reports them and as its server's record lists them.

They travel in reports of hosts: fields are only ever added, with defaults.  A host that says nothing of a guest's devices is not
known to have none (RULES §22): releases before this one, and hosts of level 1 and 2, say nothing.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from moorage.model.guest import GuestSpec
from moorage.model.ids import ServerId
from moorage.model.server import Server


class GuestVolume(msgspec.Struct, frozen=True, omit_defaults=True):
    """One disk whose source is a volume."""

    volume: str
    attachment: str = ""
    """The attachment through which the host reaches it; empty: the host does not know."""
    bdm: str = ""
    """The block device of the server's record for which it was plugged; empty: the host does not know."""


class GuestInterface(msgspec.Struct, frozen=True, omit_defaults=True):
    port: str
    """Empty: an interface for which the host knows no port."""
    mac: str = ""


class GuestDevices(msgspec.Struct, frozen=True, omit_defaults=True):
    volumes: tuple[GuestVolume, ...] = ()
    interfaces: tuple[GuestInterface, ...] = ()

    @property
    def count(self) -> int:
        return len(self.volumes) + len(self.interfaces)

    @property
    def names(self) -> tuple[frozenset[str], frozenset[str]]:
        """What is compared: ids of volumes, and ids of ports, or MACs of interfaces without one."""
        return frozenset(each.volume for each in self.volumes), frozenset(
            each.port or each.mac for each in self.interfaces
        )


def devices_of(spec: GuestSpec) -> GuestDevices:
    """The devices of a guest that was made or changed as this says."""
    return GuestDevices(
        tuple(GuestVolume(each.volume, each.attachment, each.bdm) for each in spec.volumes),
        tuple(GuestInterface(str(each.port), each.mac) for each in spec.vifs),
    )


def recorded_devices(server: Server) -> GuestDevices:
    """The devices that a server's record lists."""
    return GuestDevices(
        tuple(GuestVolume(str(each.volume), each.attachment or "", each.bdm) for each in server.volumes),
        tuple(GuestInterface(str(each.port or ""), each.mac) for each in server.nics if each.port or each.mac),
    )


def devices_digest(devices: Mapping[ServerId, GuestDevices]) -> str:
    """Return a digest of the devices of a host's guests; it does not depend on any order."""
    whole = hashlib.blake2b(digest_size=8)
    for server in sorted(devices):
        volumes, interfaces = devices[server].names
        whole.update(f"{server}={','.join(sorted(volumes))};{','.join(sorted(interfaces))}\n".encode())
    return whole.hexdigest()
