"""Boots with the real Keystone, Glance and Neutron behind them, compared with the published figures of Nova's whole stack.

What each side includes.  Ours: the cloud's process (API, conductor, placement, cell, simulated hosts, SQLite) and, shown apart,
each real service's processes; Neutron here is one API worker over SQLite, without RPC server and agents.  Theirs (a burst of
50 boots, 20 clients, two cores, medians of three runs): Nova's API, scheduler, conductors and four computes with the fake driver 0.43 s,
Placement 0.18, Neutron's API 0.43 and RPC server with port-up reports 0.06, MariaDB 0.12, RabbitMQ 0.02, the rest 0.02.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from moorage.main.config import ServiceUser
from moorage_testing.bench.clouds import Backing, BenchCloud, ServiceUrls, cloud
from moorage_testing.bench.load import Caller
from moorage_testing.bench.network_bound import step_rows
from moorage_testing.bench.table import BenchRow, Table, print_line
from moorage_testing.real_services.stack import Stack, start_stack

BOOTS, IN_FLIGHT, WARM = 50, 8, 4
ALONE = 12
"""One after the other, for what each step takes."""
HOSTS = 6
"""The stack knows six of our simulated hosts, and how they are wired."""
NOVA_CPU_S, NOVA_NETWORK_CALLS = 1.28, 20.0


@contextmanager
def stack_running() -> Iterator[Stack]:
    stack = start_stack()
    try:
        yield stack
    finally:
        stack.stop()


async def peers(table: Table) -> None:
    with stack_running() as stack:
        user = stack.logins["moorage"]
        neighbours = ServiceUrls(
            stack.identity_url,
            stack.image_url,
            stack.network_url,
            ServiceUser(user=user.user, password=user.password, project=user.project),
        )
        found = Backing("sqlite", processes={name: process.pid for name, process in stack.processes.items()})
        table.title(
            f"Real Keystone, Glance and Neutron behind one process on SQLite, {BOOTS} boots, {IN_FLIGHT} in flight"
        )
        async with cloud(found, hosts=HOSTS, neighbours=neighbours) as running:
            _sign_in(stack, running)
            await running.boot(WARM, in_flight=2)
            spent = await running.boot(BOOTS, in_flight=IN_FLIGHT)
            alone = await running.boot(ALONE, in_flight=1, one_by_one=True)
    calls = sum(n for what, n in spent.counters["calls"].items() if what.startswith("network:")) / BOOTS
    named = ", ".join(f"{name} {spent.other_process_ms(name):.0f} ms" for name in found.processes)
    whole_s = (spent.cpu_ms + sum(spent.other_process_ms(name) for name in found.processes)) / 1000
    table.add(BenchRow("CPU of our process per boot", spent.cpu_ms, "ms", note="all of compute and placement"))
    table.add(BenchRow("CPU of ours and the real neighbours per boot", whole_s, "s", NOVA_CPU_S, note=named))
    table.add(
        BenchRow(
            "  Nova's whole stack, published",
            NOVA_CPU_S,
            "s",
            note="50 boots; Neutron on MariaDB with RPC and agents, RabbitMQ",
        )
    )
    table.add(BenchRow("network-service calls per boot, warm", calls, "", NOVA_NETWORK_CALLS))
    table.add(BenchRow("  Nova's, published", NOVA_NETWORK_CALLS))
    step_rows(table, alone.counters["steps_ms"])
    table.add(BenchRow("servers to ACTIVE", spent.per_s, "/s", note="the one Neutron worker is the limit"))
    for what, number in spent.counters["calls"].items():
        print_line(f"      {what:28} {number / BOOTS:5.2f} calls")


def _sign_in(stack: Stack, running: BenchCloud) -> None:
    """An ordinary member's order, for an image and a network of their own."""
    alice, admin = stack.token("alice"), stack.token("admin")
    project = stack.logins["alice"].project_id

    def ask(token: str, method: str, url: str, body: Any) -> Any:
        reply = httpx.request(method, url, json=body, headers={"X-Auth-Token": token}, timeout=60.0)
        reply.raise_for_status()
        return msgspec.json.decode(reply.content) if reply.content else None

    image = ask(
        alice, "POST", f"{stack.image_url}/v2/images", {"name": "b", "disk_format": "raw", "container_format": "bare"}
    )
    headers = {"X-Auth-Token": alice, "Content-Type": "application/octet-stream"}
    url = f"{stack.image_url}/v2/images/{image['id']}/file"
    httpx.put(url, content=b"\0" * 1024, headers=headers, timeout=60.0).raise_for_status()
    networks = f"{stack.network_url}/v2.0"
    ask(admin, "PUT", f"{networks}/quotas/{project}", {"quota": {"port": -1}})
    network = ask(alice, "POST", f"{networks}/networks", {"network": {"name": "bench"}})["network"]["id"]
    subnet = {"network_id": network, "ip_version": 4, "cidr": "10.60.0.0/16"}
    ask(alice, "POST", f"{networks}/subnets", {"subnet": subnet})
    running.image, running.network = image["id"], network
    token = {"X-Auth-Token": alice, "OpenStack-API-Version": "compute 2.96", "Accept": "application/json"}
    running.compute = Caller(f"{running.config.api.compute.url}/v2.1", token)
