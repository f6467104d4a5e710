"""`/ext/host-turns`: the fencing token of a server at a host, and the way back from one that no conductor gave.

A host obeys the highest token that it was given. Whoever took a conductor's key may have given it one that is ahead of
the server's operations; the host then refuses every order for that server, a delete, too. Only an operator takes it
back, because a region that was restored from an older copy looks the same.
"""

from moorage.api.call import AnyCall, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.routes import Params, Route
from moorage.api.timestamps import now_us
from moorage.bus.agent_calls import HostAddress
from moorage.model.errors import Conflict, NotFound
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import ServerId
from moorage.model.json_types import JsonObject
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.doubts import seq_of
from moorage.store.region import host_approvals, numbers, turn_resets
from moorage.store.region.server_standing import ServerStanding, standings
from moorage.store.region.turn_resets import StoredReset


async def show(call: AnyCall) -> Response:
    """Ask the host for its token of the server, and show it beside the newest that a conductor can have given.

    Raises NotFound for an unknown host or server, HostFailed and Unavailable when the host does not answer.
    """
    call.require("moorage:host_turns:show")
    _, standing, turn = await _compared(call)
    return Response(200, {"host_turn": _shown(call, standing, turn)}, finished=True)


async def take_back(call: AnyCall) -> Response:
    """Let the cell's conductor replace the host's token by the newest that the region knows; it takes some seconds.

    Where the region has counted on from that token already, and the server is doubtful for it, its record is right as it
    stands. Raises Conflict when the host's token is one that a conductor can have given, NotFound, HostFailed and Unavailable.
    """
    call.require("moorage:host_turns:delete")
    at, standing, turn = await _compared(call)
    record = await call.context.cells[at.cell].read(lambda tx: cell_servers.get(tx, standing.id))
    recorded = 0 if record is None else seq_of(record)
    counted_on = turn is not None and recorded < turn.operation_seq == standing.recorded_seq
    if turn is None or (turn <= standing.newest_turn and not counted_on):
        raise Conflict(
            f"Host {at.host} obeys orders for server {standing.id}: its turn is not ahead of what the region knows."
        )
    reset, by = StoredReset(at.host, standing.id, turn, now_us(call.context.clock)), call.principal.user or ""

    def work(tx: Tx) -> None:
        turn_resets.add(tx, at.cell, reset, by)
        if counted_on:
            numbers.settled(tx, standing.id, recorded)

    await call.context.region.write(work)
    return Response(202, {"host_turn": _shown(call, standing, turn)}, finished=True)


async def _compared(call: AnyCall) -> tuple[HostAddress, ServerStanding, FencingToken | None]:
    host, server = call.path["host"], ServerId(call.path["server_id"])

    def work(tx: Tx) -> tuple[host_approvals.HostApproval | None, ServerStanding | None]:
        return host_approvals.get(tx, host), standings(tx, (server,)).get(server)

    approval, standing = await call.context.region.read(work)
    if approval is None or approval.approved_at is None:
        raise NotFound(f"Host {host} is not approved.")
    if standing is None:
        raise NotFound(f"Instance {server} could not be found.")
    at = HostAddress(approval.cell, host)
    return at, standing, await service_of(call).host_turn(at, server)


def _shown(call: AnyCall, standing: ServerStanding, turn: FencingToken | None) -> JsonObject:
    return {
        "host": call.path["host"],
        "server": standing.id,
        "host_operation": None if turn is None else turn.operation_seq,
        "last_operation": standing.op_seq,
        "ahead": turn is not None and turn > standing.newest_turn,
    }


NONE = Params({}, strict=(2, 1))

ROUTES = (
    Route("GET", "/ext/host-turns/{host}/{server_id}", show, params=NONE),
    Route("DELETE", "/ext/host-turns/{host}/{server_id}", take_back, params=NONE),
)
