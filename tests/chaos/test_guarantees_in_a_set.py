"""Guaranteed bandwidth where the network service is a process of its own: at the first boot, and when a policy is changed."""

import asyncio
from collections.abc import Iterator

import pytest
from guaranteed import EGR, made, network_on, placement, policy_of, show_port

from moorage.testing.census import nothing_leaked
from moorage.testing.nats import nats_server_program
from moorage.testing.person import Person
from moorage.testing.postgres import find_binaries
from moorage.testing.set import TrialSet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialSet]:
    trial = TrialSet(tmp_path_factory.mktemp("set"), hosts=2, apis=1, conductors=1, durability="none")
    try:
        trial.start()
        yield trial
    finally:
        trial.stop()


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


async def test_the_compute_api_is_told_what_happens_to_ports(trial: TrialSet) -> None:
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
