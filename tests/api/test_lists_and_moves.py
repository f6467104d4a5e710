"""A server that moves into another cell is in every answer exactly once.

Each request is made while the move goes on between any two of its reads of databases, by one step, by several, or there and back; and from every point of the move on.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.api.test_hosts import settle
from tests.helpers.moving_server import CELLS, HERE, ID, OPERATION, OTHERS, STEPS, VOLUME, Moving, mover, moving, shown

from moorage.api.metadata.servers import GuestLookup, MetadataSettings
from moorage.model.clock import SystemClock
from moorage.model.errors import Problem
from moorage.model.server import VmState
from moorage.operations import shown_records
from moorage.operations.records import servers as nouns
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import hidden_records
from moorage_testing.compute_app import ADMIN, MEMBER
from moorage_testing.fake_server_service import a_server

__all__ = ["moving"]


PARTS = ((0, 3), (3, 2), (6, 3), (9, 2))
"""(how far it is, so many steps): a second record comes to be; the other one is shown, and the first is removed; there, and back."""
Question = Callable[["Moving"], Awaitable[None]]


# --------------------------------------------------------------------------------------------------- the questions


DELETED = "/servers?deleted=true&all_tenants=1"
ALL = {a_server(n).id for n in (*OTHERS, HERE)}


async def in_lists(moving: Moving) -> None:
    assert sorted(await moving.ids("/servers")) == sorted(ALL)


async def in_pages(moving: Moving) -> None:
    """From the newest to the oldest, three at a time: the server is the first of a page, where a second row of it is not behind the marker."""
    found: list[str] = []
    while page := await moving.ids(f"/servers/detail?limit=3{f'&marker={found[-1]}' if found else ''}"):
        assert len(page) == 3 or len(found) == 6, (found, page)
        found += page
    assert found == sorted(ALL, reverse=True)


async def by_marker(moving: Moving) -> None:
    """It is the marker itself."""
    found = await moving.ids(f"/servers?limit=3&marker={ID}&sort_key=display_name&sort_dir=asc")
    assert found == [a_server(n).id for n in (5, 6, 7)]


async def by_filters(moving: Moving) -> None:
    assert await moving.ids("/servers?name=web4&status=ACTIVE&limit=1") == [ID]


async def on_the_host_that_it_leaves(moving: Moving) -> None:
    """A page is full though the server is not on it any more."""
    found = await moving.ids("/servers?host=host-cell1&limit=2&all_tenants=1", by=ADMIN)
    assert found in [[a_server(6).id, a_server(n).id] for n in (3, HERE)]


async def by_tags_and_changes(moving: Moving) -> None:
    assert await moving.ids("/servers?tags=moves&changes-since=2000-01-01T00:00:00Z") == [ID]


async def not_among_the_deleted(moving: Moving) -> None:
    assert await moving.ids(DELETED, by=ADMIN) == []


async def with_its_actions(moving: Moving) -> None:
    answer = await moving.get(f"/servers/{ID}/os-instance-actions", by=MEMBER)
    assert [row["action"] for row in answer.json()["instanceActions"]] == ["create"]


async def in_migrations(moving: Moving) -> None:
    answer = await moving.get(f"/os-migrations?instance_uuid={ID}", at="latest")
    assert [row["uuid"][-1] for row in answer.json()["migrations"]] == ["5", "3"]


async def in_pages_of_migrations(moving: Moving) -> None:
    found: list[str] = []
    while True:
        marker = f"&marker={found[-1]}" if found else ""
        rows = (await moving.get(f"/os-migrations?limit=2{marker}", at="latest")).json()["migrations"]
        if not rows:
            break
        found += [row["uuid"] for row in rows]
    assert len(found) == len(set(found)) == 6
    assert [each[-1] for each in found if each.startswith("1000")] == ["5", "3"]


async def in_usage(moving: Moving) -> None:
    span = "start=2026-01-01T00:00:00&end=2026-01-02T00:00:00"
    answer = await moving.get(f"/os-simple-tenant-usage/{'2' * 32}?{span}", at="latest")
    assert sorted(row["instance_id"] for row in answer.json()["tenant_usage"]["server_usages"]) == sorted(ALL)


async def in_pages_of_usage(moving: Moving) -> None:
    found: list[str] = []
    while True:
        span = f"start=2026-01-01T00:00:00&end=2026-01-02T00:00:00&limit=2&marker={found[-1] if found else ''}"
        usage = (await moving.get(f"/os-simple-tenant-usage/{'2' * 32}?{span}", at="latest")).json()["tenant_usage"]
        if not usage:
            break
        found += [row["instance_id"] for row in usage["server_usages"]]
    assert found == sorted(ALL)


async def in_the_users_quota(moving: Moving) -> None:
    answer = await moving.get(f"/os-quota-sets/{'2' * 32}/detail?user_id={'1' * 32}", at="latest")
    assert answer.json()["quota_set"]["cores"]["in_use"] == len(ALL)


async def with_its_volume(moving: Moving) -> None:
    body = {"snapshot": {"volume_id": VOLUME, "create_info": {"snapshot_id": "s", "type": "qcow2", "new_file": "f"}}}
    answer = await moving.ask("POST", "/os-assisted-volume-snapshots", body)
    assert answer.status_code == 200, answer.text


async def to_its_own_guest(moving: Moving) -> None:
    region, cells = moving.context.region, moving.context.cells
    assert cells is not None

    async def no_network(network: str) -> Any:
        raise AssertionError(network)

    guests = GuestLookup(region, cells, MetadataSettings(kept_s=-1), SystemClock(), network=no_network)
    for _ in range(2):  # known before, and remembered
        found = await guests.server(ID)
        assert found is not None
        assert found.id == ID


async def to_an_operation(moving: Moving) -> None:
    class Rooms:
        region = moving.context.region
        cells = moving.context.cells  # type: ignore[union-attr]

    found = await records.find(Rooms, ID)  # type: ignore[arg-type]
    assert found.server is not None
    assert found.missing_in is None


QUESTIONS: tuple[Question, ...] = (
    in_lists,
    in_pages,
    by_marker,
    by_filters,
    on_the_host_that_it_leaves,
    by_tags_and_changes,
    not_among_the_deleted,
    shown,
    with_its_actions,
    in_migrations,
    in_pages_of_migrations,
    in_usage,
    in_pages_of_usage,
    in_the_users_quota,
    with_its_volume,
    to_its_own_guest,
    to_an_operation,
)
LONG = (in_pages, in_pages_of_migrations, in_pages_of_usage, in_the_users_quota)
"""They read often: what matters most is enough."""


def scripts(reads: int, *, short: bool) -> Iterator[tuple[int, dict[int, int]]]:
    """(how far the move is, what happens before which read): the move goes on by a step, by all, and there and back."""
    for at in range(reads):
        for begin, steps in PARTS[:2] if short else (*PARTS, (3, 1), (9, 1), (0, STEPS), (3, 2 * STEPS)):
            yield begin, {at: steps}
        if not short:
            yield 0, dict.fromkeys(range(at, at + STEPS), 1)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.__name__)
async def test_a_moving_server_is_in_every_answer_exactly_once(question: Question, moving: Moving) -> None:
    moving.reads = 0
    await question(moving)
    reads = moving.reads
    assert reads >= 2, "nothing could happen in between"
    for begin, steps_at in scripts(reads, short=question in LONG):
        moving.steps_at = {}
        await moving.to(begin)
        moving.steps_at, moving.reads, before = steps_at, 0, moving.done
        try:
            await question(moving)
        except (AssertionError, Problem) as wrong:
            raise AssertionError(f"from step {begin} on, by {steps_at}: {wrong}") from wrong
        assert moving.done > before, (begin, steps_at, "nothing happened")
    assert moving.done > 4 * STEPS


async def test_the_record_of_the_regions_cell_is_shown(moving: Moving) -> None:
    """Rows of lists are kept as they were written: the copy is another row, though nobody wrote to it since the seal."""
    for done in range(2 * STEPS):
        await moving.to(done)
        host = f"host-{CELLS[0 if done < 4 or done >= 10 else 1]}"
        for path in ("/servers/detail?name=web4&all_tenants=1", f"/servers/{ID}"):
            body = (await moving.get(path, at="latest")).json()
            row = body["servers"][0] if "servers" in body else body["server"]
            assert row["OS-EXT-SRV-ATTR:host"] == host, (done, path)


async def test_writes_during_a_move_are_in_the_record_shown_afterwards(moving: Moving) -> None:
    """A tag is put, and one taken away, from every place of the move on, which goes on by a step whenever somebody reads."""
    for number, begin in enumerate((*range(STEPS), *range(STEPS))):
        moving.steps_at = {}
        await moving.to(begin + STEPS * (number // STEPS))
        moving.steps_at, moving.reads = dict.fromkeys(range(number // STEPS, 100), 1), 0
        answer = await moving.ask("PUT", f"/servers/{ID}/tags/tag{number}", at="latest", by=MEMBER)
        assert answer.status_code == 201, (begin, answer.text)
        moving.steps_at = {}
        await moving.to(0)
        tags = (await moving.get(f"/servers/{ID}/tags", at="latest", by=MEMBER)).json()["tags"]
        assert f"tag{number}" in tags, begin
        assert (
            await moving.ask("DELETE", f"/servers/{ID}/tags/tag{number}", at="latest", by=MEMBER)
        ).status_code == 204


async def test_a_write_waits_for_the_flip_up_to_a_limit(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nouns, "BUILT_SOON_S", 0.001)
    await moving.to(2)
    answer = await moving.ask("PUT", f"/servers/{ID}/tags/late", at="latest", by=MEMBER)
    assert answer.status_code == 409
    await moving.to(0)
    assert (await moving.get(f"/servers/{ID}/tags", at="latest", by=MEMBER)).json()["tags"] == ["moves"]


async def test_host_lists_contain_a_moving_server_once(moving: Moving) -> None:
    """On the host where it is shown to be, and on no other."""
    for name in CELLS:
        await settle(moving, moving.cells, f"host-{name}", name)

    async def once(moving: Moving) -> None:
        rows = (await moving.get("/os-hypervisors/detail?with_servers=true", at="latest")).json()["hypervisors"]
        assert sum(each["uuid"] == ID for row in rows for each in row["servers"]) == 1, rows

    await once(moving)
    reads = moving.reads
    for at in range(reads):
        for begin, steps in PARTS:
            moving.steps_at = {}
            await moving.to(begin)
            moving.steps_at, moving.reads = {at: steps}, 0
            await once(moving)
    moving.steps_at = {}
    await moving.to(4)
    for name, cores in ((CELLS[0], 3), (CELLS[1], 4)):
        body = (await moving.get(f"/os-hosts/host-{name}", at="2.42")).json()["host"]
        assert [row["resource"]["cpu"] for row in body if row["resource"]["project"] == "(used_max)"] == [cores]


async def test_with_a_cell_down_a_moving_server_is_listed_once(moving: Moving) -> None:
    """Of the servers that the region has there, what the region knows is shown: not of one that is shown elsewhere by then."""

    async def once(moving: Moving) -> None:
        for path in ("/servers/detail", "/servers?limit=7"):
            found = await moving.ids(path)
            assert sorted(found) == sorted(ALL)

    for name in CELLS:
        moving.out = {name}
        moving.reads = 0
        await once(moving)
        reads = moving.reads
        for at in range(reads):
            for begin, steps in PARTS:
                moving.steps_at = {}
                await moving.to(begin)
                moving.steps_at, moving.reads = {at: steps}, 0
                await once(moving)


async def test_a_deleted_server_is_deleted_though_an_older_record_remains(moving: Moving) -> None:
    await moving.to(4)
    gone = msgspec.structs.replace(mover(), cell=CELLS[1], vm_state=VmState.DELETED, deleted_at=2_000_000_000_000_000)
    await moving.cells[CELLS[1]].write(lambda tx: cell_servers.record(tx, gone, Fence(OPERATION, 3, 0, 0)))
    rest = sorted(ALL - {ID})
    assert sorted(await moving.ids("/servers")) == rest
    assert await moving.ids(DELETED, by=ADMIN) == [ID]
    assert sorted(await moving.ids("/servers?changes-since=2020-01-01T00:00:00Z")) == sorted(ALL)
    assert (await moving.get(f"/servers/{ID}")).status_code == 404
    await moving.cells[CELLS[0]].write(lambda tx: record_transfer.remove_record(tx, ID, Fence(OPERATION, 3, 0, 1)))
    assert await moving.ids(DELETED, by=ADMIN) == [ID]


async def test_many_hidden_records_are_filtered_from_a_cells_list(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell is told so many only; of more, its page is longer."""
    monkeypatch.setattr(shown_records, "WITHOUT_MAX", 1)
    hidden = [a_server(n).id for n in (1, 3)]

    def hide(tx: Tx) -> None:
        for each in hidden:
            hidden_records.open_row(tx, each, CELLS[0])

    await moving.region.write(hide)
    assert set(await moving.ids("/servers")) == ALL - set(hidden)
    assert await moving.ids("/servers?limit=2&sort_key=display_name&sort_dir=asc") == [a_server(2).id, ID]


async def test_a_list_over_two_cells_reads_the_region_once_more(moving: Moving) -> None:
    """Statements and reads of a page: the region's, and one a cell."""
    costs = []
    two = moving.context.cells
    assert two is not None
    for cells in (dict(list(two.items())[:1]), two):
        moving.context.cells = cells
        moving.reads = 0
        for each in (moving.region, *moving.cells.values()):
            each.meter.reset()
        await moving.ids("/servers")
        statements = [sum(each.meter.statements.values()) for each in (moving.region, *moving.cells.values())]
        costs.append((moving.reads, statements))
    moving.context.cells = two
    assert costs == [(2, [2, 1, 0]), (4, [4, 1, 1])]
