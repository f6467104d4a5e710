"""What a driver is.  Small on purpose: the rest are optional powers, each a Protocol of its own, found with `isinstance`.

Every verb is safe twice: to start what runs, to destroy what is not there and to switch off what is off are all success.
What a driver cannot do it says with `HostFailed`, and a code: `guest_failed`, `guest_not_found`, `host_full`.
A verb may be cancelled when its time is up; whatever it left half done, `destroy_guest` cleans.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from moorage.model.guest import GuestSpec, HostDescription, PowerState, Quiesce, VifData, VolumeDisk
from moorage.model.ids import ImageId, ServerId


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


@runtime_checkable
class Snapshotter(Protocol):
    """Can copy a guest's disk and send the copy to the image service.

    A host keeps at most one copy of each guest, which goes with the guest at the latest.
    """

    async def take_snapshot(self, server: ServerId, image: ImageId, quiesce: Quiesce) -> PowerState:
        """Copy the guest's disk as it is now, for that image; the guest goes on. A repeat keeps the first copy.

        Raises HostFailed with `quiesce_failed` when the guest must be quiesced and cannot be.
        """
        ...

    async def upload_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        """Send the copy into the image, then remove it here; a repeat is success."""
        ...

    async def drop_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        """Remove the copy; absent is success, also when the guest is."""
        ...


@runtime_checkable
class VolumeConnecting(Protocol):
    async def volume_connector(self) -> dict[str, Any]:
        """What a volume service must know of this host to export a volume to it (os-brick's connector properties)."""
        ...


@runtime_checkable
class VolumeSwapper(Protocol):
    async def swap_volume(self, server: ServerId, old: str, disk: VolumeDisk) -> PowerState:
        """Copy the old volume to the new one under the running guest, and let it go on there; done already is success."""
        ...


@runtime_checkable
class VolumeExtender(Protocol):
    async def extend_volume(self, server: ServerId, volume: str, size_gib: int) -> PowerState: ...
