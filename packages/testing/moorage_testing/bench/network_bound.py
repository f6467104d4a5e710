"""What a boot asks of the network service, and how fast boots are when that is what limits them (docs/performance.md, S0.21).

A ratio to Nova's servers per second is not given: Nova did not run against this stub.  Its twenty calls per boot are published.
"""

import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from moorage.main.config import ServiceUser
from moorage.main.secret_settings import secret
from moorage.main.service_clients import service_password
from moorage.sql import Durability
from moorage_testing.bench.clouds import FLAVOR, Backing, BenchCloud, ServiceUrls, backing, cloud, config_of
from moorage_testing.bench.load import Caller, token_of
from moorage_testing.bench.slow_network import CALL_S, PORTS_PER_S, SlowNetwork
from moorage_testing.bench.table import BenchRow, Table
from moorage_testing.embedded_role import embedded_alone

HOSTS = 100
BOOTS_ONE, BOOTS_EACH, SUBNETS = 120, 120, 8
TOGETHER = 20
ONE_LEAST, EIGHT_LEAST = 0.9 * PORTS_PER_S, 0.9 * SUBNETS * PORTS_PER_S
NOVA_CALLS = 20.0
REBIND_MS = 20.0
REBIND_BOOTS = 60
STEP_BOOTS = 40
STEPS = ("make_ports", "claim_host", "bind_ports", "record_server", "start_guest", "await_vifs", "announce")


async def network_bound(table: Table, durability: Durability) -> None:
    """Everything of this part."""
    with backing("sqlite") as found:
        async with cloud(found, hosts=HOSTS, durability=durability) as running:
            await critical_path(table, running)
            await refused_binds(table, running)
            await together(table, running)
    table.title(
        f"Network service of {CALL_S * 1000:.0f} ms a call and {PORTS_PER_S:g} ports/s a subnet (stub over the embedded one)"
    )
    async with behind_slow_network(durability) as (running, networks):
        await one_subnet(table, running, networks[0])
        await eight_subnets(table, running, networks)


async def critical_path(table: Table, running: BenchCloud) -> None:
    """Creating and binding stand between the order and the guest (S0.21): what each step takes, one boot after the other."""
    table.title("The critical path of a boot, embedded network service, one after the other (medians)")
    spent = await running.boot(STEP_BOOTS, in_flight=1, one_by_one=True)
    step_rows(table, spent.counters["steps_ms"])


def step_rows(table: Table, took: dict[str, float]) -> None:
    """A row for each step of a boot, and what of them is the network service's part."""
    for step in STEPS:
        table.add(BenchRow(f"  {step}", took.get(step, 0.0), "ms"))
    ours = took.get("make_ports", 0.0) + took.get("bind_ports", 0.0)
    table.add(
        BenchRow("create and bind, on the critical path", ours, "ms", note=f"of {sum(took.values()):.1f} ms in steps")
    )


async def refused_binds(table: Table, running: BenchCloud) -> None:
    """A third of the hosts cannot be bound on: from the refusal to the next host's bind, one boot after the other."""
    await running.command("deafen")
    await running.command("begin")
    rebinds: list[float] = []
    for order in running.orders(REBIND_BOOTS):
        await running.compute.many("POST", "/servers", [order], in_flight=1, expect=202)
        rebinds += (await running.command("settle"))["rebinds_ms"]
        await running.command("begin")
    await running.command("hear")
    note = f"{len(rebinds)} refusals, slowest {max(rebinds, default=0.0):.0f} ms; two commits lie between"
    table.add(
        BenchRow("from a refused bind to the next host's bind", statistics.median(rebinds), "ms", REBIND_MS, note=note)
    )


async def one_subnet(table: Table, running: BenchCloud, network: str) -> None:
    running.network = network
    spent = await running.boot(BOOTS_ONE, in_flight=64)
    table.add(
        BenchRow(
            "servers/s, all on one subnet", spent.per_s, "/s", ONE_LEAST, "at least", note=f"{BOOTS_ONE} boots at once"
        )
    )
    _calls(table, spent.counters, BOOTS_ONE, "all on one subnet")


async def eight_subnets(table: Table, running: BenchCloud, networks: list[str]) -> None:
    """One request for many servers on each network, so many that accepting them and the last one's start weigh little."""
    count = BOOTS_EACH * SUBNETS
    await running.command("begin")
    orders: list[bytes] = []
    for network in networks:
        running.network = network
        orders.append(_many(running, BOOTS_EACH))
    began = asyncio.get_running_loop().time()
    await running.compute.many("POST", "/servers", orders, in_flight=64, expect=202)
    counters = await running.command("settle")
    per_s = count / (asyncio.get_running_loop().time() - began)
    cpu_ms = counters["cpu_s"] / count * 1000
    table.add(
        BenchRow(
            f"servers/s, on {SUBNETS} subnets",
            per_s,
            "/s",
            EIGHT_LEAST,
            "at least",
            note=f"{SUBNETS} requests for {BOOTS_EACH} servers at once; {cpu_ms:.1f} ms of our CPU each",
        )
    )
    _calls(table, counters, count, f"on {SUBNETS} subnets")


async def together(table: Table, running: BenchCloud) -> None:
    """One request for many servers: their ports come from one call."""
    await running.command("begin")
    await running.compute.many("POST", "/servers", [_many(running, TOGETHER)], in_flight=1, expect=202)
    calls = (await running.command("settle"))["calls"]
    made = calls.get("network: POST ports", 0) / TOGETHER
    table.add(BenchRow(f"creates per boot, {TOGETHER} servers of one request", made, "", 1 / TOGETHER, counting=True))


def _many(running: BenchCloud, count: int) -> bytes:
    """One request for so many servers on the network that is set."""
    order: dict[str, Any] = msgspec.json.decode(running.orders(1)[0])
    order["server"] |= {"min_count": count, "max_count": count, "flavorRef": FLAVOR}
    return msgspec.json.encode(order)


def _calls(table: Table, counters: dict[str, Any], boots: int, how: str) -> None:
    calls = {what: count / boots for what, count in counters["calls"].items() if what.startswith("network:")}
    note = ", ".join(f"{what.removeprefix('network: ')} {count:.2f}" for what, count in calls.items())
    table.add(BenchRow(f"  network calls per boot, {how}", sum(calls.values()), "", 2.1, note=note, counting=True))
    table.add(BenchRow("    Nova's, published", NOVA_CALLS))
    table.add(BenchRow(f"  calls without an answer, {how}", float(counters["lost"]), "", 0.0, counting=True))


@asynccontextmanager
async def behind_slow_network(durability: Durability) -> AsyncIterator[tuple[BenchCloud, list[str]]]:
    """The embedded services in this process, the cloud in its own, the slow one between; networks with a subnet each."""
    with tempfile.TemporaryDirectory(prefix="moorage-bench-alone-") as room:
        alone = config_of(Path(room), Backing("sqlite"), HOSTS, durability)
        async with embedded_alone(alone, around_network=SlowNetwork):
            user = ServiceUser(password=service_password(alone))
            identity = f"{alone.api.identity.url}/v3"
            named = ServiceUrls(identity, alone.api.image.url, alone.api.network.url, user)
            async with cloud(Backing("sqlite"), hosts=HOSTS, durability=durability, neighbours=named) as running:
                seen = msgspec.structs.replace(
                    alone, api=msgspec.structs.replace(alone.api, compute=running.config.api.compute)
                )
                running.config, running.ready = seen, {"password": _password(seen.data)}
                await running.sign_in()
                networks = [await _network(seen.api.network.url, identity, running, at) for at in range(SUBNETS)]
                running.network = networks[-1]
                await running.boot(4, in_flight=4)
                yield running, networks


def _password(data: Path) -> str:
    return secret(data, "admin-password")


async def _network(url: str, identity: str, running: BenchCloud, at: int) -> str:
    token, _ = await token_of(identity, "admin", running.ready["password"], "admin")
    caller = Caller(f"{url}/v2.0", {"X-Auth-Token": token})
    network = (await caller.call("POST", "/networks", {"network": {"name": f"slow-{at}"}}))["network"]["id"]
    subnet = {"network_id": network, "ip_version": 4, "cidr": f"10.{60 + at}.0.0/16"}
    await caller.call("POST", "/subnets", {"subnet": subnet})
    return str(network)
