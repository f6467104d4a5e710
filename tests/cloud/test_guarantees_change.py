"""Policies that change while their ports are bound: the claim follows, and only what does not fit is refused.

The scenarios are those that Tempest has for the real pair (`test_qos_min_bw_allocation_update_policy*`,
`test_qos_policy_update_on_bound_port*`), and then those of networks and of rules.
"""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.helpers.guaranteed_ports import (
    EGR,
    IGR,
    KBPS,
    KPPS,
    PPS,
    made,
    network_on,
    placement,
    policy_of,
    providers,
    show_port,
)

from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.main.config import Hosts
from moorage.main.guarantees import GuaranteesOverHttp
from moorage.main.service_clients import make_own_apis
from moorage.model.ids import ServerId
from moorage.operations.steps import servers as records
from moorage_testing.api_user import Person

ONE = Hosts(count=1, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=KPPS)


@dataclass
class Scene:
    """One host, a network on its wire, and the providers below it."""

    running: Running
    network: str
    bridge: str
    agent: str

    @property
    def admin(self) -> Person:
        return self.running.admin

    async def server(self, *policies: str | None, network: str | None = None) -> tuple[str, list[str]]:
        """An ACTIVE server with a port for each policy."""
        ports = []
        for policy in policies:
            more = {} if policy is None else {"qos_policy_id": policy}
            ports.append(
                str((await made(self.admin, "/ports", "port", network_id=network or self.network, **more))["id"])
            )
        made_now = await self.admin.active(networks=[{"port": each} for each in ports])
        return str(made_now["id"]), ports

    async def claimed(self, server: str) -> dict[str, int]:
        """Class → what the server holds of the bridge and of the agent."""
        rows = (await placement(self.admin, f"/allocations/{server}"))["allocations"]
        return {
            name: amount
            for provider in (self.bridge, self.agent)
            for name, amount in rows.get(provider, {"resources": {}})["resources"].items()
        }

    async def named(self, port: str) -> set[str]:
        """The providers that the port's binding names."""
        profile = (await show_port(self.admin, port))["binding:profile"]
        return set(profile.get("allocation", {}).values())

    async def change(self, port: str, policy: str | None) -> int:
        return (await self.admin.network("PUT", f"/ports/{port}", {"port": {"qos_policy_id": policy}})).status_code

    async def agrees(self, server: str) -> None:
        """The record follows, and the round that compares all finds nothing more to mend."""
        region = self.running.cloud.region
        wanted = await self.claimed(server)
        deadline = time.monotonic() + 180
        while True:
            found = (await records.find(region.context, ServerId(server))).server
            assert found is not None
            recorded: dict[str, int] = {}
            for nic in found.nics:
                for _, name, amount in nic.guarantees:
                    recorded[name] = recorded.get(name, 0) + amount
            if recorded == wanted:
                break
            assert time.monotonic() < deadline, (recorded, wanted)
            await region.clock.sleep(0.05)
        done = await PortDrift(region.context).run()
        assert (done.mended, done.amiss) == ((), ())
        assert await self.claimed(server) == wanted


CLOUD = {"hosts": ONE}
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", params=["in one process", "by the Placement API"])
async def scene(shared: Shared, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """The network service reaches the claims as in `moorage up`, and as in a role of its own."""
    async with shared.for_a_test() as running, AsyncExitStack() as stack:
        service = running.cloud.embedded.network
        assert service is not None
        if request.param == "by the Placement API":
            own = make_own_apis(running.config)
            stack.push_async_callback(own.close)
            stack.callback(setattr, service._runner, "_guarantees", service._runner._guarantees)
            service._runner._guarantees = GuaranteesOverHttp(own.placement)
        found = await providers(running.admin)
        network = await network_on(running.admin, "physnet1")
        yield Scene(running, network, found["host1:Open vSwitch agent:br-physnet1"], found["host1:Open vSwitch agent"])


async def test_a_changed_port_policy_is_reclaimed_and_refused_when_it_does_not_fit(scene: Scene) -> None:
    one, two = await policy_of(scene.admin, ingress_kbps=1_000), await policy_of(scene.admin, ingress_kbps=2_000)
    most = await policy_of(scene.admin, ingress_kbps=2**31 - 1)
    server, (port,) = await scene.server(one)
    for policy, amount in ((two, 2_000), (one, 1_000)):
        assert await scene.change(port, policy) == 200
        assert await scene.claimed(server) == {IGR: amount}
        assert await scene.named(port) == {scene.bridge}
        await scene.agrees(server)
    before = await show_port(scene.admin, port)
    refused = await scene.admin.network("PUT", f"/ports/{port}", {"port": {"qos_policy_id": most}})
    assert refused.status_code == 409
    assert refused.json()["NeutronError"]["type"] == "QosPlacementAllocationUpdateConflict"
    assert await scene.claimed(server) == {IGR: 1_000}
    assert await show_port(scene.admin, port) == before
    assert (await scene.admin.network("PUT", f"/ports/{port}", {"port": {"description": "foo"}})).status_code == 200
    assert await scene.claimed(server) == {IGR: 1_000}
    await scene.admin.gone(server)


async def test_adding_and_removing_a_policy_claims_and_releases_all(scene: Scene) -> None:
    """Which provider would give it, only the scheduler decides: what was not asked at the boot is the data plane's alone."""
    policy = await policy_of(scene.admin, ingress_kbps=1_000)
    server, (without, with_one) = await scene.server(None, policy)
    assert await scene.change(without, policy) == 200
    assert await scene.claimed(server) == {IGR: 1_000}
    assert await scene.named(without) == set()
    assert await scene.change(without, None) == 200
    assert await scene.change(with_one, None) == 200
    assert await scene.claimed(server) == {}
    assert await scene.named(with_one) == set()
    await scene.agrees(server)
    await scene.admin.gone(server)


async def test_only_the_changed_port_of_two_is_reclaimed(scene: Scene) -> None:
    one, two = await policy_of(scene.admin, ingress_kbps=1_000), await policy_of(scene.admin, ingress_kbps=2_000)
    server, (first, _) = await scene.server(one, two)
    assert await scene.claimed(server) == {IGR: 3_000}
    assert await scene.change(first, two) == 200
    assert await scene.claimed(server) == {IGR: 4_000}
    await scene.agrees(server)
    detached = await scene.admin.compute("DELETE", f"/servers/{server}/os-interface/{first}")
    assert detached.status_code == 202
    deadline = time.monotonic() + 180
    while await scene.claimed(server) != {IGR: 2_000}:
        assert time.monotonic() < deadline
        await scene.running.cloud.region.clock.sleep(0.05)
    await scene.admin.gone(server)


async def test_the_other_direction_and_bandwidth_with_packets(scene: Scene) -> None:
    ingress, egress = await policy_of(scene.admin, ingress_kbps=1_000), await policy_of(scene.admin, kbps=1_000)
    server, (port,) = await scene.server(ingress)
    assert await scene.change(port, egress) == 200
    assert await scene.claimed(server) == {EGR: 1_000}
    await scene.agrees(server)
    await scene.admin.gone(server)

    both, other = await policy_of(scene.admin, kbps=1_000, kpps=70), await policy_of(scene.admin, kbps=2_000, kpps=50)
    server, (port,) = await scene.server(both)
    assert await scene.change(port, other) == 200
    assert await scene.claimed(server) == {EGR: 2_000, PPS: 50}
    assert await scene.named(port) == {scene.bridge, scene.agent}
    await scene.agrees(server)
    assert await scene.change(port, egress) == 200  # a kind less
    assert await scene.claimed(server) == {EGR: 1_000}
    assert await scene.named(port) == {scene.bridge}
    assert await scene.change(port, other) == 200  # and a kind more, that has no provider
    assert await scene.claimed(server) == {EGR: 2_000}
    assert await scene.named(port) == {scene.bridge}
    ways = await policy_of(scene.admin)
    rule = {"min_kpps": 5, "direction": "egress"}
    await made(scene.admin, f"/qos/policies/{ways}/minimum_packet_rate_rules", "minimum_packet_rate_rule", **rule)
    assert await scene.change(port, ways) == 501
    await scene.admin.gone(server)


async def test_a_networks_policy_is_changed_for_all_its_servers_or_none(scene: Scene) -> None:
    half, less = await policy_of(scene.admin, kbps=KBPS // 2), await policy_of(scene.admin, kbps=2_000)
    more = await policy_of(scene.admin, kbps=KBPS // 2 + 1)
    own = await policy_of(scene.admin, kpps=1)
    network = await network_on(scene.admin, "physnet1", qos_policy_id=half)
    (first, _), (second, (mine, _)) = (
        await scene.server(None, network=network),
        await scene.server(None, own, network=network),
    )
    path = f"/networks/{network}"
    refused = await scene.admin.network("PUT", path, {"network": {"qos_policy_id": more}})
    assert refused.status_code == 409, "each would fit, and both do not"
    assert (await scene.admin.network("GET", path)).json()["network"]["qos_policy_id"] == half
    assert await scene.claimed(first) == {EGR: KBPS // 2}
    assert (await scene.admin.network("PUT", path, {"network": {"qos_policy_id": less}})).status_code == 200
    assert await scene.claimed(first) == {EGR: 2_000}
    assert await scene.claimed(second) == {EGR: 2_000, PPS: 1}
    assert (await show_port(scene.admin, mine))["qos_network_policy_id"] == less
    for each in (first, second):
        await scene.agrees(each)
        await scene.admin.gone(each)


async def test_rules_are_changed_added_and_removed_under_a_server(scene: Scene) -> None:
    policy = await policy_of(scene.admin, kbps=1_000)
    server, (port,) = await scene.server(policy)
    rules = f"/qos/policies/{policy}/minimum_bandwidth_rules"
    (rule,) = (await scene.admin.network("GET", rules)).json()["minimum_bandwidth_rules"]

    async def changed(kbps: int) -> int:
        body = {"minimum_bandwidth_rule": {"min_kbps": kbps}}
        return (await scene.admin.network("PUT", f"{rules}/{rule['id']}", body)).status_code

    assert await changed(3_000) == 200
    assert await scene.claimed(server) == {EGR: 3_000}
    assert await changed(KBPS + 1) == 409
    assert await scene.claimed(server) == {EGR: 3_000}
    added = await made(scene.admin, rules, "minimum_bandwidth_rule", min_kbps=500, direction="ingress")
    assert await scene.claimed(server) == {EGR: 3_000, IGR: 500}
    await scene.agrees(server)
    for gone, left in ((added["id"], {EGR: 3_000}), (rule["id"], {})):
        assert (await scene.admin.network("DELETE", f"{rules}/{gone}")).status_code == 204
        assert await scene.claimed(server) == left
    assert await scene.named(port) == set()
    await scene.agrees(server)
    await scene.admin.gone(server)


async def test_a_refused_policy_change_leaves_no_claim(scene: Scene) -> None:
    """What was claimed for it is given back: the port was changed by somebody else between the look and the write."""
    one, two = await policy_of(scene.admin, kbps=1_000), await policy_of(scene.admin, kbps=2_000)
    server, (port,) = await scene.server(one)
    service = scene.running.cloud.embedded.network
    assert service is not None
    asked = service._runner._guarantees
    assert asked is not None
    renamed: list[Any] = []

    async def interfering(changes: Any, must_be: bool) -> bool:
        done = await asked(changes, must_be)
        if not renamed:
            renamed.append(await scene.admin.network("PUT", f"/ports/{port}", {"port": {"name": "renamed"}}))
        return done

    service._runner._guarantees = interfering
    revision = (await show_port(scene.admin, port))["revision_number"]
    refused = await scene.admin.http.put(
        f"{scene.running.config.api.network.url}/v2.0/ports/{port}",
        json={"port": {"qos_policy_id": two}},
        headers={"If-Match": f"revision_number={revision}"},
    )
    service._runner._guarantees = asked
    assert [each.status_code for each in renamed] == [200]
    assert refused.status_code == 412
    assert await scene.claimed(server) == {EGR: 1_000}
    await scene.agrees(server)
    await scene.admin.gone(server)
