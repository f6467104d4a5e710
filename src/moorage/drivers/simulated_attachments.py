"""NICs and volumes of simulated guests; they are only entries of the guest's spec."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from moorage.drivers.fault_injection import FaultCounter
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState, VifData, VolumeDisk
from moorage.model.ids import ServerId


class SimulatedAttachments(ABC):
    """Attachments of `SimulatedDriver`."""

    _hostname: str

    @abstractmethod
    def _trouble(self, verb: str) -> AbstractAsyncContextManager[FaultCounter]: ...

    @abstractmethod
    def _of(self, server: ServerId) -> SimulatedGuest: ...

    @abstractmethod
    def _keep(self, guest: SimulatedGuest) -> PowerState: ...

    async def attach_interface(self, server: ServerId, vif: VifData) -> PowerState:
        async with self._trouble("attach_interface"):
            spec = self._of(server).spec
            others = tuple(each for each in spec.vifs if each.port != vif.port)
            return self._respec(server, msgspec.structs.replace(spec, vifs=(*others, vif)))

    async def detach_interface(self, server: ServerId, port: str) -> PowerState:
        async with self._trouble("detach_interface"):
            spec = self._of(server).spec
            return self._respec(
                server, msgspec.structs.replace(spec, vifs=tuple(each for each in spec.vifs if each.port != port))
            )

    async def attach_volume(self, server: ServerId, disk: VolumeDisk) -> PowerState:
        async with self._trouble("attach_volume"):
            refuse_encrypted((disk,))
            spec = self._of(server).spec
            others = tuple(each for each in spec.volumes if each.volume != disk.volume)
            return self._respec(server, msgspec.structs.replace(spec, volumes=(*others, disk)))

    async def detach_volume(self, server: ServerId, volume: str) -> PowerState:
        async with self._trouble("detach_volume"):
            spec = self._of(server).spec
            return self._respec(
                server,
                msgspec.structs.replace(spec, volumes=tuple(each for each in spec.volumes if each.volume != volume)),
            )

    async def swap_volume(self, server: ServerId, old: str, disk: VolumeDisk) -> PowerState:
        """Replace a volume of the guest by another one. Raises HostFailed when the guest has no such volume."""
        async with self._trouble("swap_volume"):
            refuse_encrypted((disk,))
            spec = self._of(server).spec
            kept = tuple(each for each in spec.volumes if each.volume not in {old, disk.volume})
            if len(kept) == len(spec.volumes):
                raise HostFailed("the guest has no such volume", private=old, code="volume_not_found")
            return self._respec(server, msgspec.structs.replace(spec, volumes=(*kept, disk)))

    async def extend_volume(self, server: ServerId, volume: str, size_gib: int) -> PowerState:
        async with self._trouble("extend_volume"):
            spec = self._of(server).spec
            grown = tuple(
                msgspec.structs.replace(each, size_gib=size_gib) if each.volume == volume else each
                for each in spec.volumes
            )
            return self._respec(server, msgspec.structs.replace(spec, volumes=grown))

    async def volume_connector(self) -> dict[str, Any]:
        async with self._trouble("volume_connector"):
            return {
                "platform": "x86_64",
                "os_type": "linux",
                "ip": "127.0.0.1",
                "host": self._hostname,
                "multipath": False,
                "initiator": f"iqn.2026-11.org.moorage:{self._hostname}",
                "do_local_attach": False,
                "system uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, self._hostname)),
            }

    def _respec(self, server: ServerId, spec: GuestSpec) -> PowerState:
        guest = self._of(server)
        guest.spec = spec
        return self._keep(guest)


def refuse_encrypted(volumes: Iterable[VolumeDisk]) -> None:
    """Raises HostFailed (`volume_unreachable`): nothing is decrypted here, as on hosts with libvirt."""
    for each in volumes:
        if each.is_encrypted:
            raise HostFailed("this host cannot decrypt volumes", private=each.volume, code="volume_unreachable")
