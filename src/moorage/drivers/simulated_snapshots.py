"""Snapshots of simulated guests: the host keeps a copy of the disk until it is uploaded into its image."""

import logging
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from moorage.drivers.fault_injection import FaultCounter
from moorage.drivers.simulated_disks import SimulatedDisks
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, Quiesce
from moorage.model.ids import ImageId, ServerId

_log = logging.getLogger(__name__)


class SimulatedSnapshots(ABC):
    """Snapshots of `SimulatedDriver`."""

    _disks: SimulatedDisks
    _guests: dict[ServerId, SimulatedGuest]

    @abstractmethod
    def _trouble(self, verb: str) -> AbstractAsyncContextManager[FaultCounter]: ...

    @abstractmethod
    def _of(self, server: ServerId) -> SimulatedGuest: ...

    @abstractmethod
    def _keep(self, guest: SimulatedGuest) -> PowerState: ...

    async def take_snapshot(self, server: ServerId, image: ImageId, quiesce: Quiesce) -> PowerState:
        async with self._trouble("take_snapshot"):
            guest = self._of(server)
            if guest.snapshot == image:
                return guest.power
            await self._quiesce(guest, quiesce)
            await self._disks.copy(server, guest.spec.image, guest.written)
            guest.snapshot = image
            return self._keep(guest)

    async def _quiesce(self, guest: SimulatedGuest, quiesce: Quiesce) -> None:
        """Quiesce a guest, which works at once; the dial `quiesce` simulates a missing or slow agent."""
        if quiesce is Quiesce.NO or guest.power is not PowerState.RUNNING:
            return
        try:
            async with self._trouble("quiesce"):
                return
        except HostFailed as failed:
            if quiesce is Quiesce.MUST:
                raise HostFailed(
                    "the guest cannot be quiesced", private=failed.private, code="quiesce_failed"
                ) from failed
            _log.info("%s was not quiesced: %s", guest.spec.server, failed)

    async def upload_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        """Send the copy of a guest's disk into the image; a repeat is success. Raises HostFailed when there is no copy."""
        async with self._trouble("upload_snapshot"):
            guest = self._of(server)
            if guest.snapshot != image:
                raise HostFailed("the host has no copy of this disk", private=image, code="no_snapshot")
            if self._disks.has_copy(server):  # else it was sent
                await self._disks.send(server, image, guest.formats)
                self._disks.drop_copy(server)
            return guest.power

    async def drop_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        async with self._trouble("drop_snapshot"):
            guest = self._guests.get(server)
            if guest is None or guest.snapshot != image:
                return PowerState.NOSTATE if guest is None else guest.power
            self._disks.drop_copy(server)
            guest.snapshot = None
            return self._keep(guest)
