"""Optional abilities for a guest after its boot, each found with `isinstance` (`driver.py` has the rules for all verbs)."""

from typing import Protocol, runtime_checkable

from moorage.model.diagnostics import GuestDiagnostics
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ServerId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.rescue import RescueSpec


@runtime_checkable
class PasswordSetter(Protocol):
    async def set_admin_password(self, server: ServerId, password: str) -> None:
        """Set a password through the agent in the guest.  The host stores the password nowhere.

        Raises HostFailed: `no_guest_agent`, `guest_not_running`.
        """
        ...


@runtime_checkable
class CrashDumper(Protocol):
    async def crash_dump(self, server: ServerId) -> PowerState:
        """Send a non-maskable interrupt; the guest decides what it does then. Raises HostFailed: `guest_not_running`."""
        ...


@runtime_checkable
class Diagnosable(Protocol):
    async def diagnostics(self, server: ServerId) -> GuestDiagnostics:
        """Return the guest's diagnostics. Raises HostFailed: `guest_not_running`."""
        ...


@runtime_checkable
class SpaceWatcher(Protocol):
    @property
    def waiting_for_space(self) -> tuple[ServerId, ...]:
        """Guests that stand still until there is space for what they write, as of the last look."""
        ...


@runtime_checkable
class ImageCacher(Protocol):
    async def cache_image(self, image: str) -> None:
        """Fetch an image before a guest needs it; one that is cached already is not fetched again."""
        ...


@runtime_checkable
class Rebuildable(Protocol):
    async def rebuild_guest(self, spec: GuestSpec, *, preserve_ephemeral: bool) -> PowerState:
        """Replace the guest by a new one. The old disks are removed (except the ephemeral one, if it must be preserved); there is always exactly
        one guest.  Attached volumes stay attached.  Without an old guest it is made too.  A repeat with the same spec makes it again."""
        ...


@runtime_checkable
class Rescuable(Protocol):
    async def rescue_guest(
        self, server: ServerId, rescue: RescueSpec, drive: InstanceMetadata | None = None
    ) -> PowerState:
        """Switch the guest off, and start it from the rescue image; a guest in rescue is not changed.

        `drive`: the contents of the config drive during the rescue; the guest's own drive is kept. None: that of its last rescue, which
        begins again if the end of a rescue is undone.
        """
        ...

    async def unrescue_guest(self, server: ServerId, *, power_on: bool) -> PowerState:
        """Switch the guest off, and start it from its own disk if `power_on`; a guest that is not in rescue is only switched on or off."""
        ...
