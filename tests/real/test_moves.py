"""Moves of a server with a guaranteed port with a real Neutron: the binding, the allocation and the usage agree (S1.17)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.helpers.real_neutron_guarantees import BRIDGE, EGR, IGR, KBPS, KPPS, Site, admin, site  # noqa: F401  two of them are fixtures
from tests.helpers.real_services_cloud import cloud_with_real_services, dies, until, until_server
from tests.real.test_reporting import assert_reported, report, state

from moorage.main.config import Cell, Config, Hosts
from moorage.main.up import RunningCloud
from moorage.model.errors import HostFailed
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real

ASKED_KBPS = 6_000
"""More than half of what a host has: held twice on one host it would not fit."""
GUEST_HOST = "OS-EXT-SRV-ATTR:host"
HOSTS = ("host1", "host2", "host3")
UNDER_WAY = {"open", "cleaning"}
LIVE: dict[str, Any] = {"os-migrateLive": {"host": None, "block_migration": "auto"}}


@pytest.fixture
async def cloud(real_stack: Stack, tmp_path: Path) -> AsyncIterator[RunningCloud]:
    """All hosts are wired to physnet4; one that says nothing is soon silent."""
    async with cloud_with_real_services(
        real_stack,
        tmp_path,
        Hosts(count=len(HOSTS), physical_networks=(("physnet1", "physnet4"),), beat_s=0.5),
        compute_port=real_stack.site.our_compute_port,
        placement_port=real_stack.site.our_placement_port,
        reported=True,
        host_silence_s=5.0,
        cells=(Cell("cell1"),),
    ) as started:
        yield started


@pytest.fixture
async def config(cloud: RunningCloud) -> Config:
    return cloud.config


@pytest.fixture
async def three(site: Site) -> AsyncIterator[Site]:  # noqa: F811
    """host2 has bandwidth on physnet4, too; afterwards it is wired as it was."""
    await assert_reported(site.admin, state("host2", "physnet1", "physnet4", kbps=KBPS, kpps=KPPS))
    try:
        yield site
    finally:
        await report(site.admin, state("host2", "physnet2"))


class Moved:
    """A server with one guaranteed port, and what is said of it everywhere."""

    def __init__(self, site: Site, cloud: RunningCloud | None, server: str, port: str) -> None:  # noqa: F811
        self.site, self.cloud, self.server, self.port = site, cloud, server, port

    @classmethod
    async def booted(cls, site: Site, cloud: RunningCloud | None = None) -> "Moved":  # noqa: F811
        """`cloud`: the one in this process, for those whose hosts are to refuse."""
        network, policy = await site.network(), await site.policy(ASKED_KBPS)
        asked = {"port": {"network_id": network, "qos_policy_id": policy, "name": "guaranteed"}}
        port = (await site.alice("network", "POST", "/ports", asked))["port"]["id"]
        made = cls(site, cloud, await site.boot(port=port), port)
        await until_server(site.admin, made.server, "ACTIVE")
        return made

    async def shown(self) -> Any:
        return (await self.site.admin("compute", "GET", f"/servers/{self.server}"))["server"]

    async def host(self) -> str:
        return str((await self.shown())[GUEST_HOST])

    async def order(self, action: dict[str, Any]) -> None:
        """The network's agents of all hosts say before that they live."""
        for host in HOSTS:
            await report(self.site.admin, state(host, "physnet1", "physnet4", kbps=KBPS, kpps=KPPS))
        await self.site.admin("compute", "POST", f"/servers/{self.server}/action", action)

    async def act(self, action: dict[str, Any], status: str = "ACTIVE") -> str:
        """The host that it is on afterwards."""
        await self.order(action)
        return await self.ended(status)

    async def ended(self, status: str = "ACTIVE", how: str = "done") -> str:
        """The last operation came to an end, and left it in that status."""
        assert_reported = await until(self.operations, lambda seen: seen[-1]["status"] not in UNDER_WAY)
        assert assert_reported[-1]["status"] == how, assert_reported[-1]
        shown = await until_server(self.site.admin, self.server, status)
        await until(self.operations, lambda seen: all(each["status"] not in UNDER_WAY for each in seen))
        return str(shown[GUEST_HOST])

    async def operations(self) -> Any:
        assert_reported = await self.site.admin("compute", "GET", f"/ext/servers/{self.server}/explain")
        return assert_reported["explain"]["operations"]

    async def bindings(self) -> dict[str, tuple[str, set[str]]]:
        """Host → its status, and the providers that it names."""
        found = (await self.site.admin("network", "GET", f"/ports/{self.port}/bindings"))["bindings"]
        return {each["host"]: (each["status"], set(each["profile"].get("allocation", {}).values())) for each in found}

    async def is_on(self, host: str, *, left: str = "") -> None:
        """`left`: the host that it left keeps its part, and inactive bindings, for a revert."""
        network, provider = self.site.admin, await self.site.id_of(f"{host}:{BRIDGE}")
        port = (await network("network", "GET", f"/ports/{self.port}"))["port"]
        assert (port["binding:host_id"], port["binding:vif_type"]) == (host, "ovs")
        assert list(port["binding:profile"]["allocation"].values()) == [provider]
        bound = {name: status for name, (status, _) in (await self.bindings()).items()}
        assert bound == ({host: "ACTIVE", left: "INACTIVE"} if left else {host: "ACTIVE"})
        allocation = (await network("placement", "GET", f"/allocations/{self.server}"))["allocations"]
        assert allocation[provider]["resources"] == {EGR: ASKED_KBPS}
        await self.used({host, left} - {""})

    async def used(self, by: set[str]) -> None:
        for host in HOSTS:
            held = ASKED_KBPS if host in by else 0
            assert await self.site.used(f"{host}:{BRIDGE}") == {EGR: held, IGR: 0}, host

    async def confirmed(self, host: str) -> None:
        assert await self.act({"confirmResize": None}) == host
        await self.is_on(host)

    async def other_flavor(self) -> str:
        """The smallest that its disk fits in."""
        flavors = (await self.site.admin("compute", "GET", "/flavors/detail"))["flavors"]
        mine = self.site.flavor
        disk = next(each["disk"] for each in flavors if each["id"] == mine)
        return str(min((each["ram"], each["id"]) for each in flavors if each["disk"] >= disk and each["id"] != mine)[1])

    async def shelved(self) -> None:
        """It is on no host, and holds nothing of any."""
        await self.order({"shelve": None})
        await self.ended("SHELVED_OFFLOADED")
        port = (await self.site.admin("network", "GET", f"/ports/{self.port}"))["port"]
        assert (port["binding:host_id"], port["device_id"]) == ("", self.server)
        await self.used(set())

    async def gone(self) -> None:
        await self.site.gone(self.server)
        await self.used(set())
        await self.site.admin("network", "DELETE", f"/ports/{self.port}")

    def refuse_once(self, patch: pytest.MonkeyPatch, verb: str) -> list[str]:
        """The hosts that are told to do that, of which the first refuses."""
        asked: list[str] = []
        assert self.cloud is not None
        for name, driver in self.cloud.fleet.drivers.items():
            real = getattr(driver, verb)

            async def first(*rest: Any, _name: str = name, _real: Any = real, **more: Any) -> Any:
                asked.append(_name)
                if len(asked) == 1:
                    raise HostFailed("it would not have it", code="guest_failed")
                return await _real(*rest, **more)

            patch.setattr(driver, verb, first)
        return asked


async def test_a_guaranteed_port_keeps_its_guarantee_in_every_move(three: Site, cloud: RunningCloud) -> None:
    """Resized and reverted, migrated and confirmed, live migrated, and that aborted, shelved, evacuated."""
    site, moved = three, await Moved.booted(three, cloud)  # noqa: F811
    here = await moved.host()
    await moved.is_on(here)
    other = await moved.other_flavor()

    there = await moved.act({"resize": {"flavorRef": other}}, "VERIFY_RESIZE")
    await moved.is_on(there, left=here)
    assert await moved.act({"revertResize": None}) == here
    await moved.is_on(here)
    there = await moved.act({"resize": {"flavorRef": other}}, "VERIFY_RESIZE")
    await moved.confirmed(there)

    here, there = there, await moved.act({"migrate": None}, "VERIFY_RESIZE")
    await moved.is_on(there, left=here)
    await moved.confirmed(there)

    here = await moved.act(LIVE)
    await moved.is_on(here)
    await _aborted(moved, cloud, here)

    await moved.shelved()
    here = await moved.act({"unshelve": None})
    await moved.is_on(here)

    await dies(cloud, site.admin, here)
    there = await moved.act({"evacuate": {}})
    assert there != here
    plan = next(plan for plan in cloud.plans if plan.host == here)
    await cloud.fleet.restart(plan)
    await until(lambda: site.used(f"{here}:{BRIDGE}"), lambda used: not any(used.values()))
    await moved.is_on(there)
    await moved.gone()


async def _aborted(moved: Moved, cloud: RunningCloud, here: str) -> None:
    """While it is sent, an inactive binding names what was claimed at the destination (S1.6); then nothing of that is left (S1.8)."""
    driver, admin = cloud.fleet.drivers[here], moved.site.admin  # noqa: F811
    dials = driver.dials
    driver.turn(msgspec.structs.replace(dials, live_mib_per_s=1.0))
    await moved.order(LIVE)
    path = f"/servers/{moved.server}/migrations"

    async def sent() -> Any:
        return (await admin("compute", "GET", path))["migrations"]

    (move,) = await until(sent, lambda rows: [each["status"] for each in rows] == ["running"])
    there = move["dest_compute"]
    assert await moved.bindings() == {
        here: ("ACTIVE", {await moved.site.id_of(f"{here}:{BRIDGE}")}),
        there: ("INACTIVE", {await moved.site.id_of(f"{there}:{BRIDGE}")}),
    }
    await moved.used({here, there})
    await admin("compute", "DELETE", f"{path}/{move['id']}")
    assert await moved.ended(how="undone") == here
    driver.turn(dials)
    await moved.is_on(here)


@pytest.mark.parametrize(
    ("how", "verb"),
    [
        ("migrate", "take_guest"),
        ("resize", "take_guest"),
        ("os-migrateLive", "prepare_live"),
        ("unshelve", "start_guest"),
        ("evacuate", "start_guest"),
    ],
)
async def test_a_guarantee_goes_to_the_next_host_where_the_first_refuses(
    three: Site, cloud: RunningCloud, monkeypatch: pytest.MonkeyPatch, how: str, verb: str
) -> None:
    """S1.9, S1.18: by then the port was bound there, inactive or for good, with the provider of that host."""
    moved = await Moved.booted(three, cloud)
    here = await moved.host()
    action: dict[str, Any] = {how: None}
    if how == "resize":
        action = {how: {"flavorRef": await moved.other_flavor()}}
    elif how == "os-migrateLive":
        action = LIVE
    elif how == "unshelve":
        await moved.shelved()
    elif how == "evacuate":
        action = {how: {}}
        await dies(cloud, three.admin, here)
    asked = moved.refuse_once(monkeypatch, verb)
    cold = how in {"migrate", "resize"}
    there = await moved.act(action, "VERIFY_RESIZE" if cold else "ACTIVE")
    assert asked[1:] == [there], asked
    assert how == "unshelve" or len({here, there, *asked}) == len(HOSTS)
    if cold:
        await moved.is_on(there, left=here)
        await moved.confirmed(there)
    if how == "evacuate":  # what it left holds its part until it is seen to be gone there
        await cloud.fleet.restart(next(plan for plan in cloud.plans if plan.host == here))
        await until(lambda: three.used(f"{here}:{BRIDGE}"), lambda used: not any(used.values()))
    await moved.is_on(there)
    await moved.gone()
