"""Claims on devices below hosts: never more than one device has, with concurrent claims; and the choice is what is held."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import sqlalchemy as sa

from moorage.model.ids import CellId, ProviderId, new_uuid
from moorage.model.request_groups import SRIOV_NET_VF, RequestGroup, VirtualFunction, function_group
from moorage.model.resources import Inventory
from moorage.model.verdict import Claimed, Shortage
from moorage.model.world import Ask, Choice
from moorage.placement.engine import Engine
from moorage.placement.inventory import DeviceReport, HostInventory
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx
from moorage.store.region.placement import placement_metadata, virtual_functions
from moorage.store.region.placement.claim_statements import Owner, drift
from moorage.store.region.placement.tables import allocations, inventories

EGR, PPS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC"
WIRE = "CUSTOM_PHYSNET_A"
KBPS, KPPS, EACH_KBPS, EACH_KPPS = 1_000, 40, 300, 5
HOSTS, BRIDGES, TURNS, RIVALS = 2, 2, 6, 24
HOLD = 0.6
"""How often a rival keeps what it got."""


def devices(host: str) -> list[DeviceReport]:
    agent = ProviderId(f"{host}-agent")
    bridges = [
        DeviceReport(
            hypervisor=host,
            id=ProviderId(f"{host}-br{n}"),
            name=f"{host}:agent:br{n}",
            parent=agent,
            inventories={EGR: Inventory(KBPS)},
            traits=(WIRE,),
        )
        for n in range(BRIDGES)
    ]
    return [
        DeviceReport(hypervisor=host, id=agent, name=f"{host}:agent", inventories={PPS: Inventory(KPPS)}),
        *bridges,
    ]


def ask_of(dice: random.Random) -> Ask:
    """One port or two, each with bandwidth and packets that belong together."""
    ports = range(dice.randint(1, 2))
    groups = [RequestGroup(f"bw{n}", {EGR: EACH_KBPS}, (WIRE,), port=f"{n}") for n in ports]
    groups += [RequestGroup(f"pps{n}", {PPS: EACH_KPPS}, port=f"{n}") for n in ports]
    together = tuple((f"bw{n}", f"pps{n}") for n in ports)
    return Ask(resources={"VCPU": 1}, groups=tuple(groups), same_subtree=together, seed=dice.getrandbits(32))


@asynccontextmanager
async def two_engines(database: Database) -> AsyncIterator[list[Engine]]:
    """Two processes' worth: each with a picture of its own."""
    await database.create(placement_metadata)
    async with AsyncExitStack() as stack:
        engines = [Engine(database, partial(rank, profile=Profile())) for _ in range(2)]
        for engine in engines:
            await engine.start()
            stack.push_async_callback(engine.close)
        for host in (f"h{n}" for n in range(HOSTS)):
            await engines[0].report_host(
                HostInventory(host=host, cell=CellId("c"), inventories={"VCPU": Inventory(100)})
            )
            await engines[0].report_devices(devices(host))
        await engines[1].catch_up()
        yield engines


async def claim(engine: Engine, database: Database, consumer: str, choice: Choice, ask: Ask) -> Claimed | Shortage:
    def work(tx: Tx) -> Claimed | Shortage:
        answer = engine.claim(tx, Owner(consumer, "p", "u", operation="o", attempt=1), choice, ask, replace=False)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        return answer

    with engine.holding(choice, ask):
        answer = await database.write(work)
    if isinstance(answer, Claimed):
        engine.claimed(answer)
    else:
        engine.lost(answer)
    return answer


async def rival(engine: Engine, database: Database, dice: random.Random, held: dict[str, int]) -> int:
    """Claims and releases; how many claims somebody else won first."""
    lost = 0
    for _ in range(TURNS):
        ask, consumer = ask_of(dice), new_uuid()
        for choice in engine.rank(ask).best:
            if isinstance(await claim(engine, database, consumer, choice, ask), Claimed):
                held[consumer] = len(ask.groups) // 2
                break
            lost += 1
        if consumer in held and dice.random() > HOLD:
            engine.settle(await database.write(partial(engine.release, consumer=consumer)))
            del held[consumer]
    return lost


def over(tx: Tx) -> int:
    i = inventories.c
    return int(tx.scalar(sa.select(sa.func.count()).select_from(inventories).where(i.used > i.cap)))


async def test_concurrent_claims_never_exceed_a_devices_capacity(database: Database) -> None:
    async with two_engines(database) as engines:
        held: dict[str, int] = {}
        done = asyncio.Event()

        async def watch() -> int:
            looks = 0
            while not done.is_set():
                assert await database.read(over) == 0
                looks += 1
            return looks

        watching = asyncio.create_task(watch())
        async with asyncio.TaskGroup() as group:
            for number in range(RIVALS):
                group.create_task(rival(engines[number % 2], database, random.Random(number), held))
        done.set()
        assert await watching > 0
        assert await database.read(drift) == []
        a = allocations.c
        rows = await database.read(
            lambda tx: tx.rows(sa.select(a.consumer, a["class"], sa.func.sum(a.used)).group_by(a.consumer, a["class"]))
        )
        taken = {(consumer, resource): int(amount) for consumer, resource, amount in rows}
        for consumer, ports in held.items():
            assert taken[consumer, EGR] == ports * EACH_KBPS
            assert taken[consumer, PPS] == ports * EACH_KPPS
        assert len(taken) == 3 * len(held)
        for engine in engines:  # both see that nothing is left where nothing is, and the same where something is
            await engine.catch_up()
        frees = [
            {e.world().nested.ids[s]: int(e.world().nested.free[EGR][s]) for s in range(e.world().nested.size)}
            for e in engines
        ]
        assert frees[0] == frees[1]


async def test_a_device_claim_is_replaced_extended_shrunk_and_released(database: Database) -> None:
    async with two_engines(database) as engines:
        engine, ask = engines[0], Ask(resources={"VCPU": 1}, groups=(RequestGroup("g", {EGR: 600}, (WIRE,)),))
        ways = engine.rank(ask).best
        assert len({choice.providers["g"] for choice in ways}) == HOSTS * BRIDGES

        def held(tx: Tx) -> dict[tuple[str, str], int]:
            a = allocations.c
            rows = tx.rows(sa.select(a.provider, a["class"], a.used).where(a.consumer == "server"))
            return {(provider, resource): used for provider, resource, used in rows}

        first, second = ways[0], next(way for way in ways if way.host != ways[0].host)
        assert isinstance(await claim(engine, database, "server", first, ask), Claimed)
        assert await database.read(held) == {(first.host, "VCPU"): 1, (first.providers["g"], EGR): 600}
        full = await claim(engines[1], database, "other", first, ask)
        assert isinstance(full, Shortage)
        assert f"{EGR}: 600 asked, 400 of 1000 free" in full.why()

        owner = Owner("server", "p", "u", operation="o", attempt=2)
        await database.write(lambda tx: engine.claim(tx, owner, second, ask, replace=True))
        assert await database.read(held) == {(second.host, "VCPU"): 1, (second.providers["g"], EGR): 600}

        more = Ask(resources={}, groups=(RequestGroup("card", {EGR: 100}, (WIRE,)),), host=second.name)
        await engine.catch_up()
        card = engine.rank(more).best[0]
        await database.write(lambda tx: engine.extend(tx, "server", card, more, "o2"))
        assert sum((await database.read(held)).values()) == 1 + 600 + 100
        await database.write(lambda tx: engine.shrink(tx, "server", {(card.providers["card"], EGR): 100}))
        assert await database.read(held) == {(second.host, "VCPU"): 1, (second.providers["g"], EGR): 600}
        await database.write(partial(engine.release, consumer="server"))
        assert await database.read(held) == {}
        assert await database.read(drift) == []


@pytest.mark.parametrize("amount", [KBPS, KBPS + 1])
async def test_a_device_reported_again_keeps_its_usage(database: Database, amount: int) -> None:
    async with two_engines(database) as engines:
        ask = Ask(resources={}, groups=(RequestGroup("g", {EGR: 600}, (WIRE,)),), host="h0")
        choice = engines[0].rank(ask).best[0]
        await claim(engines[0], database, "server", choice, ask)
        listed = [
            each if each.parent is None else DeviceReport(
                hypervisor="h0", id=each.id, name=each.name, parent=each.parent,
                inventories={EGR: Inventory(amount)}, traits=each.traits,
            )
            for each in devices("h0")
        ]  # fmt: skip
        assert await engines[1].report_devices(listed) == []
        assert await engines[1].report_devices([DeviceReport(hypervisor="nobody", id=ProviderId("x"), name="x")]) == [
            "nobody"
        ]
        nested = engines[1].world().nested
        slot = nested.ids.index(choice.providers["g"])
        assert int(nested.free[EGR][slot]) == amount - 600


# ------------------------------------------------------------------------------------------------- virtual functions


def card(host: str, functions: int) -> DeviceReport:
    return DeviceReport(
        hypervisor=host,
        id=ProviderId(f"{host}-card"),
        name=f"{host}:SR-IOV:ens1",
        inventories={SRIOV_NET_VF: Inventory(functions)},
        traits=(WIRE,),
        functions=tuple(VirtualFunction(f"0000:81:01.{n}", n, "8086", "1889", "a") for n in range(functions)),
    )


def direct(port: str) -> Ask:
    return Ask(resources={}, groups=(function_group(port, (WIRE,)),))


async def test_a_virtual_function_belongs_to_one_port_at_a_time(database: Database) -> None:
    async with two_engines(database) as engines:
        for host in ("h0", "h1"):
            await engines[0].report_devices([card(host, 4)])
        await engines[1].catch_up()
        got: dict[str, tuple[str, VirtualFunction]] = {}

        async def rival(engine: Engine, number: int) -> None:
            consumer, ask = new_uuid(), direct(f"port-{number}")
            for turn in range(4):
                for choice in engine.rank(ask).best:
                    answer = await claim(engine, database, consumer, choice, ask)
                    if isinstance(answer, Claimed):
                        got[consumer] = (choice.host, answer.functions[f"port-{number}"])
                        break
                if turn < 3 and consumer in got:
                    del got[consumer]
                    engine.settle(await database.write(partial(engine.release, consumer=consumer)))

        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(rival(engines[number % 2], number))
        assert got
        assert len({(host, one.address) for host, one in got.values()}) == len(got)
        rows = await database.read(virtual_functions.held)
        assert {consumer for consumer, _ in rows.values()} == got.keys()
        assert {(provider.removesuffix("-card"), address) for provider, address in rows} == {
            (await_name, one.address)
            for await_name, one in ((names(engines[0])[host], one) for host, one in got.values())
        }
        assert await database.read(drift) == []


def names(engine: Engine) -> dict[str, str]:
    world = engine.world()
    return dict(zip(world.host_ids, world.names, strict=True))


async def test_virtual_functions_are_claimed_and_released_port_by_port(database: Database) -> None:
    async with two_engines(database) as (engine, _):
        await engine.report_devices([card("h0", 2)])
        ask = direct("first")
        choice = engine.rank(ask).best[0]
        one = await claim(engine, database, "server", choice, ask)
        assert isinstance(one, Claimed)
        assert one.functions["first"].profile() == {
            "pci_slot": "0000:81:01.0",
            "pci_vendor_info": "8086:1889",
            "physical_network": "a",
            "vf_num": 0,
        }
        more = direct("second")
        two = await database.write(lambda tx: engine.extend(tx, "server", engine.rank(more).best[0], more, "o2"))
        assert isinstance(two, Claimed)
        assert two.functions["second"].address == "0000:81:01.1"
        engine.claimed(two)
        assert not engine.rank(direct("third")).best

        engine.settle(await database.write(lambda tx: engine.shrink(tx, "server", {}, ("its-id", "first"))))
        assert {port for _, port in (await database.read(virtual_functions.held)).values()} == {"second"}
        other = await claim(engine, database, "other", engine.rank(direct("x")).best[0], direct("x"))
        assert isinstance(other, Claimed)
        assert other.functions["x"].address == "0000:81:01.0"

        await database.write(partial(engine.release, consumer="server"))
        assert {port for _, port in (await database.read(virtual_functions.held)).values()} == {"x"}
        await engine.report_devices([card("h0", 1)])
        assert len(await database.read(virtual_functions.held)) == 1
        await database.write(partial(engine.release, consumer="other"))
        assert await database.read(virtual_functions.held) == {}


async def test_a_move_leaves_the_function_with_the_source_and_brings_it_back(database: Database) -> None:
    async with two_engines(database) as (engine, _):
        await engine.report_devices([card("h0", 1)])
        await engine.report_devices([card("h1", 1)])
        ask = direct("port")
        here = engine.rank(ask).best[0]
        assert isinstance(await claim(engine, database, "server", here, ask), Claimed)
        there = next(choice for choice in engine.rank(ask).best if choice.host != here.host)
        owner = Owner("server", "p", "u", operation="o2", attempt=1)
        answer = await database.write(lambda tx: engine.move(tx, owner, "migration", there, ask))
        assert isinstance(answer, Claimed)
        assert answer.functions["port"].address == "0000:81:01.0"
        cards = {
            provider: consumer for (provider, _), (consumer, _) in (await database.read(virtual_functions.held)).items()
        }
        assert cards == {here.providers["port/function"]: "migration", there.providers["port/function"]: "server"}
        await database.write(lambda tx: engine.move_back(tx, "server", "migration"))
        cards = {
            provider: consumer for (provider, _), (consumer, _) in (await database.read(virtual_functions.held)).items()
        }
        assert cards == {here.providers["port/function"]: "server"}
        assert await database.read(drift) == []
