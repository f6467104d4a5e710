"""Accepts records of doubtful servers as they stand, because a person has decided so (`moorage db adopt --as-recorded SERVER`).

It is the last way, for servers that no audit can settle (docs/operating/recover.md): from then on what the record does not name counts
as left over.
"""

from collections.abc import Collection

from moorage.model.errors import Invalid
from moorage.model.ids import CellId, ServerId
from moorage.operations.doubtful_servers import DoubtfulServer, doubtful_in
from moorage.sql import Database, Tx
from moorage.store.doubts import Doubt
from moorage.store.region import numbers


async def accept_records(region: Database, cell: CellId, database: Database, servers: Collection[str]) -> list[str]:
    """Let the older records of these servers count as their last operations'. Returns a line for each that was doubtful here.

    Raises Invalid for one on which an operation is under way: the operation has read what the record has lost.
    """
    named = {ServerId(each) for each in servers}
    wanted = [
        each
        for each in (await doubtful_in(region, cell, database) if named else ())
        if each.server in named and each.doubt is Doubt.RECORD_OLDER
    ]

    def work(tx: Tx) -> list[DoubtfulServer]:
        held = {id for id, each in numbers.of(tx, [each.server for each in wanted]).items() if each.held}
        for each in wanted:
            if each.server not in held:
                midway = each.record == each.known  # it does not show how the operation ended, and never will
                numbers.settled(tx, each.server, each.record - midway)
        return [each for each in wanted if each.server in held]

    if wanted and (under_way := await region.write(work)):
        named_ones = ", ".join(each.server for each in under_way)
        raise Invalid(f"an operation is under way on {named_ones}: start, let it end or be stuck, and decide then")
    return [
        f"{cell}: the record of {each.server} counts as it stands, as of operation {each.record} of {each.known}"
        for each in wanted
    ]
