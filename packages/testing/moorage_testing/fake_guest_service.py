"""The half of the recording server service for guests after their boot, and moves."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from typing_extensions import override

from moorage.bus.agent_calls import HostAddress
from moorage.model.diagnostics import (
    CpuDiagnostics,
    DiskDiagnostics,
    GuestDiagnostics,
    MemoryDiagnostics,
    NicDiagnostics,
)
from moorage.model.errors import HostFailed
from moorage.model.ids import ImageId
from moorage.model.migration import Migration
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState
from moorage.operations.evacuate.accept_evacuate import EvacuateWish
from moorage.operations.guest.rebuild_checks import RebuildRequest
from moorage.operations.guest.rescue import RescueRequest
from moorage.operations.live_migrate.accept_live_migrate import LiveWish
from moorage.operations.moves.move_ends import MoveSeen
from moorage.operations.records.servers import ChangeListener
from moorage.operations.resize.accept_resize import ResizeWish
from moorage.operations.server_service import ServerService
from moorage.operations.steps.servers import StateCheck

DIAGNOSTICS = GuestDiagnostics(
    state="running",
    driver="simulated",
    hypervisor="kvm",
    hypervisor_os="linux",
    uptime=46664,
    config_drive=True,
    cpu_details=(CpuDiagnostics(0, 17_300_000_000, 15),),
    nic_details=(NicDiagnostics("01:23:45:67:89:ab", 2070139, 100, 200, 26701, 300, 140208, 400, 500, 662, 600),),
    disk_details=(DiskDiagnostics(262144, 112, 5778432, 488, 1),),
    memory_details=MemoryDiagnostics(512, 128),
)


@dataclass(kw_only=True)
class RecordingGuestService(ServerService):
    """Records what was called, in order; a method that is not overridden fails, because there is no `context`."""

    passwords: list[tuple[str, str]] = field(default_factory=list)
    dumped: list[str] = field(default_factory=list)
    cached: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    rebuilt: list[tuple[str, RebuildRequest]] = field(default_factory=list)
    rescued: list[tuple[str, str | None]] = field(default_factory=list)
    unrescued: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    moved: list[tuple[str, ResizeWish]] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)
    reverted: list[str] = field(default_factory=list)
    live: list[tuple[str, LiveWish]] = field(default_factory=list)
    """Live migrations that were to begin; the UUIDs of those to be forced, and aborted."""
    forced: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    evacuated: list[tuple[str, EvacuateWish]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """The UUIDs of moves."""
    host_says: HostFailed | None = None
    """With what every host fails."""

    def _fail(self) -> None:
        if self.host_says is not None:
            raise self.host_says

    @override
    async def change_password(self, principal: Principal, server: Server, password: str, request_id: str) -> None:
        self._fail()
        self.passwords.append((server.id, password))

    @override
    async def diagnostics(self, server: Server) -> GuestDiagnostics:
        self._fail()
        return DIAGNOSTICS

    @override
    async def crash_dump(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        check(server)
        self.dumped.append(server.id)

    @override
    async def rebuild(
        self,
        principal: Principal,
        token: str,
        server: Server,
        request: RebuildRequest,
        *,
        check: StateCheck,
        request_id: str,
    ) -> Server:
        check(server)
        self.rebuilt.append((server.id, request))
        plain = ("name", "description", "metadata", "user_data", "trusted_certs", "hostname", "key_name")
        new = {name: value for name in plain if (value := getattr(request, name)) is not msgspec.UNSET}
        return msgspec.structs.replace(
            server, **new, image=ImageId(request.image), task_state=TaskState.REBUILDING, progress=0
        )

    @override
    async def rescue(
        self,
        principal: Principal,
        token: str,
        server: Server,
        request: RescueRequest,
        *,
        check: StateCheck,
        request_id: str,
    ) -> None:
        check(server)
        self.rescued.append((server.id, request.image))

    @override
    async def unrescue(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        check(server)
        self.unrescued.append(server.id)

    @override
    async def restore(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        check(server)
        self.restored.append(server.id)

    @override
    async def resize(
        self, principal: Principal, server: Server, wish: ResizeWish, *, check: StateCheck, request_id: str
    ) -> None:
        check(server)
        self.moved.append((server.id, wish))

    @override
    async def confirm_resize(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        check(server)
        self.confirmed.append(server.id)

    @override
    async def revert_resize(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        check(server)
        self.reverted.append(server.id)

    @override
    async def live_migrate(
        self, principal: Principal, server: Server, wish: LiveWish, *, check: StateCheck, request_id: str
    ) -> None:
        check(server)
        self.live.append((server.id, wish))

    @override
    async def force_live_migration(
        self,
        principal: Principal,
        server: Server,
        migration: Migration,
        *,
        request_id: str,
        listeners: Sequence[ChangeListener] = (),
    ) -> None:
        self.forced.append(migration.uuid)

    @override
    async def abort_live_migration(
        self, principal: Principal, server: Server, migration: Migration, *, request_id: str
    ) -> None:
        self.aborted.append(migration.uuid)

    @override
    async def cancel_move(self, principal: Principal, server: Server, move: str, *, request_id: str) -> None:
        self.cancelled.append(move)

    @override
    async def moves_of(self, server: Server, *, limit: int) -> tuple[MoveSeen, ...]:
        return ()

    @override
    async def evacuate(
        self, principal: Principal, server: Server, wish: EvacuateWish, *, check: StateCheck, request_id: str
    ) -> None:
        check(server)
        self.evacuated.append((server.id, wish))

    @override
    def cache_images(self, hosts: Sequence[HostAddress], images: Sequence[str]) -> None:
        self.cached.append((tuple(each.host for each in hosts), tuple(images)))
