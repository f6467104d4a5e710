"""Moves of a server with a guaranteed port beside a real Neutron: the binding, the allocation and what is used say the same (S1.17)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from beside import cloud_beside, dies, until, until_server
from guaranteed_site import BRIDGE, EGR, IGR, KBPS, KPPS, Site, admin, site  # noqa: F401  two of them are fixtures
from test_reporting import report, state

from moorage.main.config import Cell, Config, Hosts
from moorage.main.up import Cloud
from moorage.testing.peers.stack import Stack

pytestmark = pytest.mark.real

ASKED_KBPS = 6_000
"""More than half of what a host has: held twice on one host it would not fit."""
GUEST_HOST = "OS-EXT-SRV-ATTR:host"


@pytest.fixture
async def cloud(real_stack: Stack, tmp_path: Path) -> AsyncIterator[Cloud]:
    """All hosts are wired to physnet4; one that says nothing is soon silent."""
    async with cloud_beside(
        real_stack,
        tmp_path,
        Hosts(count=3, physical_networks=(("physnet1", "physnet4"),), beat_s=0.5),
        compute_port=real_stack.site.our_compute_port,
        placement_port=real_stack.site.our_placement_port,
        reported=True,
        host_silence_s=5.0,
        cells=(Cell("cell1"),),
    ) as started:
        yield started


@pytest.fixture
async def config(cloud: Cloud) -> Config:
    return cloud.config


class Moved:
    """A server with one guaranteed port, and what is said of it everywhere."""

    def __init__(self, site: Site, server: str, port: str) -> None:  # noqa: F811
        self.site, self.server, self.port = site, server, port

    async def shown(self) -> Any:
        return (await self.site.admin("compute", "GET", f"/servers/{self.server}"))["server"]

    async def host(self) -> str:
        return str((await self.shown())[GUEST_HOST])

    async def act(self, action: dict[str, Any], status: str = "ACTIVE") -> str:
        """The host that it is on afterwards. The network's agents of both hosts say before that they live."""
        for host in ("host1", "host3"):
            await report(self.site.admin, state(host, "physnet1", "physnet4", kbps=KBPS, kpps=KPPS))
        await self.site.admin("compute", "POST", f"/servers/{self.server}/action", action)
        told = await until(self.operation, lambda seen: seen["status"] != "open")
        shown = await self.shown()
        assert (shown["status"], told["status"]) == (status, "done"), told
        return str(shown[GUEST_HOST])

    async def operation(self) -> Any:
        """The last one."""
        told = await self.site.admin("compute", "GET", f"/ext/servers/{self.server}/explain")
        return told["explain"]["operations"][-1]

    async def is_on(self, host: str, *, left: str, held: bool = False) -> None:
        """`held`: the host that it left keeps its part, and inactive bindings, for a revert."""
        network, provider = self.site.admin, await self.site.id_of(f"{host}:{BRIDGE}")
        port = (await network("network", "GET", f"/ports/{self.port}"))["port"]
        assert (port["binding:host_id"], port["binding:vif_type"]) == (host, "ovs")
        assert list(port["binding:profile"]["allocation"].values()) == [provider]
        bindings = (await network("network", "GET", f"/ports/{self.port}/bindings"))["bindings"]
        there = {each["host"]: each["status"] for each in bindings}
        assert there == ({host: "ACTIVE", left: "INACTIVE"} if held else {host: "ACTIVE"})
        allocation = (await network("placement", "GET", f"/allocations/{self.server}"))["allocations"]
        assert allocation[provider]["resources"] == {EGR: ASKED_KBPS}
        assert await self.site.used(f"{host}:{BRIDGE}") == {EGR: ASKED_KBPS, IGR: 0}
        assert await self.site.used(f"{left}:{BRIDGE}") == {EGR: ASKED_KBPS if held else 0, IGR: 0}


async def test_a_guaranteed_port_keeps_its_guarantee_in_every_move(site: Site, cloud: Cloud) -> None:  # noqa: F811
    """Resized and reverted, migrated and confirmed, live migrated, evacuated."""
    network, policy = await site.network(), await site.policy(ASKED_KBPS)
    asked = {"port": {"network_id": network, "qos_policy_id": policy, "name": "guaranteed"}}
    port = (await site.alice("network", "POST", "/ports", asked))["port"]["id"]
    moved = Moved(site, await site.boot(port=port), port)
    await until_server(site.admin, moved.server, "ACTIVE")
    here = await moved.host()
    there = "host3" if here == "host1" else "host1"

    assert await moved.act({"migrate": None}, "VERIFY_RESIZE") == there
    await moved.is_on(there, left=here, held=True)
    assert await moved.act({"revertResize": None}) == here
    await moved.is_on(here, left=there)

    assert await moved.act({"migrate": None}, "VERIFY_RESIZE") == there
    assert await moved.act({"confirmResize": None}) == there
    await until(lambda: site.used(f"{here}:{BRIDGE}"), lambda used: not any(used.values()))
    await moved.is_on(there, left=here)

    assert await moved.act({"os-migrateLive": {"host": None, "block_migration": "auto"}}) == here
    await moved.is_on(here, left=there)

    await dies(cloud, site.admin, here)
    assert await moved.act({"evacuate": {}}) == there
    plan = next(plan for plan in cloud.plans if plan.host == here)
    await cloud.fleet.restart(plan)
    await until(lambda: site.used(f"{here}:{BRIDGE}"), lambda used: not any(used.values()))
    await moved.is_on(there, left=here)

    await site.gone(moved.server)
    assert await site.used(f"{there}:{BRIDGE}") == {EGR: 0, IGR: 0}
    await site.admin("network", "DELETE", f"/ports/{port}")
