"""Finds servers whose record and whose numbers in the region contradict each other (RULES §26), and refuses what is asked of them.

Such a server is doubtful: one of the databases went back. Nothing of it is destroyed, started, switched off, released or deleted until
the stores agree again, or a person has decided (docs/operating/restore.md).
"""

from functools import partial

import msgspec

from moorage.model.errors import Doubtful
from moorage.model.ids import CellId, ServerId
from moorage.sql import Database
from moorage.store.cell import identity as cell_identities
from moorage.store.doubts import Doubt, doubt_of
from moorage.store.region import numbers

PAGE_ROWS = 500


class DoubtfulServer(msgspec.Struct, frozen=True):
    """One doubtful server, with the numbers that contradict each other."""

    server: ServerId
    doubt: Doubt
    record: int
    """The operation that last wrote its record."""
    known: int
    """The operation that the record should show at least, or at most; of one that was put back to the middle of an operation: the same."""


def refusal(server: ServerId, doubt: Doubt) -> Doubtful:
    """The answer to a request about it."""
    return Doubtful(
        f"Instance {server} is left alone until an administrator has decided about it: {doubt.why}.",
        private="`moorage status` lists doubtful servers; see docs/operating/restore.md",
    )


async def doubtful_in(
    region: Database, cell: CellId, database: Database, *, project: str | None = None
) -> list[DoubtfulServer]:
    """Return them in the order of their ids; of one project, or of all. Raises Unavailable when either database does not answer.

    The region is read before and after the cell: an operation may begin, write and end in between.
    """
    doubtful: list[DoubtfulServer] = []
    after = ""
    while page := await region.read(
        partial(numbers.recorded_in, cell=cell, after=after, limit=PAGE_ROWS, project=project)
    ):
        after = max(page)
        shown = await database.read(partial(cell_identities.record_numbers, ids=list(page)))
        suspects = {each: shown[each] for each in page if each in shown and _doubt(shown[each], page[each]) is not None}
        if not suspects:
            continue
        now = await region.read(partial(numbers.of, ids=list(suspects)))
        for server, record in sorted(suspects.items()):
            before, then = page[server], now.get(server)
            if then is None or then.cell != cell or then.deleted:
                continue
            if _doubt(record, before) is Doubt.RECORD_OLDER:
                doubtful.append(DoubtfulServer(server, Doubt.RECORD_OLDER, record.seq, before.recorded_seq))
            elif record.seq > then.op_seq:
                doubtful.append(DoubtfulServer(server, Doubt.REGION_OLDER, record.seq, then.op_seq))
    return doubtful


def _doubt(record: cell_identities.RecordNumber, where: numbers.ServerNumbers) -> Doubt | None:
    return doubt_of(record.seq, where, under_way=record.under_way)


__all__ = ["DoubtfulServer", "doubtful_in", "refusal"]
