"""Chains of files of simulated guests' volumes, which assisted snapshots make; they are kept in the guest's file."""

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from moorage.drivers.fault_injection import FaultCounter
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId

CHAIN_MAX = 200


class SimulatedChains(ABC):
    """Volume snapshots of `SimulatedDriver`."""

    @abstractmethod
    def _trouble(self, verb: str) -> AbstractAsyncContextManager[FaultCounter]: ...

    @abstractmethod
    def _of(self, server: ServerId) -> SimulatedGuest: ...

    @abstractmethod
    def _keep(self, guest: SimulatedGuest) -> PowerState: ...

    async def take_volume_snapshot(self, server: ServerId, volume: str, snapshot: str, new_file: str) -> PowerState:
        """Add a file to the volume's chain of snapshots. Raises HostFailed when the chain is too long."""
        async with self._trouble("take_volume_snapshot"):
            guest, chain = self._chain(server, volume)
            if (snapshot, new_file) not in chain:
                if len(chain) >= CHAIN_MAX:
                    raise HostFailed("the volume has too many snapshots", private=volume, code="host_full")
                guest.chains[volume] = (*chain, (snapshot, new_file))
            return self._keep(guest)

    async def drop_volume_snapshot(
        self, server: ServerId, volume: str, snapshot: str, merge_file: str | None, merge_target: str | None
    ) -> PowerState:
        async with self._trouble("drop_volume_snapshot"):
            guest, chain = self._chain(server, volume)
            gone = {file for of, file in chain if of == snapshot} if merge_file is None else {merge_file}
            guest.chains[volume] = tuple(each for each in chain if each[1] not in gone)
            return self._keep(guest)

    def chain_of(self, server: ServerId, volume: str) -> tuple[str, ...]:
        """Return the files over the volume's own file, the present one last; for tests."""
        return tuple(file for _, file in self._of(server).chains.get(volume, ()))

    def _chain(self, server: ServerId, volume: str) -> tuple[SimulatedGuest, tuple[tuple[str, str], ...]]:
        """The guest and its chain of this volume; chains of detached volumes are dropped."""
        guest = self._of(server)
        attached = {each.volume for each in guest.spec.volumes}
        if volume not in attached:
            raise HostFailed("the guest has no such volume", private=volume, code="volume_not_found")
        guest.chains = {name: chain for name, chain in guest.chains.items() if name in attached}
        return guest, guest.chains.get(volume, ())
