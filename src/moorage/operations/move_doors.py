"""The doors for moves."""

from collections.abc import Sequence
from typing import Protocol

from moorage.model.asker import Asker
from moorage.model.migration import Migration
from moorage.model.server import Server
from moorage.operations import (
    cancel_move,
    confirm_resize,
    evacuate_request,
    live_migrate_request,
    move_ends,
    resize_request,
    revert_resize,
)
from moorage.operations.evacuate_request import EvacuateWish
from moorage.operations.live_migrate_request import LiveWish
from moorage.operations.move_ends import MoveSeen
from moorage.operations.nouns.servers import Telling
from moorage.operations.resize_request import ResizeWish
from moorage.operations.rooms import Rooms
from moorage.operations.steps.servers import StateCheck


class MoveDoorsProtocol(Protocol):
    """What the front desk asks here; `check` refuses a state that forbids it."""

    async def resize(
        self, asker: Asker, server: Server, wish: ResizeWish, *, check: StateCheck, request_id: str
    ) -> None:
        """A wish without a flavor is a migration."""
        ...

    async def confirm_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None: ...

    async def revert_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None: ...

    async def live_migrate(
        self, asker: Asker, server: Server, wish: LiveWish, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def force_live_migration(
        self, asker: Asker, server: Server, migration: Migration, *, request_id: str, telling: Sequence[Telling] = ()
    ) -> None: ...

    async def abort_live_migration(
        self, asker: Asker, server: Server, migration: Migration, *, request_id: str
    ) -> None: ...

    async def evacuate(
        self, asker: Asker, server: Server, wish: EvacuateWish, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def cancel_move(self, asker: Asker, server: Server, move: str, *, request_id: str) -> None: ...

    async def moves_of(self, server: Server, *, limit: int) -> tuple[MoveSeen, ...]:
        """The newest first, with what each has at its two ends."""
        ...


class MoveDoors:
    rooms: Rooms

    async def resize(
        self, asker: Asker, server: Server, wish: ResizeWish, *, check: StateCheck, request_id: str
    ) -> None:
        await resize_request.begin(self.rooms, asker, server, wish, check=check, request_id=request_id)

    async def confirm_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None:
        who = asker.user, asker.project or ""
        await confirm_resize.begin(self.rooms, server, *who, check=check, request_id=request_id)

    async def revert_resize(self, asker: Asker, server: Server, *, check: StateCheck, request_id: str) -> None:
        await revert_resize.begin(self.rooms, asker, server, check=check, request_id=request_id)

    async def live_migrate(
        self, asker: Asker, server: Server, wish: LiveWish, *, check: StateCheck, request_id: str
    ) -> None:
        await live_migrate_request.begin(self.rooms, asker, server, wish, check=check, request_id=request_id)

    async def force_live_migration(
        self, asker: Asker, server: Server, migration: Migration, *, request_id: str, telling: Sequence[Telling] = ()
    ) -> None:
        await live_migrate_request.force_complete(self.rooms, asker, server, migration, request_id, telling)

    async def abort_live_migration(
        self, asker: Asker, server: Server, migration: Migration, *, request_id: str
    ) -> None:
        await live_migrate_request.abort(self.rooms, asker, server, migration, request_id)

    async def evacuate(
        self, asker: Asker, server: Server, wish: EvacuateWish, *, check: StateCheck, request_id: str
    ) -> None:
        await evacuate_request.begin(self.rooms, asker, server, wish, check=check, request_id=request_id)

    async def cancel_move(self, asker: Asker, server: Server, move: str, *, request_id: str) -> None:
        await cancel_move.cancel(self.rooms, asker, server, move, request_id)

    async def moves_of(self, server: Server, *, limit: int) -> tuple[MoveSeen, ...]:
        return await move_ends.seen(self.rooms, server, limit=limit)
