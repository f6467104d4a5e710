"""`/ext/host-approvals`: which hosts may be part of the region, and which wait for that.

A host that nobody approved is no compute service: it is in no list of Nova's, and placement does not know it.
"""

from typing import Annotated

from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.routes import Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import micros, now_us
from moorage.bus.security import is_public_key
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.ids import CellId
from moorage.model.json_types import JsonObject
from moorage.store.region import host_approvals
from moorage.store.region.host_approvals import APPROVED_MAX, HostApproval

HOST_CHARS_MAX = 255


class WantedApproval(Body):
    cell: Annotated[str, Meta(max_length=64)] = ""
    """Empty: the one that it says it is in."""
    key: Annotated[str, Meta(max_length=56)] | None = None
    """The public half of its key on the bus; absent: as before."""


class ApproveBody(Body):
    approval: WantedApproval


async def index(call: AnyCall) -> Response:
    """Those that wait first."""
    call.require("moorage:host_approvals:show")
    rows = await call.context.region.read(host_approvals.listed)
    return Response(200, {"host_approvals": [_shown(each) for each in rows]}, finished=True)


async def show(call: AnyCall) -> Response:
    call.require("moorage:host_approvals:show")
    return Response(200, {"host_approval": _shown(await _row(call))}, finished=True)


async def approve(call: Call[ApproveBody]) -> Response:
    """Approve a host: bind it to its cell and key; a moment later its messages are accepted. A second call with other
    values replaces the first.

    Raises Invalid for a name, key or cell that cannot be used, and Conflict when another host has the key, or too
    many hosts are approved.
    """
    call.require("moorage:host_approvals:update")
    host, wanted = call.path["host"], call.body.approval
    if len(host) > HOST_CHARS_MAX or not host.isprintable():
        raise Invalid(f"A host's name has at most {HOST_CHARS_MAX} characters, all of which can be printed.")
    if wanted.key is not None and not is_public_key(wanted.key):
        raise Invalid(
            "The key is not the public half of a user's nkey: 56 letters that begin with U (moorage bus key)."
        )
    region, by, now = call.context.region, call.principal.user or "", now_us(call.context.clock)
    known = await region.read(lambda tx: host_approvals.get(tx, host))
    cell = CellId(wanted.cell or (known.cell if known is not None else ""))
    if not cell:
        raise Invalid(f"Host {host} sent no message yet, so its cell is unknown: name the cell.")
    if cell not in call.context.cells:
        raise Invalid(f"There is no cell {cell} in the configuration of this API.")
    key = wanted.key or (known.key if known is not None else None)
    other = await region.write(lambda tx: host_approvals.approve(tx, host, cell, key, now, by))
    if other == "":
        raise Conflict(f"{APPROVED_MAX} hosts are approved, which is as many as a region can have.")
    if other is not None:
        raise Conflict(f"Host {other} has this key: each host has its own.")
    return Response(200, {"host_approval": _shown(await _row(call))}, finished=True)


async def revoke(call: AnyCall) -> Response:
    """Revoke a host: its messages are ignored; the broker's configuration must be made again without its key.

    Raises NotFound when the host is neither approved nor waits for approval.
    """
    call.require("moorage:host_approvals:delete")
    host = call.path["host"]
    if not await call.context.region.write(lambda tx: host_approvals.revoke(tx, host)):
        raise NotFound(f"Host {host} is neither approved nor does it wait for that.")
    return Response(204)


async def _row(call: AnyCall) -> HostApproval:
    host = call.path["host"]
    row = await call.context.region.read(lambda tx: host_approvals.get(tx, host))
    if row is None:
        raise NotFound(f"Host {host} is neither approved nor does it wait for that.")
    return row


def _shown(row: HostApproval) -> JsonObject:
    return {
        "host": row.host,
        "cell": row.cell,
        "key": row.key,
        "status": "waiting" if row.approved_at is None else "approved",
        "approved_at": None if row.approved_at is None else micros(row.approved_at),
        "approved_by": row.approved_by or None,
        "heard_at": micros(row.heard_at) if row.heard_at else None,
        "refused_at": None if row.refused_at is None else micros(row.refused_at),
        "refused_why": row.refused_why or None,
    }


NONE = Params({}, strict=(2, 1))

ROUTES = (
    Route("GET", "/ext/host-approvals", index, params=NONE),
    Route("GET", "/ext/host-approvals/{host}", show, params=NONE),
    Route("PUT", "/ext/host-approvals/{host}", approve, takes=ApproveBody, params=NONE),
    Route("DELETE", "/ext/host-approvals/{host}", revoke, params=NONE),
)
