"""The doors for shelving."""

from typing import Protocol

from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.shelve import accept_unshelve, shelve
from moorage.operations.shelve.accept_unshelve import UnshelveWish
from moorage.operations.steps.servers import StateCheck


class ShelveDoorsProtocol(Protocol):
    """What the front desk asks here; `check` refuses a state that forbids it."""

    async def shelve(
        self, principal: Principal, token: str, server: Server, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def shelve_offload(
        self, principal: Principal, server: Server, *, check: StateCheck, request_id: str
    ) -> None: ...

    async def unshelve(
        self, principal: Principal, server: Server, wish: UnshelveWish, *, check: StateCheck, request_id: str
    ) -> None: ...


class ShelveService:
    context: SagaContext

    async def shelve(
        self, principal: Principal, token: str, server: Server, *, check: StateCheck, request_id: str
    ) -> None:
        await shelve.begin(self.context, principal, token, server, check=check, request_id=request_id)

    async def shelve_offload(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        who = principal.user, principal.project or ""
        await shelve.begin_offloading(self.context, server.id, *who, check=check, request_id=request_id)

    async def unshelve(
        self, principal: Principal, server: Server, wish: UnshelveWish, *, check: StateCheck, request_id: str
    ) -> None:
        await accept_unshelve.begin(self.context, principal, server, wish, check=check, request_id=request_id)
