"""Each reason to refuse a database, alone: no other check would have found it."""

from typing import cast

import pytest

from moorage.main.adopt import check_adoptable
from moorage.main.store_consistency import CellSeen, RegionSeen, refusal
from moorage.main.store_watch import _Watched
from moorage.model.errors import Invalid
from moorage.model.ids import CellId
from moorage.sql import Database
from moorage.store.cell.identity import CellIdentity
from moorage.store.region.identity import KnownCell, RegionIdentity

ONE, TWO = CellId("cell1"), CellId("cell2")
REGION = RegionSeen(True, RegionIdentity("r", 3, 50), {ONE: KnownCell("c", 10)})


def cell(
    uuid: str = "c", epoch: int = 3, mark: int = 10, name: CellId = ONE, region: str = "r", of: int = 50
) -> CellSeen:
    return CellSeen(True, CellIdentity(uuid, epoch, mark, name, region, of))


def test_matching_databases_are_accepted() -> None:
    assert refusal(REGION, {ONE: cell()}) is None
    assert refusal(REGION, {ONE: cell(mark=11, of=49)}) is None


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (cell(uuid="other"), "is another one"),
        (cell(region="s"), "belongs to region s"),
        (cell(name=TWO), "is that of cell2"),
        (cell(epoch=2), "the database of cell1 is from before the last restore"),
        (cell(epoch=4), "the region database is from before the last restore"),
        (cell(mark=9), "cell1 is older than the region remembers it"),
        (cell(of=51), "the region database is older than cell1 remembers it"),
        (CellSeen(True), "has no identity"),
        (CellSeen(False), "is empty"),
    ],
)
def test_each_reason_to_refuse_databases(seen: CellSeen, says: str) -> None:
    assert says in (refusal(REGION, {ONE: seen}) or "")


@pytest.mark.parametrize(
    ("region", "seen", "says"),
    [
        (RegionSeen(False), cell(), "the region database is empty"),
        (REGION, cell(name=TWO), "is that of cell2"),
        (REGION, cell(region="s"), "belongs to another region"),
        (REGION, CellSeen(False), "is empty"),
    ],
)
def test_a_mismatch_without_a_restore_is_not_adopted(region: RegionSeen, seen: CellSeen, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        check_adoptable(region, {ONE: seen}, frozenset())


def test_a_lost_cell_is_adopted_by_name() -> None:
    check_adoptable(REGION, {ONE: CellSeen(False)}, frozenset({"cell1"}))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "another one"),
        (("other", 3, 50), "another one"),
        (("r", 4, 50), "was restored and adopted"),
        (("r", 3, 49), "is older than it was"),
    ],
)
def test_a_reconnected_database_is_compared_with_the_earlier_one(found: tuple[str, int, int] | None, says: str) -> None:
    class Named:
        name, barred = "region", ""

    watched = _Watched(cast("Database", Named()), "r", 3, 50)
    assert watched.fault(("r", 3, 50)) is None
    assert says in (watched.fault(found) or "")
