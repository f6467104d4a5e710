"""What a driver is.  Small on purpose: the rest are optional powers, each a Protocol of its own, found with `isinstance`.

Every verb is safe twice: to start what runs, to destroy what is not there and to switch off what is off are all success.
What a driver cannot do it says with `HostFailed`, and a code: `guest_failed`, `guest_not_found`, `host_full`.
A verb may be cancelled when its time is up; whatever it left half done, `destroy_guest` cleans.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from moorage.model.guest import GuestSpec, HostDescription, PowerState, VifData, VolumeDisk
from moorage.model.ids import ServerId


class Driver(Protocol):
    async def start(self) -> None:
        """Find the guests that are already here."""
        ...

    async def close(self) -> None:
        """Let go of the hypervisor; guests go on."""
        ...

    async def describe(self) -> HostDescription: ...

    async def guests(self) -> Mapping[ServerId, PowerState]:
        """Every guest here.  Asked with each heartbeat, so it must be cheap."""
        ...

    async def start_guest(self, spec: GuestSpec) -> PowerState: ...

    async def destroy_guest(self, server: ServerId) -> None: ...

    async def power_on(self, server: ServerId) -> PowerState: ...

    async def power_off(self, server: ServerId, graceful_s: float) -> PowerState: ...

    async def reboot(self, server: ServerId, *, hard: bool) -> PowerState: ...


@runtime_checkable
class Pausable(Protocol):
    async def pause(self, server: ServerId) -> PowerState: ...

    async def unpause(self, server: ServerId) -> PowerState: ...


@runtime_checkable
class Suspendable(Protocol):
    async def suspend(self, server: ServerId) -> PowerState: ...

    async def resume(self, server: ServerId) -> PowerState: ...


@runtime_checkable
class ConsoleReader(Protocol):
    async def console_output(self, server: ServerId, lines: int | None) -> str: ...


@runtime_checkable
class InterfacePlugger(Protocol):
    async def attach_interface(self, server: ServerId, vif: VifData) -> PowerState: ...

    async def detach_interface(self, server: ServerId, port: str) -> PowerState: ...


@runtime_checkable
class VolumePlugger(Protocol):
    async def attach_volume(self, server: ServerId, disk: VolumeDisk) -> PowerState: ...

    async def detach_volume(self, server: ServerId, volume: str) -> PowerState: ...
