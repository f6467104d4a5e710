"""The rows of approved and waiting hosts: one key for one host, and a limit of requests."""

import pytest

from moorage.main.schemas import REGION
from moorage.model.ids import CellId
from moorage.placement.inventory import HostInventory, report_host
from moorage.sql import Database
from moorage.sql.migrate import migrate, upgrade
from moorage.store.region import host_approvals
from moorage.store.region.host_approvals import WAITING_MAX
from moorage.store.region.placement.tables import placement_metadata
from moorage.store.region.tables import region_metadata

C1, C2 = CellId("c1"), CellId("c2")
KEY = "U" + "A" * 55


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(region_metadata)
    return database


async def test_a_key_belongs_to_one_host(region: Database) -> None:
    def approve(host: str, cell: CellId, now: int, key: str | None = KEY) -> object:
        return region.write(lambda tx: host_approvals.approve(tx, host, cell, key, now, "op"))

    assert await approve("h1", C1, 10) is None  # type: ignore[misc]
    assert await approve("h2", C1, 11) == "h1"  # type: ignore[misc]
    assert await region.read(lambda tx: host_approvals.get(tx, "h2")) is None
    assert await approve("h1", C2, 12) is None  # type: ignore[misc]
    assert await approve("h3", C2, 5, None) is None  # type: ignore[misc]
    assert await region.read(host_approvals.approved) == {"h1": C2, "h3": C2}
    assert [(each.host, each.cell, each.key) for each in await region.read(host_approvals.keys)] == [("h1", C2, KEY)]


async def test_the_number_of_approvals_is_limited(region: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_approvals, "APPROVED_MAX", 2)
    listed = [
        await region.write(lambda tx, host=host: host_approvals.approve(tx, host, C1, None, 1, "op"))  # type: ignore[misc]
        for host in ("h1", "h2", "h3", "h1")
    ]
    assert listed == [None, None, "", None]


async def test_every_change_of_approvals_changes_the_counts(region: Database) -> None:
    """Also by a clock that goes back."""
    seen = [await region.read(host_approvals.counted)]
    for host, now in (("h1", 100), ("h2", 50), ("h1", 50)):
        await region.write(lambda tx, host=host, now=now: host_approvals.approve(tx, host, C1, None, now, "op"))  # type: ignore[misc]
        seen.append(await region.read(host_approvals.counted))
    assert await region.write(lambda tx: host_approvals.revoke(tx, "h1"))
    seen.append(await region.read(host_approvals.counted))
    await region.write(lambda tx: host_approvals.record_waiting(tx, {"h9": C1}, 1))
    assert len(set(map(str, seen))) == len(seen)
    assert await region.read(host_approvals.counted) == seen[-1], "who waits changes nothing"
    assert not await region.write(lambda tx: host_approvals.revoke(tx, "h1"))


async def test_waiting_hosts_do_not_change_approvals_and_are_limited(region: Database) -> None:
    await region.write(lambda tx: host_approvals.approve(tx, "h1", C1, None, 1, "op"))
    await region.write(lambda tx: host_approvals.record_waiting(tx, {"h1": C2, "w": C2}, 2))
    for number in range(3):
        many = {f"n{number}-{each:04}": C1 for each in range(WAITING_MAX // 2)}
        await region.write(lambda tx, many=many, number=number: host_approvals.record_waiting(tx, many, 3 + number))  # type: ignore[misc]
    rows = await region.read(host_approvals.listed)
    waiting = [each.host for each in rows if each.approved_at is None]
    assert len(waiting) == WAITING_MAX
    assert "w" not in waiting, "heard longest ago"
    assert [(each.host, each.cell) for each in rows if each.approved_at is not None] == [("h1", C1)]
    assert rows[-1].host == "h1", "those that wait come first"


async def test_existing_hosts_of_an_upgraded_region_are_approved(database: Database) -> None:
    await database.alter(lambda connection: upgrade(connection, REGION, "0015"))
    await database.create(placement_metadata)
    for host, node, cell in (("h1", "n1", C1), ("h2", "n2", C2)):
        told = HostInventory(host=host, node=node, cell=cell, inventories={})
        await database.write(lambda tx, told=told: report_host(tx, told))  # type: ignore[misc]
    await migrate(database, REGION)
    assert await database.read(host_approvals.approved) == {"h1": C1, "h2": C2}
    assert {each.approved_by for each in await database.read(host_approvals.listed)} == {"upgrade"}
