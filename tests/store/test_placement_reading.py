"""Reading everything: page by page, into a picture beside the one in use, which loses nothing of what the process knows."""

import pytest

from moorage.model.ids import CellId, ProviderId
from moorage.model.resources import Inventory
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice, World
from moorage.placement.engine import RELOAD_AFTER_S, Engine
from moorage.placement.inventory import HostReport
from moorage.placement.world import Picture
from moorage.sql import Database
from moorage.store.region.placement import changes, placement_metadata
from moorage.testing.bench.fleet import NESTED, fill


def _unranked(ask: Ask, world: World) -> Verdict:
    raise AssertionError("nothing is decided here")


def content(picture: Picture) -> object:
    """All that was read."""
    world = picture.world()
    return (
        {
            p.uuid: (p.name, p.parent, p.root, p.traits, {n: (s.cap, s.used) for n, s in p.stocks.items()})
            for p in picture.providers.values()
        },
        {root: sorted(tree) for root, tree in picture.trees.items()},
        sorted((world.names[s], world.cell_names[world.cell[s]]) for s in picture.slots.values()),
        {
            uuid: {c: int(world.free[c][slot]) for c in world.free if world.capacity[c][slot]}
            for uuid, slot in picture.slots.items()
        },
    )


async def test_pages_make_the_same_picture(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await database.create(placement_metadata)
    await database.write(lambda tx: fill(tx, 9, NESTED))
    whole = Engine(database, _unranked, every_s=3600)
    await whole.start()
    assert len(whole.picture.providers) == 63
    monkeypatch.setattr(changes, "PROVIDERS_PER_PAGE", 7)  # the last page is empty
    database.meter.reset()
    paged = Engine(database, _unranked, every_s=3600)
    await paged.start()
    assert sum(database.meter.statements.values()) > 9 * 5
    assert content(paged.picture) == content(whole.picture)
    one = next(p for p in paged.picture.providers.values() if p.parent is not None)
    assert one.root is paged.picture.providers[one.root].root  # one text for all of a tree
    for engine in (whole, paged):
        await engine.close()


async def test_a_second_reading_loses_nothing(database: Database) -> None:
    await database.create(placement_metadata)
    now = [0.0]
    engine = Engine(database, _unranked, every_s=3600, clock=lambda: now[0])
    await engine.start()
    amounts = {"VCPU": Inventory(8)}
    host = await engine.report_host(HostReport(host="h1", cell=CellId("c"), inventories=amounts))
    await engine.report_host(HostReport(host="h2", cell=CellId("c"), inventories=amounts))
    engine.set_alive("h2", False)
    engine.set_host_aggregates([("a", {"k": "v"}, ["h1"])])
    before = engine.picture
    with engine.holding(Choice(host, "h1", CellId("c")), Ask(resources={"VCPU": 3})):
        now[0] += RELOAD_AFTER_S + 1
        await engine.catch_up()
        assert engine.picture is not before
        world = engine.world()
        slot = world.slots[host]
        assert int(world.free["VCPU"][slot]) == 5
        assert [bool(world.alive[world.slots_by_name[name]]) for name in ("h1", "h2")] == [True, False]
        assert [(a.name, bool(a.hosts[slot])) for a in world.aggregates] == [("a", True)]
    assert int(engine.world().free["VCPU"][slot]) == 8
    assert engine.picture.providers[ProviderId(host)].stocks["VCPU"].used == 0
    await engine.close()
