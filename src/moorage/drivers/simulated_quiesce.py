"""Quiesced simulated guests; the state is in the guest's file, so a guest is thawed in time even if the agent was killed."""

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from moorage.drivers.fault_injection import FaultCounter
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId


class SimulatedFreezing(ABC):
    """Quiescing of `SimulatedDriver`; the dial `quiesce` simulates guests without an agent, or with a slow one."""

    _clock: Clock

    @abstractmethod
    def _trouble(self, verb: str) -> AbstractAsyncContextManager[FaultCounter]: ...

    @abstractmethod
    def _of(self, server: ServerId) -> SimulatedGuest: ...

    @abstractmethod
    def _keep(self, guest: SimulatedGuest) -> PowerState: ...

    async def freeze_guest(self, server: ServerId, why: str, for_s: float) -> PowerState:
        """Quiesce a guest for this purpose, for at most `for_s` seconds; a repeat is success.

        Raises HostFailed when the guest is not running, was thawed already for this purpose, or is quiesced for
        another one.
        """
        async with self._trouble("quiesce"):
            guest = self._of(server)
            if guest.power is not PowerState.RUNNING:
                raise HostFailed("the guest is not running", private=guest.power.name, code="guest_not_running")
            if guest.thawed_for == why:  # a late command does not quiesce the guest again
                raise HostFailed("the guest is no longer quiesced", code="not_frozen")
            if guest.frozen_for != why:
                if self.is_frozen(server):
                    raise HostFailed("the guest is quiesced already", private=guest.frozen_for, code="already_frozen")
                guest.frozen_for, guest.frozen_until, guest.thawed_for = why, self._clock.now() + for_s, ""
            return self._keep(guest)

    async def thaw_guest(self, server: ServerId, why: str) -> PowerState:
        """Let a quiesced guest write again; a repeat is success.

        Raises HostFailed when the guest was not quiesced for this purpose until now.
        """
        async with self._trouble("thaw_guest"):
            guest = self._of(server)
            if guest.thawed_for != why:
                if guest.frozen_for != why or not self.is_frozen(server):
                    raise HostFailed("the guest was not still until now", private=guest.frozen_for, code="not_frozen")
                guest.frozen_for, guest.frozen_until, guest.thawed_for = "", 0.0, why
            return self._keep(guest)

    def is_frozen(self, server: ServerId) -> bool:
        """Tell whether the guest is quiesced; this ends by itself when its time is over."""
        guest = self._of(server)
        return bool(guest.frozen_for) and self._clock.now() < guest.frozen_until
