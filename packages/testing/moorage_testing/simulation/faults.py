"""What goes wrong.  Each fault says what it does, for how long, and takes it back; `heal` (healing.py) ends all of them."""

import asyncio
import math
import random

import msgspec

from moorage.drivers.fault_injection import VerbDial
from moorage_testing.simulation.bus import Weather
from moorage_testing.simulation.cloud import Role, SimulatedCloud
from moorage_testing.simulation.orders import named_host
from moorage_testing.simulation.plan import FAULTS_BY_NAME, HOSTS, Arguments, Draft
from moorage_testing.simulation.roles import USUAL, AgentRole, RegionRole

CONDUCTORS = ("conductor1", "conductor2")
REGION_ROLES = ("api", *CONDUCTORS)
ROLES = (*REGION_ROLES, *CONDUCTORS, *HOSTS, "neighbours")
STORES = ("region", "cell1", "cell2")
NEIGHBOURS = ("network", "network", "network", "identity", "image", "image", "volume", "volume")
TROUBLES = ("refused", "fails_before", "fails_after", "late", "lost_answer", "slow", "short", "lost_role")
fault = FAULTS_BY_NAME.add


def _for_s(dice: random.Random, least_s: float = 1.0, most_s: float = 60.0) -> float:
    """Short ones often, long ones sometimes."""
    return round(least_s * math.exp(dice.random() * math.log(most_s / least_s)), 3)


def _role(cloud: SimulatedCloud, name: str) -> Role:
    """`host of N`: the host that server N has claimed; `left by N`: the one before that. One of all hosts, if it has none."""
    return cloud.roles[named_host(cloud, name)]


def _note(cloud: SimulatedCloud, what: str) -> None:
    cloud.trace.note("fault", what)


# ---------------------------------------------------------------------------------------------------- processes


def _draw_kill(dice: random.Random, _: Draft) -> Arguments:
    return {"role": dice.choice(ROLES), "for_s": _for_s(dice, 0.5)}


@fault("kill", 6, _draw_kill)
async def kill(cloud: SimulatedCloud, args: Arguments) -> None:
    """kill -9, and it is started again after a while."""
    role = _role(cloud, args["role"])
    _note(cloud, f"{role.name} is killed for {args['for_s']} s")
    role.wanted = False
    role.kill()
    await asyncio.sleep(args["for_s"])
    role.start()


def _draw_freeze(dice: random.Random, _: Draft) -> Arguments:
    return {"role": dice.choice(ROLES), "for_s": _for_s(dice, 1.0, 90.0), "sleeps": dice.random() < 0.3}


@fault("freeze", 6, _draw_freeze)
async def freeze(cloud: SimulatedCloud, args: Arguments) -> None:
    """It stands still, and goes on; `sleeps`: with its machine, whose monotonic clock stands still too."""
    role = _role(cloud, args["role"])
    process = role.process
    if process is None or process.frozen:
        return
    sleeps = args["sleeps"]
    _note(cloud, f"{role.name} {'and its machine freeze' if sleeps else 'freezes'} for {args['for_s']} s")
    began = cloud.loop.now
    role.freeze()
    if sleeps:
        role.machine.asleep = True
    try:
        await asyncio.sleep(args["for_s"])
    finally:
        _note(cloud, f"{role.name} thaws")
        role.machine.asleep = False
        role.thaw(process, cloud.loop.now - began if sleeps else 0.0)
        cloud.check_guests()


def _draw_restart(dice: random.Random, draft: Draft) -> Arguments:
    return {"role": dice.choice((*REGION_ROLES, *HOSTS)), "for_s": _for_s(dice, 0.5, 10.0)}


@fault("restart", 3, _draw_restart)
async def restart(cloud: SimulatedCloud, args: Arguments) -> None:
    """Stopped with a signal, and started again."""
    role = _role(cloud, args["role"])
    _note(cloud, f"{role.name} is restarted in order")
    role.wanted = False
    await role.stop()
    await asyncio.sleep(args["for_s"])
    role.start()


def _draw_upgrade(dice: random.Random, _: Draft) -> Arguments:
    return {"host": dice.choice(HOSTS), "level": dice.choice((1, 2, 3, 3, 3)), "for_s": _for_s(dice, 0.5, 10.0)}


@fault("upgrade", 2, _draw_upgrade)
async def upgrade(cloud: SimulatedCloud, args: Arguments) -> None:
    """An agent is restarted as one of another protocol level."""
    role = _role(cloud, args["host"])
    assert isinstance(role, AgentRole)
    _note(cloud, f"{role.name} is restarted with level {args['level']}")
    role.wanted = False
    await role.stop()
    role.level = args["level"]
    await asyncio.sleep(args["for_s"])
    role.start()


def _draw_power_cut(dice: random.Random, _: Draft) -> Arguments:
    return {"host": dice.choice(HOSTS), "for_s": _for_s(dice, 2.0)}


@fault("power_cut", 2, _draw_power_cut)
async def power_cut(cloud: SimulatedCloud, args: Arguments) -> None:
    """A host loses its power: its guests are off, its agent comes back with it."""
    role = _role(cloud, args["host"])
    assert isinstance(role, AgentRole)
    _note(cloud, f"{role.name} loses its power for {args['for_s']} s")
    role.wanted = False
    role.kill()
    if role.driver is not None:
        role.driver.crash_host()
    await asyncio.sleep(args["for_s"])
    role.start()


def _draw_clock(dice: random.Random, _: Draft) -> Arguments:
    ahead_s = round(dice.choice((-1, 1)) * 10 ** dice.uniform(0.0, 2.8), 3)
    return {"machine": dice.choice((*ROLES, *(f"database-{name}" for name in STORES))), "by_s": ahead_s}


@fault("clock", 3, _draw_clock)
async def clock(cloud: SimulatedCloud, args: Arguments) -> None:
    """A machine's wall clock jumps; a database's only by what a time server would correct."""
    machine = cloud.machine(args["machine"])
    by_s = args["by_s"] if not machine.name.startswith("database-") else max(min(args["by_s"], 1.0), -1.0)
    _note(cloud, f"the clock of {machine.name} jumps by {by_s} s")
    machine.offset_s += by_s


# ---------------------------------------------------------------------------------------------------- databases


def _draw_store(dice: random.Random, _: Draft) -> Arguments:
    return {"store": dice.choice(STORES), "for_s": _for_s(dice, 1.0, 90.0)}


@fault("database_hangs", 2, _draw_store)
async def database_hangs(cloud: SimulatedCloud, args: Arguments) -> None:
    """Statements are taken and nothing comes back."""
    store = cloud.stores[args["store"]]
    _note(cloud, f"the {store.name} database hangs for {args['for_s']} s")
    store.hung = True
    await asyncio.sleep(args["for_s"])
    _note(cloud, f"the {store.name} database goes on")
    store.wake()


def _draw_refuses(dice: random.Random, draft: Draft) -> Arguments:
    return {**_draw_store(dice, draft), "why": dice.choice(("full", "read-only"))}


@fault("database_refuses", 2, _draw_refuses)
async def database_refuses(cloud: SimulatedCloud, args: Arguments) -> None:
    """Its disk is full, or it became read-only: it can be read, and not written."""
    store = cloud.stores[args["store"]]
    _note(cloud, f"the {store.name} database is {args['why']} for {args['for_s']} s")
    store.refuses_writes = args["why"]
    await asyncio.sleep(args["for_s"])
    _note(cloud, f"the {store.name} database can be written again")
    store.refuses_writes = ""


@fault("database_slow", 2, _draw_store)
async def database_slow(cloud: SimulatedCloud, args: Arguments) -> None:
    """It is far away."""
    store = cloud.stores[args["store"]]
    _note(cloud, f"the {store.name} database is slow for {args['for_s']} s")
    store.slow_s = (0.03, 0.4)
    await asyncio.sleep(args["for_s"])
    store.slow_s = (0.0, 0.0)


def _draw_cut_database(dice: random.Random, draft: Draft) -> Arguments:
    return {**_draw_store(dice, draft), "role": dice.choice(REGION_ROLES)}


@fault("database_cut", 3, _draw_cut_database)
async def database_cut(cloud: SimulatedCloud, args: Arguments) -> None:
    """One process does not reach it."""
    store = cloud.stores[args["store"]]
    _note(cloud, f"{args['role']} does not reach the {store.name} database for {args['for_s']} s")
    store.cut.add(args["role"])
    await asyncio.sleep(args["for_s"])
    store.cut.discard(args["role"])


def _draw_lost_commits(dice: random.Random, _: Draft) -> Arguments:
    return {"store": dice.choice(STORES), "count": dice.choice((1, 1, 1, 2, 5))}


@fault("commits_lost", 4, _draw_lost_commits)
async def commits_lost(cloud: SimulatedCloud, args: Arguments) -> None:
    """The next commits are done, and their clients get no answer."""
    cloud.stores[args["store"]].answers_lost += args["count"]


# ---------------------------------------------------------------------------------------------------- the bus


def _draw_cut(dice: random.Random, _: Draft) -> Arguments:
    return {"role": dice.choice((*REGION_ROLES, *HOSTS)), "for_s": _for_s(dice, 1.0, 90.0)}


@fault("bus_cut", 4, _draw_cut)
async def bus_cut(cloud: SimulatedCloud, args: Arguments) -> None:
    """One process does not reach the bus."""
    name = _role(cloud, args["role"]).name
    _note(cloud, f"{name} does not reach the bus for {args['for_s']} s")
    cloud.hub.cut_off(name)
    await asyncio.sleep(args["for_s"])
    _note(cloud, f"{name} reaches the bus again")
    cloud.hub.join(name)


def _draw_down(dice: random.Random, _: Draft) -> Arguments:
    return {"for_s": _for_s(dice, 1.0, 90.0)}


@fault("bus_down", 2, _draw_down)
async def bus_down(cloud: SimulatedCloud, args: Arguments) -> None:
    """Nobody reaches the bus."""
    _note(cloud, f"the bus is down for {args['for_s']} s")
    cloud.hub.set_down(True)
    await asyncio.sleep(args["for_s"])
    _note(cloud, "the bus is back")
    cloud.hub.set_down(False)


def _draw_weather(dice: random.Random, _: Draft) -> Arguments:
    return {
        "drop": round(dice.choice((0.0, 0.05, 0.3)), 3),
        "duplicate": round(dice.choice((0.0, 0.1, 0.5)), 3),
        "overtaken": round(dice.choice((0.0, 0.1, 0.5)), 3),
        "late_s": round(dice.choice((0.0, 0.1, 2.0)), 3),
        "for_s": _for_s(dice, 5.0, 90.0),
    }


@fault("bus_weather", 4, _draw_weather)
async def bus_weather(cloud: SimulatedCloud, args: Arguments) -> None:
    """Messages are lost, doubled, overtaken and late."""
    weather = Weather(args["drop"], args["duplicate"], args["overtaken"], args["late_s"])
    _note(cloud, f"{weather} for {args['for_s']} s")
    cloud.hub.weather = weather
    await asyncio.sleep(args["for_s"])
    cloud.hub.weather = Weather()


# ---------------------------------------------------------------------------------------------------- services


def _draw_service(dice: random.Random, _: Draft) -> Arguments:
    return {
        "service": dice.choice(NEIGHBOURS),
        "trouble": dice.choice(TROUBLES),
        "chance": dice.choice((0.2, 0.5, 1.0)),
        "for_s": _for_s(dice, 1.0, 120.0),
    }


@fault("neighbour", 5, _draw_service)
async def neighbour(cloud: SimulatedCloud, args: Arguments) -> None:
    """A service fails before or after its work, answers late, or leaves things out."""
    door = cloud.doors[args["service"]]
    _note(cloud, f"the {door.name} service: {args['trouble']} ({args['chance']}) for {args['for_s']} s")
    door.trouble, door.chance = args["trouble"], args["chance"]
    await asyncio.sleep(args["for_s"])
    _note(cloud, f"the {door.name} service is well again")
    door.trouble, door.chance = "", 1.0


# ---------------------------------------------------------------------------------------------------- hosts


VERBS = (
    "start_guest", "start_guest", "destroy_guest", "power_off", "attach_interface", "*",
    "attach_volume", "detach_volume", "take_snapshot", "upload_snapshot", "rebuild_guest", "rescue_guest",
    "send_guest", "take_guest", "prepare_live", "send_live", "live_transfer", "land_live",
)  # fmt: skip


def _draw_host(dice: random.Random, _: Draft) -> Arguments:
    return {
        "host": dice.choice(HOSTS),
        "verb": dice.choice(VERBS),
        "dial": dice.choice(
            (
                {"fail_times": 1},
                {"fail_times": 3, "fail_when": "after"},
                {"fail_chance": 0.5},
                {"delay_s": 2.0, "jitter_s": 20.0},
                {"fail_times": 1, "hang": "before"},
                {"fail_times": 1, "hang": "after"},
            )
        ),
        "for_s": _for_s(dice, 5.0, 90.0),
    }


@fault("host", 5, _draw_host)
async def host(cloud: SimulatedCloud, args: Arguments) -> None:
    """A hypervisor fails, hangs or is slow."""
    role = _role(cloud, args["host"])
    assert isinstance(role, AgentRole)
    _note(cloud, f"{role.name}: {args['verb']} {args['dial']} for {args['for_s']} s")
    dial = msgspec.convert(args["dial"], VerbDial)
    if args["verb"] in {"*", "power_off"}:
        cloud.half_done.add(role.name)
    role.turn(msgspec.structs.replace(role.dials, verbs={**USUAL, args["verb"]: dial}))
    await asyncio.sleep(args["for_s"])
    role.turn(msgspec.structs.replace(role.dials, verbs=USUAL))


@fault("guest_crashes", 2, lambda dice, _: {"host": dice.choice(HOSTS)})
async def guest_crashes(cloud: SimulatedCloud, args: Arguments) -> None:
    """The guests of a host crash, by themselves."""
    role = _role(cloud, args["host"])
    assert isinstance(role, AgentRole)
    if role.driver is not None and role.ready:
        _note(cloud, f"the guests on {role.name} crash")
        role.turn(msgspec.structs.replace(role.dials, crash=("*",)))
        await role.driver.guests()
        role.turn(msgspec.structs.replace(role.dials, crash=()))


def _draw_twin(dice: random.Random, _: Draft) -> Arguments:
    return {"host": dice.choice(HOSTS), "for_s": _for_s(dice, 10.0, 60.0)}


@fault("twin", 2, _draw_twin)
async def twin(cloud: SimulatedCloud, args: Arguments) -> None:
    """A second machine, made from the same image, runs an agent of the same name."""
    first = _role(cloud, args["host"])
    assert isinstance(first, AgentRole)
    name = f"{first.name}-twin"
    if name in cloud.roles:
        return
    second = cloud.roles[name] = AgentRole(cloud, first.plan, machine=name)
    _note(cloud, f"a second agent of {first.name} runs for {args['for_s']} s")
    second.start()
    try:
        await asyncio.sleep(args["for_s"])
    finally:
        _note(cloud, f"the second agent of {first.name} ends")
        second.wanted = False
        second.kill()
        cloud.take_away(name)
        del cloud.roles[name]


# ---------------------------------------------------------------------------------------------------- reconcilers

ROUNDS = (
    "stray_ports", "stray_claims", "port_drift", "quota_usage", "host_aggregates", "devices", "segments", "tidy",
    "stray_attachments", "stray_images", "shelved", "reclaim",
)  # fmt: skip


def _draw_round(dice: random.Random, _: Draft) -> Arguments:
    return {"role": dice.choice(CONDUCTORS), "name": dice.choice(ROUNDS)}


@fault("reconcile", 5, _draw_round)
async def reconcile(cloud: SimulatedCloud, args: Arguments) -> None:
    """A round runs now, whatever goes on."""
    role = _role(cloud, args["role"])
    rounds = getattr(role, "rounds", None)
    if isinstance(role, RegionRole) and role.ready and rounds is not None and args["name"] in rounds.runs:
        _note(cloud, f"{role.name} runs {args['name']}")
        rounds.nudge(args["name"])
