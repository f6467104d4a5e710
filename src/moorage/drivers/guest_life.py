"""Optional powers over a guest's life after its boot, each found with `isinstance` (see `driver.py` for what all verbs promise)."""

from typing import Protocol, runtime_checkable

from moorage.model.diagnostics import GuestDiagnostics
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ServerId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.rescue import RescueSpec


@runtime_checkable
class PasswordSetter(Protocol):
    async def set_admin_password(self, server: ServerId, password: str) -> None:
        """Through the agent in the guest.  The password is written nowhere on the host.

        Raises HostFailed: `no_guest_agent`, `guest_not_running`.
        """
        ...


@runtime_checkable
class CrashDumper(Protocol):
    async def crash_dump(self, server: ServerId) -> PowerState:
        """A non-maskable interrupt: what the guest does then is its own affair. Raises HostFailed: `guest_not_running`."""
        ...


@runtime_checkable
class Diagnosable(Protocol):
    async def diagnostics(self, server: ServerId) -> GuestDiagnostics:
        """Raises HostFailed: `guest_not_running`."""
        ...


@runtime_checkable
class ImageCacher(Protocol):
    async def cache_image(self, image: str) -> None:
        """Fetch it, so that the next guest need not wait for it; one that is here is not fetched again."""
        ...


@runtime_checkable
class Rebuildable(Protocol):
    async def rebuild_guest(self, spec: GuestSpec, *, preserve_ephemeral: bool) -> PowerState:
        """In the place of the old one, whose disks go (all but the ephemeral one, if that is to be preserved); one guest at
        every moment.  Volumes that are attached stay so.  With no old guest it is made all the same.  A repeat with the same spec makes it anew once more."""
        ...


@runtime_checkable
class Rescuable(Protocol):
    async def rescue_guest(
        self, server: ServerId, rescue: RescueSpec, drive: InstanceMetadata | None = None
    ) -> PowerState:
        """Off, and on again from the rescue image; a rescued guest stays as it is.

        `drive`: what the config drive says that it finds then, beside which its own stays as it is; None: the one of its last
        rescue, which may be begun again when its end is taken back.
        """
        ...

    async def unrescue_guest(self, server: ServerId, *, power_on: bool) -> PowerState:
        """Off, and on again from its own disk, or only off; one that is not rescued is only switched on or off."""
        ...
