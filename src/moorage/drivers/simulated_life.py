"""Verbs of simulated hosts for a guest after its boot: rebuild, rescue, password, crash dump, diagnostics; cached images."""

import hashlib
import os
import secrets
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from moorage.drivers.fault_injection import FaultCounter
from moorage.drivers.simulated_disks import SimulatedDisks
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.clock import Clock
from moorage.model.diagnostics import (
    CpuDiagnostics,
    DiskDiagnostics,
    GuestDiagnostics,
    MemoryDiagnostics,
    NicDiagnostics,
)
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ServerId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.private_files import private_directory
from moorage.model.rescue import RescueSpec

NS_PER_S = 1_000_000_000
HASH_ROUNDS = 10_000
IMAGES_CACHED_MAX = 1_000
API_DRIVER = "libvirt"
"""Driver name in diagnostics of 2.48: clients accept only names of a closed list, so this is the one for virtual machines."""
WITHOUT_AGENT = frozenset({"no", "false", "0", "off"})
WORDS = {
    PowerState.NOSTATE: "pending",
    PowerState.RUNNING: "running",
    PowerState.PAUSED: "paused",
    PowerState.SHUTDOWN: "shutdown",
    PowerState.CRASHED: "crashed",
    PowerState.SUSPENDED: "suspended",
}


class SimulatedLife(ABC):
    """Verbs of `SimulatedDriver` for a guest after its boot."""

    _clock: Clock
    _room: Path
    _disks: SimulatedDisks
    _guests: dict[ServerId, SimulatedGuest]

    @abstractmethod
    def _trouble(self, verb: str) -> AbstractAsyncContextManager[FaultCounter]: ...

    @abstractmethod
    def _of(self, server: ServerId) -> SimulatedGuest: ...

    @abstractmethod
    def _keep(self, guest: SimulatedGuest) -> PowerState: ...

    @abstractmethod
    def _keep_drive(self, spec: GuestSpec) -> GuestSpec:
        """Write the config drive into a file of its own, and return the spec without it."""
        ...

    @abstractmethod
    def _keep_rescue_drive(self, server: ServerId, drive: InstanceMetadata) -> None:
        """Write the config drive of a rescue into another file."""
        ...

    def _running(self, server: ServerId) -> SimulatedGuest:
        guest = self._of(server)
        if guest.power is not PowerState.RUNNING:
            why = f"{server} is {guest.power.name}"
            raise HostFailed("the guest is not running", private=why, code="guest_not_running")
        return guest

    # ---- rebuild and rescue ----------------------------------------------------------------------------------------

    async def rebuild_guest(self, spec: GuestSpec, *, preserve_ephemeral: bool) -> PowerState:
        """Replace the guest's file by a new one, so there is always exactly one guest."""
        async with self._trouble("rebuild_guest"):
            old = self._guests.get(spec.server)
            spec = self._keep_drive(spec)
            if old is not None:
                spec = msgspec.structs.replace(spec, volumes=spec.volumes or old.spec.volumes)
            formats = await self._disks.make(spec)
            guest = SimulatedGuest(spec, PowerState.SHUTDOWN, formats=formats)
            if old is not None:
                guest.boots, guest.rebuilds = old.boots, old.rebuilds + 1
                guest.ephemeral_since = old.ephemeral_since if preserve_ephemeral else guest.rebuilds
            if spec.power_on:
                guest.boot(self._clock.now())
            return self._keep(guest)

    async def rescue_guest(
        self, server: ServerId, rescue: RescueSpec, drive: InstanceMetadata | None = None
    ) -> PowerState:
        async with self._trouble("rescue_guest"):
            guest = self._of(server)
            if drive is not None:
                self._keep_rescue_drive(server, drive)
            if guest.rescue != rescue or guest.power is not PowerState.RUNNING:
                guest.rescue = rescue
                guest.boot(self._clock.now())
            return self._keep(guest)

    async def unrescue_guest(self, server: ServerId, *, power_on: bool) -> PowerState:
        async with self._trouble("unrescue_guest"):
            guest = self._of(server)
            before, guest.rescue = guest.rescue, None
            if not power_on:
                guest.power = PowerState.SHUTDOWN
            elif before is not None or guest.power is not PowerState.RUNNING:
                guest.boot(self._clock.now())
            return self._keep(guest)

    # ---- what is done to a guest that runs -------------------------------------------------------------------------

    async def set_admin_password(self, server: ServerId, password: str) -> None:
        """Set a guest's password; its agent keeps a salted hash, as guests do.

        Raises HostFailed when the guest has no agent, because its image says so.
        """
        async with self._trouble("set_admin_password"):
            guest = self._running(server)
            if guest.spec.image_properties.get("hw_qemu_guest_agent", "yes").lower() in WITHOUT_AGENT:
                raise HostFailed("the guest has no agent", private=server, code="no_guest_agent")
            salt = secrets.token_hex(8)
            guest.password = f"{salt}${hashed(password, salt)}"
            self._keep(guest)

    async def crash_dump(self, server: ServerId) -> PowerState:
        async with self._trouble("crash_dump"):
            guest = self._running(server)
            guest.dumps += 1
            guest.write("NMI received: Kernel panic - not syncing\nkdump: saving vmcore\n")
            guest.boot(self._clock.now())
            return self._keep(guest)

    async def diagnostics(self, server: ServerId) -> GuestDiagnostics:
        """Return numbers that grow with the time since the guest was started, and with its size."""
        async with self._trouble("diagnostics"):
            guest = self._running(server)
            spec, on_s = guest.spec, max(0, int(self._clock.now() - guest.on_since))
            disks = 1 + len(spec.ephemeral_disks) + bool(spec.swap_mib) + len(spec.volumes)
            return GuestDiagnostics(
                state=WORDS[guest.power],
                driver=API_DRIVER,
                hypervisor="simulated",
                hypervisor_os="linux",
                uptime=on_s,
                config_drive=spec.config_drive,
                cpu_details=tuple(CpuDiagnostics(each, on_s * NS_PER_S // 10, 10) for each in range(spec.vcpus)),
                nic_details=tuple(
                    NicDiagnostics(vif.mac, on_s * 640, 0, 0, on_s * 10, 640, on_s * 320, 0, 0, on_s * 5, 320)
                    for vif in spec.vifs
                ),
                disk_details=tuple(DiskDiagnostics(on_s * 4096, on_s, on_s * 2048, on_s // 2, 0) for _ in range(disks)),
                memory_details=MemoryDiagnostics(spec.ram_mib, spec.ram_mib // 4),
            )

    # ---- images ----------------------------------------------------------------------------------------------------

    async def cache_image(self, image: str) -> None:
        """Cache an image: an empty file with the image's name shows that it is here.

        Raises HostFailed for an id that is not an image's, and when the cache is full.
        """
        async with self._trouble("cache_image"):
            room = self._room / "images"
            if not image or "/" in image or image.startswith("."):
                raise HostFailed("not an image's id", private=repr(image), code="image_unusable")
            private_directory(room)
            if not (room / image).exists() and len(os.listdir(room)) >= IMAGES_CACHED_MAX:
                raise HostFailed("the host's image cache is full", private=image, code="host_full")
            (room / image).touch(mode=0o600)

    def images_cached(self) -> frozenset[str]:
        room = self._room / "images"
        return frozenset(os.listdir(room)) if room.is_dir() else frozenset()

    def dumps_of(self, server: ServerId) -> int:
        """Return the number of crash dumps; for tests."""
        return self._of(server).dumps

    def knows_password(self, server: ServerId, password: str) -> bool:
        """Tell whether this password works; for tests."""
        salt, _, kept = self._of(server).password.partition("$")
        return bool(kept) and secrets.compare_digest(kept, hashed(password, salt))


def hashed(password: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), HASH_ROUNDS).hex()
