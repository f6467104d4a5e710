"""The service through which the APIs begin operations on servers: one method for each operation.

A method checks and accepts; a conductor executes.  The methods stand in one class for each family, and `ServerService` joins
them.  Handlers use this class itself; tests of the API give them a subclass that only records what was called.
"""

from moorage.bus.agent_calls import HostAddress
from moorage.bus.messages import EventHint, encode
from moorage.bus.subjects import EVENTS
from moorage.bus.transport import Bus
from moorage.model.boot_request import BootRequest, NicWish
from moorage.model.errors import Conflict
from moorage.model.ids import ServerId
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.boot import accept_boot
from moorage.operations.boot.boot_checks import BootRights
from moorage.operations.capacity.service import CapacityService
from moorage.operations.context import SagaContext
from moorage.operations.delete import accept_delete, soft_delete
from moorage.operations.drain_service import DrainService
from moorage.operations.dry_run_service import DryRunService
from moorage.operations.guest import power
from moorage.operations.guest.power import PowerVerb
from moorage.operations.guest_service import GuestService
from moorage.operations.images import snapshot, snapshot_volumes
from moorage.operations.images.snapshot import SnapshotRequest
from moorage.operations.interfaces import attach_checks, attach_interface, detach_interface, fixed_ips
from moorage.operations.move_service import MoveService
from moorage.operations.preview import previewing
from moorage.operations.shelve_service import ShelveService
from moorage.operations.steps.servers import StateCheck
from moorage.operations.volume_service import VolumeService


class ServerService(
    CapacityService, DrainService, DryRunService, GuestService, MoveService, ShelveService, VolumeService
):
    """Begins operations on the servers of a region.

    When a method returns, the operation is accepted durably; otherwise the method raised a Problem. `check` raises
    Conflict for a state that forbids the operation; it is called again with the record that the transaction reads.
    """

    def __init__(self, context: SagaContext, bus: Bus | None = None) -> None:
        self.context = context
        self._bus = bus
        self._caching = set()

    def preview(self) -> "ServerService":
        """The same service without writes: a method raises `Previewed` with the operations that it would begin."""
        return ServerService(previewing(self.context))

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
        """Attach a port, and return its id when it is attached. Raises Conflict, Invalid and Forbidden."""
        return await attach_interface.begin(
            self.context,
            principal,
            token,
            server,
            attach_checks.AttachWish(wish, external_allowed),
            check=check,
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
        self,
        principal: Principal,
        token: str,
        server: Server,
        wish: SnapshotRequest,
        *,
        check: StateCheck,
        request_id: str,
    ) -> str:
        """Create the image record and return its id; its data follows. Raises Conflict and Invalid."""
        if server.volume_backed and wish.backup_type is None:
            return await snapshot_volumes.begin(
                self.context, principal, token, server, wish, check=check, request_id=request_id
            )
        return await snapshot.begin(self.context, principal, token, server, wish, check=check, request_id=request_id)

    async def console(self, server: Server, lines: int | None) -> str:
        """The last `lines` lines of the guest's console, or all. Raises Conflict when the server has no host, HostFailed, Unavailable."""
        if server.cell is None or server.host is None:
            raise Conflict(f"Instance {server.id} is not ready")
        return await self.context.hosts.console_output(HostAddress(server.cell, server.host), server.id, lines)

    async def event_arrived(self, server: ServerId, name: str, tag: str | None) -> None:
        """Publish a hint that the inbox has a new event. A lost hint only delays the event."""
        if self._bus is not None:
            await self._bus.publish(EVENTS, encode(EventHint(server, name, tag)))
