"""The part of the server service for existing guests: password, crash dump, diagnostics, rebuild, rescue; and image
caching on hosts.
"""

import asyncio
import logging
from collections.abc import Sequence

from moorage.bus.agent_calls import HostAddress
from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.bus.guest_payloads import CacheImage, Done, SetAdminPassword
from moorage.bus.host_messages import TurnOfServer
from moorage.bus.verbs import Verb
from moorage.model.action import Action, ActionEvent
from moorage.model.diagnostics import GuestDiagnostics
from moorage.model.errors import Conflict, HostFailed, Problem, Unavailable, UnknownOutcome
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import ServerId
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.delete import soft_delete
from moorage.operations.guest import crash_dump, rebuild, rescue
from moorage.operations.guest.rebuild_checks import RebuildRequest
from moorage.operations.guest.rescue import RescueRequest
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.servers import StateCheck
from moorage.store.cell import actions

PASSWORD_S = 60.0
DIAGNOSTICS_S = 20.0
IMAGE_S = 3600.0
HOSTS_AT_ONCE = 4
"""How many hosts fetch the images of one request at the same time."""
CACHINGS_MAX = 100
"""How many requests for images may be under way in this process; more are refused."""
PASSWORD_EVENT = "compute_set_admin_password"

_log = logging.getLogger(__name__)


class GuestService:
    """Operations on a guest after its boot."""

    context: SagaContext
    _caching: set[asyncio.Task[None]]

    async def change_password(self, principal: Principal, server: Server, password: str, request_id: str) -> None:
        """Set the password before the call returns: a later operation would have to store it.

        Setting it twice has the same effect as once, so a call that failed may be repeated. Raises HostFailed when the
        host refuses, Unavailable when it does not answer.
        """
        to, cell, begun = _where(server), self.context.cells[_where(server).cell], now_us()
        shown = Action(server.id, "changePassword", request_id, principal.user, server.project, begun, begun)
        await cell.write(lambda tx: actions.write(tx, shown))
        event, message = ActionEvent(PASSWORD_EVENT, begun, result="Error", host=to.host), "Error"
        try:
            await self.context.hosts.ask(
                to, server.id, Verb.SET_ADMIN_PASSWORD, SetAdminPassword(password), Done, PASSWORD_S
            )
            event, message = ActionEvent(PASSWORD_EVENT, begun, result="Success", host=to.host), ""
        finally:
            ended = now_us()
            whole = (ActionEvent(event.name, begun, ended, event.result, event.host),)
            await cell.write(lambda tx: actions.finish(tx, server.id, request_id, whole, ended, message or None))

    async def host_turn(self, at: HostAddress, server: ServerId) -> FencingToken | None:
        """Return the fencing token that a host has of a server; None: it has none. Raises HostFailed, Unavailable."""
        try:
            return (await self.context.hosts.ask(at, server, Verb.SERVER_TURN, None, TurnOfServer)).turn
        except UnknownOutcome as lost:
            raise Unavailable("The host did not answer in time.", private=lost.private) from lost

    async def diagnostics(self, server: Server) -> GuestDiagnostics:
        """Return the guest's diagnostics from its host. Raises HostFailed (`guest_not_running`, `not_supported` …)."""
        return await self.context.hosts.ask(
            _where(server), server.id, Verb.DIAGNOSTICS, None, GuestDiagnostics, DIAGNOSTICS_S
        )

    async def crash_dump(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        await crash_dump.begin(self.context, principal, server, check=check, request_id=request_id)

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
        """Accept a rebuild; returns the record as it will be. Raises Invalid and Conflict."""
        return await rebuild.begin(self.context, principal, token, server, request, check=check, request_id=request_id)

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
        await rescue.begin(
            self.context,
            principal,
            token,
            server,
            request,
            check=check,
            request_id=request_id,
        )

    async def unrescue(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        await rescue.begin_back(self.context, principal, server, check=check, request_id=request_id)

    async def restore(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        await soft_delete.begin_restoring(self.context, principal, server, check=check, request_id=request_id)

    def cache_images(self, hosts: Sequence[HostAddress], images: Sequence[str]) -> None:
        """Let hosts fetch images in the background, a few hosts at a time; a failure is logged. The work is lost when
        the process ends, as in Nova. Raises Conflict when too many requests are under way.
        """
        if len(self._caching) >= CACHINGS_MAX:
            raise Conflict("Too many requests for image caching are under way; try again later.")
        task = asyncio.create_task(self._cache(tuple(hosts), tuple(images)), name="cache-images")
        self._caching.add(task)
        task.add_done_callback(self._caching.discard)

    async def _cache(self, hosts: Sequence[HostAddress], images: Sequence[str]) -> None:
        slots = asyncio.Semaphore(HOSTS_AT_ONCE)

        async def on_one(to: HostAddress) -> None:
            async with slots:
                for image in images:
                    try:
                        await self.context.hosts.ask(
                            to, ServerId(""), Verb.CACHE_IMAGE, CacheImage(image), Done, IMAGE_S
                        )
                    except Problem as problem:
                        _log.warning("host %s did not cache image %s: %s", to.host, image, problem.private or problem)

        await asyncio.gather(*(on_one(each) for each in hosts))


def _where(server: Server) -> HostAddress:
    if server.cell is None or server.host is None:
        raise Conflict(f"Instance {server.id} is not ready")
    return HostAddress(server.cell, server.host)


def cannot(failure: HostFailed) -> bool:
    """Whether the host's driver, or its agent's release, does not know the command."""
    return failure.code == NOT_SUPPORTED
