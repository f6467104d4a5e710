"""`/os-assisted-volume-snapshots`: the volume service asks the host of a server to take, or drop, a snapshot of an attached volume.

What can be refused is refused as Nova refuses it, with 400.  The answer comes when the operation is accepted; how it ended is told to the
volume service (`os-update_snapshot_status`), also when the host or its driver cannot do it.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.host_view import selected
from moorage.api.routes import Param, Params, Route
from moorage.api.schema import Body, read_json
from moorage.api.timestamps import now_us
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.server import Server, VmState
from moorage.operations.shown_records import CellQuery, EveryCell
from moorage.operations.volumes.assisted_snapshot import SnapshotWish
from moorage.sql import Database
from moorage.store.cell import server_queries

RULE = "os_compute_api:os-assisted-volume-snapshots:"
PATH = "/os-assisted-volume-snapshots"
FILE_CHARS_MAX = 4096
Said = Annotated[str, Meta(min_length=1, max_length=FILE_CHARS_MAX)]


class CreateInfo(Body):
    snapshot_id: Said
    type: Literal["qcow2"]
    new_file: Said
    id: Said | None = None


class AssistedSnapshotFields(Body):
    volume_id: Said
    create_info: CreateInfo


class CreateAssistedSnapshotBody(Body):
    snapshot: AssistedSnapshotFields


async def _with_volume(call: AnyCall, wish: SnapshotWish) -> Server:
    """The server that the volume is attached to. Raises Invalid: there is none, several, or one that is on no host or busy."""
    volume = wish.volume

    async def query_cell(name: str, cell: Database, look: CellQuery) -> Sequence[Server]:
        return selected(await cell.read(lambda tx: server_queries.with_volume(tx, volume)), look)

    context = call.context
    cells = EveryCell(context.region, context.cells, now_us(context.clock), query_cell, lambda server: server.id)
    servers = (await cells.rows()).rows
    if not servers:
        raise Invalid(f"No volume Block Device Mapping with id {volume}.")
    if len(servers) > 1:
        raise Invalid(f"Block Device Mapping {volume} is a multi-attach volume and is not valid for this operation.")
    (server,) = servers
    _ready(server, wish)
    return server


def _ready(server: Server, wish: SnapshotWish) -> None:
    """Raises Invalid for a server that is on no host or busy, and for a merge under a guest that does not run."""
    if server.host is None:
        raise Invalid(f"Instance {server.id} is not ready")
    if server.task_state is not None:
        raise Invalid(f"Instance {server.id} in task_state {server.task_state.value}.")
    if not any(each.volume == wish.volume for each in server.volumes):
        raise Invalid(f"No volume Block Device Mapping with id {wish.volume}.")
    if wish.merge_target is not None and server.vm_state is not VmState.ACTIVE:
        raise Invalid(f"Instance {server.id} in vm_state {server.vm_state.value}.")


async def _begin(call: AnyCall, server: Server, wish: SnapshotWish) -> None:
    """Raises Invalid, as Nova does, where a server that is busy is a conflict elsewhere."""

    def check(now: Server) -> None:
        _ready(now, wish)

    try:
        await service_of(call).assisted_snapshot(call.principal, server, wish, check=check, request_id=call.request_id)
    except (Conflict, NotFound) as busy:
        raise Invalid(busy.public, private=busy.private) from busy


async def create(call: Call[CreateAssistedSnapshotBody]) -> Response:
    call.require(RULE + "create", {})
    fields = call.body.snapshot
    info = fields.create_info
    wish = SnapshotWish(fields.volume_id, info.snapshot_id, new_file=info.new_file)
    await _begin(call, await _with_volume(call, wish), wish)
    return Response(200, {"snapshot": {"id": info.id, "volumeId": fields.volume_id}})


async def delete(call: Call[None]) -> Response:
    """Remove a file from a volume's chain of snapshots.

    Raises Invalid when `delete_info` is not an object, or lacks a field.
    """
    call.require(RULE + "delete", {})
    info: Any = read_json((call.first("delete_info") or "").encode())
    if not isinstance(info, dict):
        raise Invalid("'delete_info' is not an object.")
    volume = info.get("volume_id")
    if not isinstance(volume, str):
        raise Invalid("'volume_id' is a required property of 'delete_info'.")
    files = [info.get(name) for name in ("file_to_merge", "merge_target_file")]
    if any(each is not None and not (isinstance(each, str) and 0 < len(each) <= FILE_CHARS_MAX) for each in files):
        raise Invalid("'file_to_merge' and 'merge_target_file' of 'delete_info' are names of files.")
    wish = SnapshotWish(volume, call.path["id"], drop=True, merge_file=files[0], merge_target=files[1])
    await _begin(call, await _with_volume(call, wish), wish)
    return Response(204)


ROUTES = (
    Route("POST", PATH, create, takes=CreateAssistedSnapshotBody),
    Route("DELETE", PATH + "/{id}", delete, params=Params({"delete_info": Param(many=False)}, strict=(2, 75))),
)
