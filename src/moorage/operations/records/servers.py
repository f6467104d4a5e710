"""Changes of a server's record without an operation: each reads the record, changes it, and writes it back if it is
unchanged.

The record is in the server's cell, or in the region while it is only an order. These writes do not change the fence, so
they do not disturb an operation that works on the server.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from moorage.model.action import Action
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.ids import ServerId
from moorage.model.quota import CountLimit
from moorage.model.server import Server, VmState
from moorage.model.server_transitions import checked_change
from moorage.sql import Database, Tx
from moorage.store.cell import actions, record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.notifications import OUTBOX as CELL_OUTBOX
from moorage.store.outbox import OutboxTable
from moorage.store.region import servers as region_servers
from moorage.store.region.notifications import OUTBOX as REGION_OUTBOX
from moorage.store.servers import replace_server

TRIES = 20
BUILT_SOON_S = 0.1
METADATA_ITEMS_MAX = CountLimit("metadata_items", 128)

Changed = Callable[[Server], Server]
ChangeListener = Callable[[Tx, OutboxTable, Server, Server], None]
"""`(tx, outbox, before, after)`: writes the notifications of a change, in the change's transaction."""


async def change(
    region: Database,
    cells: Mapping[str, Database],
    server_id: str,
    changed: Changed,
    now: int,
    action: Action | None = None,
    listener: ChangeListener | None = None,
) -> Server:
    """Apply `changed` to the current record, and write it. Raises NotFound, Conflict when other writers were always
    faster, and what `changed` raises.

    `action` is the action that users see; it is written with the change when the server has a cell. So are the
    notifications of `listener`.
    """
    for _ in range(TRIES):
        database, table, record, being_built = await _record(region, cells, ServerId(server_id))
        if record is None or record.deleted:
            raise NotFound(f"Instance {server_id} could not be found.")
        if being_built:  # its cell will have the record in a moment, and would miss a change that is written here
            await asyncio.sleep(BUILT_SOON_S)
            continue
        wanted = checked_change(record, changed(record))
        if wanted == record and action is None:
            return record
        wanted = msgspec.structs.replace(wanted, updated_at=now)
        shown = action if table is cell_servers.servers else None
        written = await database.write(
            partial(_write, table=table, before=record, server=wanted, action=shown, listener=listener)
        )
        if written is not None:
            return written
        if table is cell_servers.servers and await database.read(partial(record_transfer.is_sealed, server=record.id)):
            await asyncio.sleep(BUILT_SOON_S)  # another cell will have the record in a moment
    raise Conflict(f"Server {server_id} is changed by other requests all the time; try again later.")


def _write(
    tx: Tx, *, table: Any, before: Server, server: Server, action: Action | None, listener: ChangeListener | None
) -> Server | None:
    written = replace_server(tx, table, server, generation=before.generation)
    if written is not None and action is not None:
        actions.write(tx, action)
    if written is not None and listener is not None:
        listener(tx, CELL_OUTBOX if table is cell_servers.servers else REGION_OUTBOX, before, written)
    return written


async def _record(
    region: Database, cells: Mapping[str, Database], server: ServerId
) -> tuple[Database, Any, Server | None, bool]:
    """The database that has the record, the record, and whether it is moving from the order to a cell."""
    where = await region.read(lambda tx: region_servers.find(tx, server))
    if where is None:
        return region, region_servers.servers, None, False
    if where.cell is not None and where.cell in cells:
        record = await cells[where.cell].read(lambda tx: cell_servers.get(tx, server))
        if record is not None:
            return cells[where.cell], cell_servers.servers, record, False
    being_built = where.cell is not None and where.order is not None and where.order.vm_state is VmState.BUILDING
    return region, region_servers.servers, where.order, being_built


def with_fields(**fields: Any) -> Changed:
    """Set fields of the record."""
    return lambda server: msgspec.structs.replace(server, **fields)


def with_metadata(items: Mapping[str, str], *, whole: bool, most: CountLimit = METADATA_ITEMS_MAX) -> Changed:
    """Add to the metadata, or replace all of it (`whole`). Raises OverQuota when there would be more than `most` items."""

    def changed(server: Server) -> Server:
        after = dict(items) if whole else {**server.metadata, **items}
        check_count(after, most)
        return msgspec.structs.replace(server, metadata=after)

    return changed


def check_count(metadata: Mapping[str, str], most: CountLimit) -> None:
    """Raises OverQuota when there are more items than a server may have."""
    if over := most.excess(len(metadata), f"Maximum number of metadata items exceeds {most.limit}"):
        raise over


def without_metadata(key: str) -> Changed:
    """Remove a metadata item. Raises NotFound."""

    def changed(server: Server) -> Server:
        if key not in server.metadata:
            raise NotFound("Metadata item was not found")
        return msgspec.structs.replace(
            server, metadata={name: value for name, value in server.metadata.items() if name != key}
        )

    return changed


def with_tag(tag: str, most: int) -> Changed:
    """Add a tag. Raises Invalid when the server has `most` tags already."""

    def changed(server: Server) -> Server:
        if tag in server.tags:
            return server
        if len(server.tags) >= most:
            raise Invalid(f"The number of tags exceeded the per-server limit {most}")
        return msgspec.structs.replace(server, tags=(*server.tags, tag))

    return changed


def without_tag(tag: str) -> Changed:
    """Remove a tag. Raises NotFound."""

    def changed(server: Server) -> Server:
        if tag not in server.tags:
            raise NotFound(f"Server {server.id} has no tag '{tag}'")
        return msgspec.structs.replace(server, tags=tuple(each for each in server.tags if each != tag))

    return changed
