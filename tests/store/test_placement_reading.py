"""The whole cache is read table by table, into a second cache, which loses nothing that the process knows."""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.model.errors import Unavailable
from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.resources import DISABLED_TRAIT, Inventory
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice, Nested, Segment, World
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider import Provider
from moorage.placement.engine import RELOAD_AFTER_S, Engine
from moorage.placement.inventory import HostInventory
from moorage.sql import Database, Tx, open_database
from moorage.store.region.placement import change_feed, placement_metadata, tables
from moorage_testing.bench.fleet import fill


def _unranked(ask: Ask, world: World) -> Verdict:
    raise AssertionError("nothing is decided here")


def content(picture: ProviderCache) -> object:
    """All that was read, and all that a decision is told of it."""
    world = picture.world()
    return (
        {p.uuid: contents_of(p) for p in picture.providers.values()},
        {root: sorted(tree) for root, tree in picture.trees.items()},
        {world.host_ids[s]: numbers(world, s) for s in picture.slots.values()},
        {world.host_ids[s]: facts(world, s) for s in picture.slots.values()},
        {
            world.nested.ids[s]: (
                world.nested.names[s],
                world.nested.parents[s],
                world.host_ids[int(world.nested.host[s])],
                numbers(world.nested, s),
            )
            for s in range(world.nested.size)
        },
        {host: sorted(world.nested.ids[s] for s in below) for host, below in world.nested.below.items()},
        {each.id: (each.name, each.free, each.total, wired(world, each)) for each in world.segments.values()},
        {name: (group.hosts, group.home) for name, group in world.groups.items()},
    )


def contents_of(one: Provider) -> object:
    stocks = {
        name: (s.total, s.reserved, s.ratio, s.min_unit, s.max_unit, s.step, s.cap, s.used)
        for name, s in one.stocks.items()
    }
    return one.name, one.parent, one.root, one.generation, one.updated_at, one.traits, one.aggregates, stocks


def numbers(columns: World | Nested, slot: int) -> object:
    given = [name for name in columns.capacity if columns.capacity[name][slot]]
    units = columns.units
    amounts = {name: (int(columns.free[name][slot]), int(columns.capacity[name][slot])) for name in given}
    portions = {n: [int(c[slot]) for c in (units[n].minimum, units[n].maximum, units[n].step)] for n in given}
    traits = {t for t, bit in columns.trait_bits.items() if int(columns.trait_bitmap[bit // 64, slot]) >> bit % 64 & 1}
    return amounts, portions, traits


def facts(world: World, slot: int) -> object:
    masks = world.present, world.enabled, world.alive, world.physnets_known
    if not world.present[slot]:
        return world.names[slot], [bool(mask[slot]) for mask in masks]
    physnets = {name for name, mask in world.physnets.items() if mask[slot]}
    place = world.zone_names[world.zone[slot]], world.cell_names[world.cell[slot]], int(world.level[slot])
    return world.names[slot], world.nodes[slot], place, physnets, [bool(mask[slot]) for mask in masks]


def wired(world: World, segment: Segment) -> set[str]:
    return {world.host_ids[int(slot)] for slot in segment.wired.nonzero()[0]}


def random_fleet(tx: Tx, dice: random.Random) -> None:
    """Trees of every form: of one and of many, with and without inventories, traits, aggregates and facts."""
    put = {
        name: list[dict[str, object]]()
        for name in ("providers", "inventories", "provider_traits", "provider_aggregates", "placement_hosts")
    }
    roots: list[tuple[str, list[str]]] = []
    for number in range(40):
        uuid, parent, root = f"{dice.getrandbits(32):08x}-{number}", None, None
        if roots and dice.random() < 0.6:
            root, tree = dice.choice(roots)
            parent = dice.choice(tree)
            tree.append(uuid)
        else:
            roots.append((uuid, [uuid]))
        generation, version, updated_at = (dice.randrange(1 << 40) for _ in range(3))
        stamps = {"generation": generation, "changed": 1, "version": version, "updated_at": updated_at}
        put["providers"].append({"uuid": uuid, "name": f"n{number}", "parent": parent, "root": root or uuid, **stamps})
        for resource in dice.sample(["VCPU", "IPV4_ADDRESS", "CUSTOM_A", "CUSTOM_B"], dice.randrange(4)):
            total, reserved = dice.choice((0, 3, 8, 2_147_483_647)), dice.randrange(2)
            portions = {"min_unit": dice.choice((1, 1, 2)), "max_unit": dice.choice((1, 4, 2_147_483_647))}
            used = {"used": dice.choice((0, 1, 7)), "changed": 1, "version": dice.randrange(1 << 40)}
            each = {"total": total, "reserved": reserved, "ratio": dice.choice((1.0, 16.0)), **portions, **used}
            cap = int((total - reserved) * each["ratio"])
            put["inventories"].append({"provider": uuid, "class": resource, "step": 1 + reserved, "cap": cap, **each})
        for trait in dice.sample([*(f"CUSTOM_{n}" for n in range(70)), DISABLED_TRAIT], dice.choice((0, 1, 40))):
            put["provider_traits"].append({"provider": uuid, "trait": trait})
        for aggregate in dice.sample(["a", "b", "c"], dice.choice((0, 0, 1, 2))):
            put["provider_aggregates"].append({"provider": uuid, "aggregate": aggregate})
        if root is None and dice.random() < 0.7:
            where = {"node": f"n{dice.randrange(2)}", "cell": dice.choice(["c1", "c2"]), "zone": dice.choice("xy")}
            contents_of = {"physnets": dice.choice((None, "", "p1", "p1,p2")), "level": dice.randrange(5), **where}
            put["placement_hosts"].append({"provider": uuid, "host": f"n{number}", **contents_of})
    for name, rows in put.items():
        for row in rows:  # one by one: parents before children
            tx.run(sa.insert(placement_metadata.tables[name]), row)
    for table, more in (("group_hosts", {"host": roots[0][0], "n": 2}), ("group_homes", {"home": "h", "members": 1})):
        tx.run(sa.insert(placement_metadata.tables[table]), {"server_group": "g", "changed": 1, **more})


@pytest.mark.parametrize("seed", range(4))
async def test_a_bulk_load_equals_single_updates(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A few rows at a time, in the order in which they lie, make the picture that a provider at a time makes."""
    await database.create(placement_metadata)
    await database.write(lambda tx: random_fleet(tx, random.Random(seed)))
    monkeypatch.setattr(change_feed, "ROWS_AT_ONCE", 7)
    engine = Engine(database, _unranked, every_s=3600)
    database.meter.reset()
    await engine.start()
    assert sum(database.meter.statements.values()) <= 9  # however many rows there are
    one_by_one = ProviderCache()
    one_by_one.apply(await database.read(change_feed.since))
    assert content(engine.picture) == content(one_by_one)
    assert len(engine.picture.providers) == len(one_by_one.providers) == 40
    assert len(engine.picture.trees) == len(one_by_one.trees)
    one = next(p for p in engine.picture.providers.values() if p.parent is not None)
    assert one.root is engine.picture.providers[one.root].root  # one text for all of a tree
    await engine.close()


async def _report(url: str, report: HostInventory) -> HostId:
    database = await open_database(url, name="region")
    engine = Engine(database, _unranked, every_s=3600)
    host = await engine.report_host(report)
    await engine.close()
    await database.close()
    return host


@pytest.mark.postgres
async def test_changes_during_a_bulk_load_are_read_afterwards(postgres_url: str) -> None:
    """Rows of a provider that was not there when the providers were looked at say nothing; catch-up reads all of it."""
    database, looked = await open_database(postgres_url, name="region"), change_feed.Everything.stocks
    await database.create(placement_metadata)
    amounts, came = {"VCPU": Inventory(8)}, list[HostId]()
    await _report(postgres_url, HostInventory(host="h1", cell=CellId("c"), inventories=amounts))
    report = HostInventory(host="h2", cell=CellId("c"), inventories=amounts, traits=("COMPUTE_NODE",))

    def stocks(self: change_feed.Everything) -> Iterator[change_feed.Plain]:
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
            patch.setattr(change_feed.Everything, "stocks", looked)  # the other one reads, too
            came.append(pool.submit(asyncio.run, _report(postgres_url, report)).result())
        yield from looked(self)

    engine = Engine(database, _unranked, every_s=3600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_feed.Everything, "stocks", stocks)
        await engine.start()
    assert [p.name for p in engine.picture.providers.values()] == ["h1"]
    await engine.catch_up()
    assert engine.picture.providers[ProviderId(came[0])].stocks["VCPU"].cap == 8
    assert engine.picture.providers[ProviderId(came[0])].traits == {"COMPUTE_NODE"}
    assert engine.host_named("h2") == came[0]
    await engine.close()
    await database.close()


async def test_a_second_load_loses_nothing(database: Database) -> None:
    await database.create(placement_metadata)
    now = [0.0]
    engine = Engine(database, _unranked, every_s=3600, clock=lambda: now[0])
    await engine.start()
    amounts = {"VCPU": Inventory(8)}
    host = await engine.report_host(HostInventory(host="h1", cell=CellId("c"), inventories=amounts))
    await engine.report_host(HostInventory(host="h2", cell=CellId("c"), inventories=amounts))
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


async def test_everything_is_loaded_again_when_much_is_wasted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.create(placement_metadata)
    monkeypatch.setattr("moorage.placement.cache.cache.WASTE_MIN", 2)
    engine = Engine(database, _unranked, every_s=3600)
    await engine.start()
    first, host = engine.picture, HostId("")
    for total in range(8, 12):
        report = HostInventory(host="h1", cell=CellId("c"), inventories={"VCPU": Inventory(total)})
        host = await engine.report_host(report)
        assert int(engine.world().capacity["VCPU"][engine.world().slots[host]]) == total
    await engine.catch_up()
    assert engine.picture is not first
    assert engine.picture.rows.waste == 0
    assert int(engine.world().capacity["VCPU"][engine.world().slots[host]]) == 11
    await engine.close()


@pytest.mark.postgres
async def test_changes_are_found_without_table_scans(postgres_url: str) -> None:
    """Several times a second, however large the fleet: as PostgreSQL plans it when it does not know the horizon."""
    database = await open_database(postgres_url, name="region")
    await database.create(placement_metadata)
    await database.write(lambda tx: fill(tx, 2_000))

    def plans(tx: Tx) -> str:
        tx.run(sa.text("SET LOCAL plan_cache_mode = force_generic_plan"))
        contents_of: list[str] = []
        columns = sa.text("1")
        for number, table in enumerate((None, tables.providers, tables.inventories)):
            fresh = change_feed._NEWS.numbered
            if table is not None:
                chosen = sa.select(columns).select_from(table).where(change_feed._fresh(table)).params(b_horizon=7)
                compiled = str(chosen.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}))
                fresh = compiled.replace("7", "$1", 1)
            tx.run(sa.text(f"PREPARE news_{number}(bigint) AS {fresh.replace(':', chr(92) + ':')}"))
            contents_of += [row[0] for row in tx.rows(sa.text(f"EXPLAIN EXECUTE news_{number}(999999)"))]
        return "\n".join(contents_of)

    plan = await database.write(plans)
    assert "ix_inventories_changed" in plan
    assert "ix_providers_changed" in plan
    assert "Seq Scan" not in plan, plan
    await database.close()


async def test_an_engine_closes_after_a_failed_round(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops while the database is out has more to close."""
    await database.create(placement_metadata)
    engine = Engine(database, _unranked, every_s=3600)
    await engine.start()

    async def out(work: object) -> None:
        raise Unavailable("it is out")

    monkeypatch.setattr(database, "read", out)
    with pytest.raises(Unavailable):
        await engine.catch_up()
    await engine.close()
