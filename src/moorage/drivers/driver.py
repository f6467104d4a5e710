"""The Protocol of a driver.  It is small: all other abilities are optional, each a Protocol of its own, found with `isinstance`.

Every verb may be repeated: to start a running guest, to destroy a missing one and to switch off one that is off are all success.
If a driver cannot do something it raises `HostFailed` with a code: `guest_failed`, `guest_not_found`, `host_full`.
A verb may be cancelled at its deadline; `destroy_guest` removes everything that it left unfinished.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from moorage.model.guest import GuestSpec, HostDescription, PowerState, Quiesce, VifData, VolumeDisk
from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import ImageId, ServerId


class Driver(Protocol):
    async def start(self) -> None:
        """Start the driver, and find the guests that are here already."""
        ...

    async def close(self) -> None:
        """Disconnect from the hypervisor; guests keep running."""
        ...

    async def describe(self) -> HostDescription: ...

    async def guests(self) -> Mapping[ServerId, PowerState]:
        """Return every guest here.  It is called for each heartbeat, so it must be cheap."""
        ...

    async def start_guest(self, spec: GuestSpec) -> PowerState: ...

    async def destroy_guest(self, server: ServerId) -> None: ...

    async def power_on(self, server: ServerId) -> PowerState: ...

    async def power_off(self, server: ServerId, graceful_s: float) -> PowerState: ...

    async def reboot(self, server: ServerId, *, hard: bool) -> PowerState: ...


@runtime_checkable
class DeviceReporter(Protocol):
    async def known_devices(self) -> Mapping[ServerId, GuestDevices]:
        """Return the volumes and interfaces of every guest here, as the driver recorded them.  It is called for each heartbeat, so
        it must be cheap; the same object is returned as long as nothing changed."""
        ...

    async def guest_devices(self) -> Mapping[ServerId, GuestDevices]:
        """Return the same as the hypervisor shows it, for a full report; a guest that cannot be looked at is left out."""
        ...


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
    """Copies a guest's disk and uploads the copy to the image service.

    A host keeps at most one copy of each guest; it is removed with the guest at the latest.
    """

    async def take_snapshot(self, server: ServerId, image: ImageId, quiesce: Quiesce) -> PowerState:
        """Copy the guest's disk as it is now, for this image; the guest keeps running. A repeat keeps the first copy.

        Raises HostFailed with `quiesce_failed` when the guest must be quiesced and cannot be.
        """
        ...

    async def upload_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        """Upload the copy into the image, then remove it here; a repeat is success."""
        ...

    async def drop_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        """Remove the copy; a missing copy or guest is success."""
        ...


@runtime_checkable
class VolumeConnecting(Protocol):
    async def volume_connector(self) -> dict[str, Any]:
        """Return what a volume service needs to know of this host to export a volume to it (os-brick's connector properties)."""
        ...


@runtime_checkable
class VolumeSwapper(Protocol):
    async def swap_volume(self, server: ServerId, old: str, disk: VolumeDisk) -> PowerState:
        """Copy the old volume to the new one under the running guest, which then uses the new one; may be repeated."""
        ...


@runtime_checkable
class VolumeExtender(Protocol):
    async def extend_volume(self, server: ServerId, volume: str, size_gib: int) -> PowerState: ...
