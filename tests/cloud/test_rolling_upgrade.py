"""A fleet is upgraded under load: agents of level 1, 2 and 3, gates that open and close, boots under way (S0.5 to S0.12, S0.22).

Every write to the network service is counted where it is made: by the conductor's client, or by one that only old hosts have.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from tests.cloud.conftest import Running, Start

from moorage.cli import status
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts, UpgradeLevels
from moorage.main.hosts import HostPlan
from moorage.main.service_clients import Clients, make_clients
from moorage.model.ids import ConductorId
from moorage.model.network import minted_macs
from moorage.store.region import conductors
from moorage_testing.waiting import until

Level = Literal[1, 2, 3]
ONE_WIRE = (("physnet1",),)
FAR = ConductorId("far")


def fleet(*levels: Level) -> Hosts:
    return Hosts(count=len(levels), physical_networks=ONE_WIRE, levels=levels, beat_s=0.2)


class Upgrading:
    """A running cloud whose old hosts have a network client of their own, so that their calls can be told from the conductor's."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.cloud = running.cloud
        self.clients: Clients = make_clients(running.config, self.cloud.embedded.apps)
        self.cloud.fleet._plumber = self.clients.network
        self.plans: dict[str, HostPlan] = {plan.host: plan for plan in self.cloud.plans}

    @classmethod
    async def of(cls, running: Running) -> "Upgrading":
        found = cls(running)
        for host in found.plans:
            await found.set_level(host, found.plans[host].level)
        return found

    async def set_level(self, host: str, level: int) -> None:
        """The host's agent is stopped, exchanged and started again."""
        await self.cloud.fleet.agents[host].stop()
        self.plans[host] = HostPlan(host, self.plans[host].cell, self.plans[host].physical_networks, level)
        await self.cloud.fleet.restart(self.plans[host])
        world = self.cloud.region.engine.world
        await until(lambda: int(world().level[world().slots_by_name[host]]) == level)

    def writes_by_hosts(self) -> dict[str, int]:
        return self._writes(self.clients)

    def writes_by_conductor(self) -> dict[str, int]:
        return self._writes(self.cloud.region.clients)

    @staticmethod
    def _writes(clients: Clients) -> dict[str, int]:
        (network,) = [each for each in clients.services if each.name == "network"]
        return {what: count for what, count in network.calls.items() if not what.startswith("GET")}

    async def gates(self) -> dict[str, Any]:
        reply = await self.running.admin.compute("GET", "/ext/gates")
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()["gates"]
        return found

    async def open_gates(self) -> tuple[bool, bool]:
        told = {each["name"]: each["open"] for each in (await self.gates())["gates"]}
        return told["early_ports"], told["bind_in_conductor"]

    async def port_of(self, server: str) -> dict[str, Any]:
        (port,) = (await self.running.admin.network("GET", "/ports", device_id=server)).json()["ports"]
        assert port["mac_address"] in minted_macs(server)
        found: dict[str, Any] = port
        return found

    async def close(self) -> None:
        await self.clients.close()


async def users_port(running: Running) -> str:
    network = await running.admin.id_of("network", "private")
    made = await running.admin.network("POST", "/ports", {"port": {"network_id": network}})
    return str(made.json()["port"]["id"])


async def release_unbuilt(running: Running, port: str) -> None:
    """ERROR is shown when the saga turns; its cleaning goes on for a moment (RULES §12)."""
    async with asyncio.timeout(180):
        while (await running.admin.network("GET", f"/ports/{port}")).json()["port"]["device_id"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


WAYS = {
    (1, 1): ((False, False), {"POST ports": 1, "PUT ports": 1}, {}),
    (1, 2): ((False, False), {"POST ports": 1, "PUT ports": 1}, {}),
    (2, 2): ((True, False), {"PUT ports": 1}, {"POST ports": 1}),
    (3, 3): ((True, True), {}, {"POST ports": 1, "PUT ports": 1}),
}


@pytest.mark.parametrize("levels", sorted(WAYS))
async def test_who_makes_and_who_binds_ports_at_each_level(start: Start, levels: tuple[Level, ...]) -> None:
    """The four fleets of S0.9 and S0.12; and on delete ours are deleted, the user's let go (S0.8)."""
    opened, by_hosts, by_conductor = WAYS[levels]
    async with start(hosts=fleet(*levels)) as running:
        at = await Upgrading.of(running)
        assert await at.open_gates() == opened
        before = at.writes_by_conductor()
        server = await running.admin.active("one")
        assert at.writes_by_hosts() == by_hosts
        assert _grown(before, at.writes_by_conductor()) == by_conductor
        port = await at.port_of(server["id"])
        assert port["binding:host_id"] == server["OS-EXT-SRV-ATTR:host"]
        (shown,) = server["addresses"]["private"]
        assert (shown["addr"], shown["OS-EXT-IPS-MAC:mac_addr"]) == (
            port["fixed_ips"][0]["ip_address"],
            port["mac_address"],
        )
        brought = await users_port(running)
        second = await running.admin.active("two", networks=[{"port": brought}])
        await running.admin.gone(server["id"])
        await running.admin.gone(second["id"])
        deletes = at.writes_by_hosts().get("DELETE ports", 0) + at.writes_by_conductor().get("DELETE ports", 0)
        assert deletes == 1, "ours, and ours only"
        assert at.writes_by_hosts().get("DELETE ports", 0) == (0 if levels == (3, 3) else 1), "by an old host itself"
        left = (await running.admin.network("GET", f"/ports/{brought}")).json()["port"]
        assert (left["device_id"], left["binding:host_id"]) == ("", "")
        await at.close()


def _grown(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {what: count - before.get(what, 0) for what, count in now.items() if count > before.get(what, 0)}


@pytest.mark.parametrize("levels", [(1, 1, 1), (1, 2, 3), (2, 3, 2), (3, 1, 3)])
async def test_a_failed_build_hands_its_ports_on(start: Start, levels: tuple[Level, ...]) -> None:
    """S0.5: whatever the levels of the hosts that try, one POST per port, the same id and MAC, and ours stays ours."""
    async with start(hosts=fleet(*levels)) as running:
        at = await Upgrading.of(running)
        for host in at.plans:
            running.dial(host, start_guest=VerbDial(fail_times=1, fail_when="after"))
        before = at.writes_by_conductor()
        brought = await users_port(running)
        networks = [{"uuid": await running.admin.id_of("network", "private")}, {"port": brought}]
        server = await running.admin.settled(await running.admin.boot("handed-on", networks=networks))
        assert server["status"] == "ERROR", "three hosts, three attempts, each failed once"
        posts = at.writes_by_hosts().get("POST ports", 0) + _grown(before, at.writes_by_conductor()).get(
            "POST ports", 0
        )
        assert posts == 1
        await release_unbuilt(running, brought)
        second = await running.admin.active("works-now", networks=networks)
        assert len(second["addresses"]["private"]) == 2
        await running.admin.gone(second["id"])
        await running.admin.gone(server["id"])
        assert (await running.admin.network("GET", f"/ports/{brought}")).json()["port"]["device_id"] == ""
        await at.close()


async def test_boots_are_under_way_while_each_gate_opens_and_closes(start: Start) -> None:
    """Old only → mixed → new, and back again; whatever was begun ends as it was begun (RULES §13)."""
    async with start(hosts=fleet(1, 1, 1)) as running:
        at = await Upgrading.of(running)
        seen = [await at.open_gates()]
        servers: list[str] = []
        running.set_faults_everywhere(start_guest=VerbDial(delay_s=0.2))
        before = at.writes_by_conductor()
        path: list[tuple[str, Level]] = [
            *(("host1", 2), ("host2", 2), ("host3", 2)),
            *(("host1", 3), ("host2", 3), ("host3", 3)),
            *(("host2", 2), ("host3", 1), ("host2", 3), ("host3", 3)),
        ]
        for host, level in path:
            servers += await asyncio.gather(*(running.admin.boot(f"to-{level}-{n}-of-{host}") for n in range(3)))
            await at.set_level(host, level)
            seen.append(await at.open_gates())
        shut, half, whole = (False, False), (True, False), (True, True)
        assert seen == [shut, shut, shut, half, half, half, whole, half, shut, shut, whole]
        found = await asyncio.gather(*(running.admin.settled(each) for each in servers))
        assert [each["fault"] for each in found if each["status"] != "ACTIVE"] == []
        posts = at.writes_by_hosts().get("POST ports", 0) + _grown(before, at.writes_by_conductor()).get(
            "POST ports", 0
        )
        assert posts <= len(servers), "one POST per port at most: ports that are made together share one"
        for each in found:
            assert (await at.port_of(each["id"]))["binding:host_id"] == each["OS-EXT-SRV-ATTR:host"]
        await asyncio.gather(*(running.admin.gone(each) for each in servers))
        assert not (await running.admin.network("GET", "/ports", device_owner="compute:nova")).json()["ports"]
        await at.close()


async def test_a_pinned_new_fleet_keeps_the_old_behaviour(start: Start) -> None:
    async with start(hosts=fleet(2, 2), upgrade_levels=UpgradeLevels(compute=1)) as running:
        at = await Upgrading.of(running)
        await running.admin.active("pinned")
        assert at.writes_by_hosts() == {"POST ports": 1, "PUT ports": 1}
        told = await at.gates()
        assert told["pin"] == 1
        assert told["warnings"]
        assert told["gates"][0]["reasons"] == ["pinned to level 1 by [upgrade_levels] compute"]
        await at.close()


async def test_a_removed_host_blocks_no_gate(start: Start) -> None:
    async with start(hosts=fleet(1, 3)) as running:
        at = await Upgrading.of(running)
        assert await at.open_gates() == (False, False)
        await at.cloud.fleet.agents["host1"].stop()
        assert await at.open_gates() == (False, False), "silent, but it may be back"
        (service,) = (await running.admin.compute("GET", "/os-services", host="host1")).json()["services"]
        assert (await running.admin.compute("DELETE", f"/os-services/{service['id']}")).status_code == 204
        await running.cloud.region.engine.catch_up()
        assert await at.open_gates() == (True, True)
        await at.close()


async def test_gates_are_shown_to_administrators_only(running: Running) -> None:
    answer = (await running.admin.compute("GET", "/ext/gates")).json()["gates"]
    assert answer["levels"] == {"3": 6}
    assert answer["credentials"] == "working"
    assert [gate["open"] for gate in answer["gates"]] == [True, True]
    async with running.person("demo", "demo") as demo:
        assert (await demo.compute("GET", "/ext/gates")).status_code == 403


async def test_a_conductor_without_the_bus_is_shown(running: Running) -> None:
    region, host = running.cloud.region.databases.region, "elsewhere"
    await region.write(lambda tx: conductors.take(tx, FAR, [], host, ["boot/1"], reaches_bus=False))
    gates = (await running.admin.compute("GET", "/ext/gates")).json()["gates"]
    assert gates["without_bus"] == [{"conductor": FAR, "host": host, "has_lease": True}]
    assert "its operations wait" in status.without_bus(gates)[1]
    await region.write(lambda tx: conductors.retire(tx, FAR))  # it left its work to others
    gates = (await running.admin.compute("GET", "/ext/gates")).json()["gates"]
    assert gates["without_bus"] == [{"conductor": FAR, "host": host, "has_lease": False}]
    assert "go on at other conductors" in status.without_bus(gates)[1]
    await region.write(lambda tx: conductors.take(tx, ConductorId("far-2"), [], host, ["boot/1"]))  # it is back
    gates = (await running.admin.compute("GET", "/ext/gates")).json()["gates"]
    assert gates["without_bus"] == []
    await region.write(lambda tx: conductors.retire(tx, ConductorId("far-2")))
