"""The part of the server service for moves: resize, migration, live migration, evacuation."""

from collections.abc import Sequence

from moorage.model.migration import Migration
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.evacuate import accept_evacuate
from moorage.operations.evacuate.accept_evacuate import EvacuateWish
from moorage.operations.live_migrate import accept_live_migrate
from moorage.operations.live_migrate.accept_live_migrate import LiveWish
from moorage.operations.moves import cancel_move, move_ends
from moorage.operations.moves.move_ends import MoveSeen
from moorage.operations.records.servers import ChangeListener
from moorage.operations.resize import accept_resize, confirm_resize, revert_resize
from moorage.operations.resize.accept_resize import ResizeWish
from moorage.operations.steps.servers import StateCheck


class MoveService:
    """`check` raises Conflict for a state that forbids the move."""

    context: SagaContext

    async def resize(
        self, principal: Principal, server: Server, wish: ResizeWish, *, check: StateCheck, request_id: str
    ) -> None:
        """Accept a resize; a wish without a flavor is a migration. Raises Conflict."""
        await accept_resize.begin(self.context, principal, server, wish, check=check, request_id=request_id)

    async def confirm_resize(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        user, project = principal.user, principal.project or ""
        await confirm_resize.begin(self.context, server, user, project, check=check, request_id=request_id)

    async def revert_resize(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        await revert_resize.begin(self.context, principal, server, check=check, request_id=request_id)

    async def live_migrate(
        self, principal: Principal, server: Server, wish: LiveWish, *, check: StateCheck, request_id: str
    ) -> None:
        await accept_live_migrate.begin(self.context, principal, server, wish, check=check, request_id=request_id)

    async def force_live_migration(
        self,
        principal: Principal,
        server: Server,
        migration: Migration,
        *,
        request_id: str,
        listeners: Sequence[ChangeListener] = (),
    ) -> None:
        await accept_live_migrate.force_complete(self.context, principal, server, migration, request_id, listeners)

    async def abort_live_migration(
        self, principal: Principal, server: Server, migration: Migration, *, request_id: str
    ) -> None:
        await accept_live_migrate.abort(self.context, principal, server, migration, request_id)

    async def evacuate(
        self, principal: Principal, server: Server, wish: EvacuateWish, *, check: StateCheck, request_id: str
    ) -> None:
        await accept_evacuate.begin(self.context, principal, server, wish, check=check, request_id=request_id)

    async def cancel_move(self, principal: Principal, server: Server, move: str, *, request_id: str) -> None:
        await cancel_move.cancel(self.context, principal, server, move, request_id)

    async def moves_of(self, server: Server, *, limit: int) -> tuple[MoveSeen, ...]:
        """Moves of the server, newest first, with their holdings on source and destination; at most `limit`."""
        return await move_ends.seen(self.context, server, limit=limit)
