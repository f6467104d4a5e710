"""Finds servers that the region lists in a cell whose database does not have them (RULES §22). They are reported, not
changed.
"""

from moorage.model.ids import CellId, ServerId
from moorage.sql import Database
from moorage.store.cell import identity as cell_identities
from moorage.store.region import identity as region_identities

PAGE_ROWS = 500


async def missing_in(
    region: Database, cell: CellId, database: Database, *, project: str | None = None
) -> list[ServerId]:
    """Return them in the order of their ids; of one project, or of all. Raises Unavailable when either database does
    not answer.
    """
    missing: list[ServerId] = []
    after = ""
    while page := await region.read(
        lambda tx, after=after: region_identities.placed_in(tx, cell, after, PAGE_ROWS, project)  # type: ignore[misc]
    ):
        after = page[-1]
        present = await database.read(lambda tx, page=page: cell_identities.recorded(tx, page))  # type: ignore[misc]
        missing += [each for each in page if each not in present]
    return missing
