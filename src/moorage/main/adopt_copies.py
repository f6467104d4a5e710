"""Records servers and hosts again that a cell's database has lost, from the copies that the region keeps (`[region] record_copies_s`).

A copy is used only if nothing shows that it is too old: the last operation that the region knows of the server wrote the record,
that operation is over, and the server's claim is on the host that the copy names.  All other servers stay missing (RULES §22): what
a later operation attached is not in the copy, and would be removed as an orphan.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from moorage.main.adopt_records import fence_of
from moorage.model.errors import Stale
from moorage.model.ids import CellId, ServerId
from moorage.model.server import VmState
from moorage.operations.doubtful_servers import doubtful_in
from moorage.operations.missing_servers import missing_in
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import EPOCHS_PER_OPERATION
from moorage.store.doubts import Doubt
from moorage.store.region import identity as region_identities
from moorage.store.region import record_copies
from moorage.store.region.placement import claim_statements
from moorage.store.region.record_copies import StoredCopy

PAGE_ROWS = 100
US = 1_000_000


async def record_again(region: Database, cell: CellId, database: Database, now_us: int) -> list[str]:
    """Record the cell's lost hosts and servers again. Returns lines that say how many there were; none if there were none.

    Hosts come first: an evacuation needs the record of the host that is down.
    """
    hosts = await region.read(partial(record_copies.hosts_of, cell=cell))
    again = 0
    for host in hosts:
        again += await database.write(partial(cell_hosts.put_again, kept=host))
    older = [each.server for each in await doubtful_in(region, cell, database) if each.doubt is Doubt.RECORD_OLDER]
    lost, recorded, oldest = sorted({*await missing_in(region, cell, database), *older}), 0, now_us
    for at in range(0, len(lost), PAGE_ROWS):
        ids = lost[at : at + PAGE_ROWS]
        for kept in await region.read(lambda tx, ids=ids: _good(tx, cell, ids)):  # type: ignore[misc]
            if await database.write(partial(_put, kept=kept)):
                recorded += 1
                oldest = min(oldest, kept.copied_at)
    lines = [f"{cell}: {again} hosts that its database had lost are recorded again"] if again else []
    if recorded:
        age_s = max(0, now_us - oldest) // US
        lines.append(
            f"{cell}: {recorded} servers that its database had lost are recorded again, from copies that the region keeps; "
            f"the oldest was made {age_s} s ago"
        )
    return lines


def _good(tx: Tx, cell: CellId, ids: Sequence[ServerId]) -> list[StoredCopy]:
    """The copies that nothing shows to be too old."""
    known = region_identities.known(tx, ids)
    return [
        each
        for each in record_copies.of_cell(tx, cell, ids)
        if not known[each.copy.server.id].busy
        and known[each.copy.server.id].seq == each.copy.server.op_epoch // EPOCHS_PER_OPERATION
        and each.copy.server.vm_state is not VmState.BUILDING
        and _is_held_there(tx, each)
    ]


def _is_held_there(tx: Tx, kept: StoredCopy) -> bool:
    server = kept.copy.server
    owner = claim_statements.owner(tx, server.id)
    return owner is None or owner.host is None or server.provider is None or owner.host == server.provider


def _put(tx: Tx, kept: StoredCopy) -> bool:
    """Write the record without a task state, for no operation works on it. False: the cell remembers a later writer."""
    server = msgspec.structs.replace(kept.copy.server, task_state=None)
    try:
        cell_servers.record(tx, server, fence_of(server))
    except Stale:
        return False
    migrations.put_all(tx, kept.copy.migrations)
    return True
