"""Guaranteed bandwidth where the network service and the agents are processes of their own: at the first boot, when a policy is changed, and
when a host stands still and its server goes elsewhere.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.helpers.guaranteed_ports import EGR, made, network_on, placement, policy_of, providers, show_port, used

from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.main.hosts import planned_hosts
from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage.model.guest import PowerState
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialSet]:
    trial = TrialSet(
        tmp_path_factory.mktemp("set"),
        hosts=4,
        apis=1,
        conductors=1,
        durability="none",
        settings=f"\n{CHEAP_LOGINS_SETTINGS}",
    )
    try:
        trial.start()
        yield trial
    finally:
        trial.stop()


async def until(look: Callable[[], Awaitable[Any]], good: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(180.0):
        while not good(seen := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return seen


async def bandwidth(admin: Person, server: str) -> int:
    rows = (await placement(admin, f"/allocations/{server}"))["allocations"]
    return sum(each["resources"].get(EGR, 0) for each in rows.values())


async def test_policies_of_ports_networks_and_rules(trial: TrialSet) -> None:
    async with Person(trial.config, urls=trial.api_urls()) as admin:
        most = trial.config.hosts.bandwidth_kbps
        small, more = await policy_of(admin, kbps=1_000), await policy_of(admin, kbps=most)
        network = await network_on(admin, "physnet1", qos_policy_id=small)
        server = str((await admin.active("at once", networks=[{"uuid": network}]))["id"])
        (port,) = (await admin.network("GET", "/ports", device_id=server)).json()["ports"]
        assert await bandwidth(admin, server) == 1_000

        async def change(path: str, kind: str, policy: str | None) -> int:
            return (await admin.network("PUT", path, {kind: {"qos_policy_id": policy}})).status_code

        assert await change(f"/ports/{port['id']}", "port", more) == 200
        assert await bandwidth(admin, server) == most
        assert await change(f"/ports/{port['id']}", "port", None) == 200
        assert await bandwidth(admin, server) == 1_000, "the network's counts again"
        assert await change(f"/networks/{network}", "network", more) == 200
        assert await bandwidth(admin, server) == most
        assert await change(f"/networks/{network}", "network", small) == 200

        rules = f"/qos/policies/{small}/minimum_bandwidth_rules"
        (rule,) = (await admin.network("GET", rules)).json()["minimum_bandwidth_rules"]

        async def amount(kbps: int) -> int:
            body = {"minimum_bandwidth_rule": {"min_kbps": kbps}}
            return (await admin.network("PUT", f"{rules}/{rule['id']}", body)).status_code

        assert await amount(most + 1) == 409
        assert await bandwidth(admin, server) == 1_000
        assert await amount(3_000) == 200
        assert await bandwidth(admin, server) == 3_000
        assert (await admin.network("DELETE", f"{rules}/{rule['id']}")).status_code == 204
        assert await bandwidth(admin, server) == 0
        await made(admin, rules, "minimum_bandwidth_rule", min_kbps=5_000)
        assert await change(f"/ports/{port['id']}", "port", more) == 200
        assert (await show_port(admin, port["id"]))["qos_policy_id"] == more
        await admin.gone(server)
        await nothing_leaked(trial.config, admin)


async def test_the_compute_api_receives_port_events(trial: TrialSet) -> None:
    """Who deletes a port in the network service unplugs it: the event comes over HTTP, long before any round."""
    async with Person(trial.config, urls=trial.api_urls()) as admin:
        server = str((await admin.active("watched"))["id"])
        (port,) = (await admin.network("GET", "/ports", device_id=server)).json()["ports"]
        assert (await admin.network("DELETE", f"/ports/{port['id']}")).status_code == 204

        async def unplugged() -> bool:
            return (await admin.compute("GET", f"/servers/{server}/os-interface")).json()["interfaceAttachments"] == []

        async with asyncio.timeout(180.0):
            while not await unplugged():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await admin.gone(server)


async def test_a_suspended_host_releases_evacuated_servers(trial: TrialSet) -> None:
    """SIGSTOP, evacuated, SIGCONT: the leftover is destroyed and starts nothing, the claim goes, the port is not touched (S1.19)."""
    async with Person(trial.config, urls=trial.api_urls()) as admin:
        policy = await policy_of(admin, kbps=1_000)
        network = (await made(admin, "/networks", "network", name="tunnelled", qos_policy_id=policy))["id"]
        await made(admin, "/subnets", "subnet", network_id=network, cidr="10.98.0.0/24", ip_version=4)
        booted = await admin.active("evacuated", networks=[{"uuid": network}])
        server, here = booted["id"], booted["OS-EXT-SRV-ATTR:host"]
        (port,) = (await admin.network("GET", "/ports", device_id=server)).json()["ports"]
        tunnels = {name: id for name, id in (await providers(admin)).items() if name.endswith("rp_tunnelled")}
        cell = {plan.host: plan.cell for plan in planned_hosts(trial.config)}

        def guest(host: str) -> SimulatedGuest:
            file = trial.config.data / "hosts" / host / "guests" / f"{server}.json"
            return msgspec.json.decode(file.read_bytes(), type=SimulatedGuest)

        async def service() -> Any:
            reply = await admin.compute("GET", "/os-services", host=here, binary="nova-compute")
            return reply.json()["services"][0]

        async def force(down: bool) -> None:
            answer = await admin.compute("PUT", f"/os-services/{(await service())['id']}", {"forced_down": down})
            assert answer.status_code == 200, answer.text

        before = guest(here)
        trial.pause(f"agent-{here}")
        try:
            await until(service, lambda seen: seen["state"] == "down")
            await force(True)
            asked = await admin.compute("POST", f"/servers/{server}/action", {"evacuate": {}})
            assert asked.status_code == 200, asked.text
            seen = await admin.settled(server)
            there = seen["OS-EXT-SRV-ATTR:host"]
            assert (cell[there], there != here) == (cell[here], True), seen.get("fault")
            assert guest(here) == before
        finally:
            trial.resume(f"agent-{here}")
        bound = await show_port(admin, port["id"])
        assert bound["binding:host_id"] == there

        async def left() -> list[str]:
            hosts = guests_on_disk(trial.config.data)[server]
            with contextlib.suppress(FileNotFoundError):
                assert guest(here).boots == before.boots, "it started it again"
            return hosts

        await until(left, lambda hosts: hosts == [there])

        async def moves() -> Any:
            return (await admin.compute("GET", "/os-migrations", instance_uuid=server)).json()["migrations"]

        await until(moves, lambda rows: rows[0]["status"] == "completed")
        in_use = {name.partition(":")[0]: (await used(admin, id))[EGR] for name, id in tunnels.items()}
        assert in_use == {host: 1_000 if host == there else 0 for host in cell}
        now = await show_port(admin, port["id"])
        assert (now["revision_number"], now["binding:host_id"]) == (bound["revision_number"], there)
        await force(False)

        async def start() -> int:
            return (await admin.compute("POST", f"/servers/{server}/action", {"os-start": None})).status_code

        await until(start, lambda status: status == 202)
        await until(lambda: admin.settled(server), lambda shown: shown["status"] == "ACTIVE")
        assert guest(there).power is PowerState.RUNNING
        await admin.gone(server)
        await nothing_leaked(trial.config, admin)
