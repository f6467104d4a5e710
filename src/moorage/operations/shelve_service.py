"""The part of the server service for shelving."""

from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.shelve import accept_unshelve, shelve
from moorage.operations.shelve.accept_unshelve import UnshelveWish
from moorage.operations.steps.servers import StateCheck


class ShelveService:
    """In each method `check` raises Conflict for a state that forbids the operation."""

    context: SagaContext

    async def shelve(
        self, principal: Principal, token: str, server: Server, *, check: StateCheck, request_id: str
    ) -> None:
        await shelve.begin(self.context, principal, token, server, check=check, request_id=request_id)

    async def shelve_offload(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        user, project = principal.user, principal.project or ""
        await shelve.begin_offloading(self.context, server.id, user, project, check=check, request_id=request_id)

    async def unshelve(
        self, principal: Principal, server: Server, wish: UnshelveWish, *, check: StateCheck, request_id: str
    ) -> None:
        await accept_unshelve.begin(self.context, principal, server, wish, check=check, request_id=request_id)
