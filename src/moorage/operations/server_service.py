"""The doors through which the front desk begins operations; what it needs of this room, and no more."""

from collections.abc import Mapping
from typing import Protocol

from moorage.bus.agent_rpc import HostAddress
from moorage.bus.messages import EventHint, encode
from moorage.bus.subjects import EVENTS
from moorage.bus.transport import Bus
from moorage.model.boot_request import BootRequest, NicWish
from moorage.model.errors import Conflict
from moorage.model.ids import ServerId
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.boot import accept_boot
from moorage.operations.boot.accept_boot import BootRights
from moorage.operations.context import SagaContext
from moorage.operations.delete import accept_delete, soft_delete
from moorage.operations.drain_service import DrainDoorsProtocol, DrainService
from moorage.operations.dry_run_service import DryRunDoorsProtocol, DryRunService
from moorage.operations.guest import power
from moorage.operations.guest.power import PowerVerb
from moorage.operations.guest_service import GuestService, LifeDoorsProtocol
from moorage.operations.images import snapshot, snapshot_volumes
from moorage.operations.images.snapshot import Wish
from moorage.operations.interfaces import attach_interface, detach_interface, fixed_ips
from moorage.operations.move_service import MoveDoorsProtocol, MoveService
from moorage.operations.preview import previewing
from moorage.operations.shelve_service import ShelveDoorsProtocol, ShelveService
from moorage.operations.steps.servers import StateCheck
from moorage.operations.volume_service import VolumeDoorsProtocol, VolumeService
from moorage.sql import Database


class ServerService(
    DrainDoorsProtocol,
    DryRunDoorsProtocol,
    LifeDoorsProtocol,
    MoveDoorsProtocol,
    ShelveDoorsProtocol,
    VolumeDoorsProtocol,
    Protocol,
):
    """What may be begun on servers; each is accepted durably when the call returns, or a Problem is raised."""

    async def boot(
        self, principal: Principal, token: str, request: BootRequest, rights: BootRights, request_id: str
    ) -> tuple[Server, ...]: ...

    async def delete(self, principal: Principal, server: Server, *, force: bool, request_id: str) -> None: ...

    async def power(self, principal: Principal, server: Server, verb: PowerVerb, request_id: str) -> None: ...

    async def attach_interface(
        self,
        principal: Principal,
        token: str,
        server: Server,
        wish: NicWish,
        *,
        check: StateCheck,
        external_allowed: bool,
        request_id: str,
    ) -> str:
        """Done when it returns the id of the port; `check` refuses a state that forbids it."""
        ...

    async def detach_interface(
        self, principal: Principal, server: Server, port: str, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def add_fixed_ip(self, server: Server, network: str) -> None: ...

    async def remove_fixed_ip(self, server: Server, address: str) -> None: ...

    async def snapshot(
        self, principal: Principal, token: str, server: Server, wish: Wish, *, check: StateCheck, request_id: str
    ) -> str:
        """The id of the image, which is there when it returns; its data comes."""
        ...

    async def console(self, server: Server, lines: int | None) -> str:
        """What the guest wrote to its console."""
        ...

    async def event_arrived(self, server: ServerId, name: str, tag: str | None) -> None:
        """A hint that the inbox has something new; losing it costs a moment."""
        ...


class SagaServerService(DrainService, DryRunService, GuestService, MoveService, ShelveService, VolumeService):
    """The doors of a region."""

    def __init__(self, context: SagaContext, bus: Bus | None = None) -> None:
        self.context = context
        self._bus = bus
        self._caching = set()

    def preview(self) -> "SagaServerService":
        return SagaServerService(previewing(self.context))

    async def boot(
        self, principal: Principal, token: str, request: BootRequest, rights: BootRights, request_id: str
    ) -> tuple[Server, ...]:
        return await accept_boot.begin(self.context, principal, token, request, rights, request_id)

    async def delete(self, principal: Principal, server: Server, *, force: bool, request_id: str) -> None:
        if not force and soft_delete.is_for_later(self.context, server):
            await soft_delete.begin(self.context, principal, server, request_id=request_id)
        else:
            await accept_delete.begin(self.context, principal, server, force=force, request_id=request_id)

    async def power(self, principal: Principal, server: Server, verb: PowerVerb, request_id: str) -> None:
        await power.begin(self.context, principal, server, verb, request_id)

    async def attach_interface(
        self,
        principal: Principal,
        token: str,
        server: Server,
        wish: NicWish,
        *,
        check: StateCheck,
        external_allowed: bool,
        request_id: str,
    ) -> str:
        return await attach_interface.begin(
            self.context,
            principal,
            token,
            server,
            wish,
            check=check,
            external_allowed=external_allowed,
            request_id=request_id,
        )

    async def detach_interface(
        self, principal: Principal, server: Server, port: str, *, check: StateCheck, request_id: str
    ) -> None:
        await detach_interface.begin(self.context, principal, server, port, check=check, request_id=request_id)

    async def add_fixed_ip(self, server: Server, network: str) -> None:
        await fixed_ips.add(self.context, server, network)

    async def remove_fixed_ip(self, server: Server, address: str) -> None:
        await fixed_ips.remove(self.context, server, address)

    async def snapshot(
        self, principal: Principal, token: str, server: Server, wish: Wish, *, check: StateCheck, request_id: str
    ) -> str:
        if server.volume_backed and wish.backup_type is None:
            return await snapshot_volumes.begin(
                self.context, principal, token, server, wish, check=check, request_id=request_id
            )
        return await snapshot.begin(self.context, principal, token, server, wish, check=check, request_id=request_id)

    async def console(self, server: Server, lines: int | None) -> str:
        if server.cell is None or server.host is None:
            raise Conflict(f"Instance {server.id} is not ready")
        return await self.context.hosts.console_output(HostAddress(server.cell, server.host), server.id, lines)

    async def event_arrived(self, server: ServerId, name: str, tag: str | None) -> None:
        if self._bus is not None:
            await self._bus.publish(EVENTS, encode(EventHint(server, name, tag)))


class CellDatabases:
    """The cells, as the front desk reads them."""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._databases = dict(databases)

    def all(self) -> Mapping[str, Database]:
        return self._databases
