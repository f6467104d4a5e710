"""Actions `shelve`, `shelveOffload` and `unshelve`."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import in_state, may_cross_cells, not_locked, service_of, target_of, the_server
from moorage.api.routes import Route
from moorage.api.schema import Body
from moorage.model.errors import Conflict
from moorage.model.server import Server, VmState
from moorage.operations.shelve.accept_unshelve import UnshelveWish
from moorage.operations.steps.servers import StateCheck

PATH = "/servers/{id}/action"
RULE = "os_compute_api:os-shelve:"
SHELVE_FROM = (VmState.ACTIVE, VmState.STOPPED, VmState.PAUSED, VmState.SUSPENDED)
UNSHELVE_FROM = (VmState.SHELVED, VmState.SHELVED_OFFLOADED)
HOST_MAX_CHARS = 255


class UnshelveTarget(Body):
    availability_zone: str | UnsetType | None = UNSET
    host: Annotated[str, Meta(max_length=HOST_MAX_CHARS)] | UnsetType = UNSET


class UnshelveBody(Body):
    unshelve: UnshelveTarget | None


async def shelve(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "shelve")
    check = _check(call, "shelve", SHELVE_FROM)
    check(server)
    await service_of(call).shelve(call.principal, call.token, server, check=check, request_id=call.request_id)
    return Response(202)


async def shelve_offload(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "shelve_offload")
    check = _check(call, "shelveOffload", (VmState.SHELVED,))
    check(server)
    await service_of(call).shelve_offload(call.principal, server, check=check, request_id=call.request_id)
    return Response(202)


async def unshelve(call: Call[UnshelveBody]) -> Response:
    """Begin to unshelve a server. Raises Conflict for a zone or host when the server is not offloaded."""
    server = await the_server(call, RULE + "unshelve")
    wish = _wish(call.body.unshelve)
    check = _check(call, "unshelve", UNSHELVE_FROM)
    check(server)
    if wish != UnshelveWish() and server.vm_state is not VmState.SHELVED_OFFLOADED:
        raise Conflict(
            f'Specifying an availability zone or a host when unshelving server "{server.id}" with status '
            f'"{server.vm_state.value}" is not supported. The server status must be SHELVED_OFFLOADED.'
        )
    if wish.host is not None:
        call.require(RULE + "unshelve_to_host", target_of(server))
    wish = msgspec.structs.replace(wish, cross_cell=may_cross_cells(call, server))
    await service_of(call).unshelve(call.principal, server, wish, check=check, request_id=call.request_id)
    return Response(202)


def _wish(target: UnshelveTarget | None) -> UnshelveWish:
    if target is None:
        return UnshelveWish()
    zone = msgspec.UNSET if target.availability_zone is UNSET else target.availability_zone
    return UnshelveWish(zone, None if target.host is UNSET else target.host or None)


def _check(call: AnyCall, action: str, states: tuple[VmState, ...]) -> StateCheck:
    def check(server: Server) -> None:
        not_locked(call, server)
        in_state(server, action, states)

    return check


ROUTES = (
    Route("POST", PATH, shelve, action="shelve"),
    Route("POST", PATH, shelve_offload, action="shelveOffload"),
    Route("POST", PATH, unshelve, takes=UnshelveBody, action="unshelve"),
)
