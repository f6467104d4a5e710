"""Live migration in a whole cloud: the server runs on another host, with its ports and volumes, and was silent only during the switch."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_resize import letter
from tests.cloud.test_shelve import act, actions, guests, held, neighbours_of, ports, until
from tests.cloud.test_volume_backed import backed
from tests.cloud.test_volumes import attached
from tests.helpers.guaranteed_ports import (
    EGR,
    KBPS,
    made,
    network_on,
    placement,
    policy_of,
    port_on,
    providers,
    show_port,
    used,
)
from tests.helpers.live_migrated_cloud import LIVE, SLOW, ended, silences, turned, under_way
from tests.helpers.resized_cloud import asked as acted
from tests.helpers.resized_cloud import assert_nothing_to_repair, disk, host_of, migrations, power, quota

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.seed_data import ROUTED
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"hosts": Hosts(count=6, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=100)}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


class Late(SystemClock):
    """How much later than it was asked for it woke somebody, at the worst."""

    worst_s = 0.0

    async def sleep(self, seconds: float) -> None:
        began = self.now()
        await super().sleep(seconds)
        self.worst_s = max(self.worst_s, self.now() - began - seconds)


@pytest.mark.parametrize("network", ["private", ROUTED])
async def test_a_running_server_changes_hosts(running: Running, network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, clock = await quota(running), Late()
    server = await running.admin.active("a", networks=network)
    letter(running, server)
    whole, id, source = disk(running, server), server["id"], host_of(server)
    turned(running, source, live_switch_s=0.05)
    monkeypatch.setattr(running.cloud.fleet.drivers[source], "_clock", clock)
    assert (await act(running, id, LIVE)).status_code == 202
    there = await ended(running, id, "completed")
    turned(running, source, live_switch_s=0.0)
    assert host_of(there) != source
    assert disk(running, there) == whole
    assert there["addresses"] == server["addresses"]
    assert there["OS-SRV-USG:launched_at"] == server["OS-SRV-USG:launched_at"]
    assert guests(running, id) == [host_of(there)]
    assert power(running, host_of(there), id) is PowerState.RUNNING
    assert running.cloud.fleet.drivers[host_of(there)]._of(ServerId(id)).boots == 1
    (silent,) = silences(running, there)
    assert 0.05 <= silent < 2.0 + clock.worst_s, "the switch alone"
    assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(there)}
    (move,) = await migrations(running, id)
    assert (move["source_compute"], move["dest_compute"]) == (source, host_of(there))
    assert (await held(running, id))["MEMORY_MB"] == 128
    assert await held(running, move["uuid"]) == {}
    assert await quota(running) == (before[0] + 1, before[1] + 128)
    assert [each for each, _ in await actions(running, id)] == ["live-migration", "create"]
    await assert_nothing_to_repair(running)


async def test_a_server_stays_when_every_host_refuses(running: Running) -> None:
    """Every check before the move, and a transfer that fails: it is where it was, and asked before 2.34 the reason is the answer."""
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    others = [host for host in running.cloud.fleet.drivers if host != source]
    for asked, why in (
        ({"host": source, "block_migration": "auto"}, "to current host"),
        ({"host": "nowhere", "block_migration": "auto"}, "Compute host nowhere could not be found."),
        ({"host": None, "block_migration": False}, "without shared storage"),
    ):
        reply = await act(running, id, {"os-migrateLive": asked}, "2.25")
        assert (reply.status_code, why in reply.text) == (400, True), reply.text
        await running.admin.settled(id)
    for host in running.cloud.fleet.drivers:
        turned(running, host, shared_storage="nfs")
    shared = await act(running, id, {"os-migrateLive": {"host": None, "block_migration": True}}, "2.25")
    assert (shared.status_code, "Block migration can not be used with shared storage" in shared.text) == (400, True)
    await running.admin.settled(id)
    for host in running.cloud.fleet.drivers:
        turned(running, host, shared_storage="")
    for changes in ({"cpu_model": "newer"}, {"hypervisor_version": 1}):
        for host in others:
            turned(running, host, **changes)
        assert (await act(running, id, LIVE, "2.25")).status_code == 400
        for host in others:
            turned(running, host, cpu_model="simulated", hypervisor_version=1_000_000)
        assert host_of(await ended(running, id, "error")) == source
    turned(running, source, verbs={"live_transfer": VerbDial(fail_times=1)})
    assert (await act(running, id, LIVE)).status_code == 202
    assert host_of(await ended(running, id, "failed")) == source
    turned(running, source, verbs={})
    assert guests(running, id) == [source]
    assert silences(running, server) == ()
    await assert_nothing_to_repair(running)


async def test_guaranteed_ports_follow_the_host_that_is_found_in_the_end(running: Running, monkeypatch: Any) -> None:
    """S1.17 and S1.18: the allocation is where the server is, the old ones are gone, and the binding names the right provider."""
    admin = running.admin
    policy, network = await policy_of(admin, kbps=KBPS // 2), await network_on(admin, "physnet1")
    port = await port_on(admin, network, policy)
    server = await admin.active("a", networks=[{"port": port["id"]}])
    id, source, names = server["id"], host_of(server), await providers(admin)
    tried = list[str]()

    def bridge(host: str) -> str:
        return next(uuid for name, uuid in names.items() if name.startswith(f"{host}:Open vSwitch agent:br-"))

    for name, driver in running.cloud.fleet.drivers.items():

        async def prepare(spec: Any, move: str, _name: str = name, _real: Any = driver.prepare_live) -> PowerState:
            tried.append(_name)
            if len(tried) == 1:
                raise HostFailed("it would not have it", code="guest_failed")
            power: PowerState = await _real(spec, move)
            shown = await show_port(admin, port["id"])
            assert (shown["binding:host_id"], bridge(source)) in [
                (source, each) for each in shown["binding:profile"]["allocation"].values()
            ], "the active binding is left alone until the switch"
            return power

        monkeypatch.setattr(driver, "prepare_live", prepare)
    assert (await act(running, id, LIVE)).status_code == 202
    there = await ended(running, id, "completed")
    assert len(tried) == len(set(tried)) == 2
    assert host_of(there) == tried[1]
    shown = await show_port(admin, port["id"])
    assert shown["binding:host_id"] == host_of(there)
    assert list(shown["binding:profile"]["allocation"].values()) == [bridge(host_of(there))]
    claim = (await placement(admin, f"/allocations/{id}"))["allocations"]
    assert claim[bridge(host_of(there))]["resources"][EGR] == KBPS // 2
    (move,) = await migrations(running, id)
    assert (await placement(admin, f"/allocations/{move['uuid']}"))["allocations"] == {}
    for host in (source, tried[0]):
        assert (await used(admin, bridge(host)))[EGR] == 0
    rows = await running.cloud.region.context.network.bindings(port["id"])
    assert [(each.host, each.active) for each in rows] == [(host_of(there), True)]
    await assert_nothing_to_repair(running)

    async def one_only() -> bool:
        return False

    monkeypatch.setattr(running.cloud.region.context.network, "has_bindings", one_only)
    assert (await act(running, id, LIVE)).status_code == 202
    assert host_of(await ended(running, id, "error")) == tried[1]
    assert len(tried) == 2, "refused before anything was touched (S1.10)"
    monkeypatch.undo()
    await admin.gone(id)
    await admin.network("DELETE", f"/ports/{port['id']}")
    await admin.network("DELETE", f"/networks/{network}")
    await admin.network("DELETE", f"/qos/policies/{policy}")


@pytest.mark.parametrize("status", ["completed", "cancelled"])
async def test_volumes_are_exported_to_both_hosts_during_the_migration(running: Running, status: str) -> None:
    server = await backed(running, "volumes")
    id, source = server["id"], host_of(server)
    rows = [row["volumeId"] for row in await attached(running, id)]
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)
    assert (await act(running, id, LIVE)).status_code == 202
    move = await under_way(running, id)
    client = running.cloud.region.context.volumes
    assert client is not None
    there = [(each.volume, each.status) for each in await client.attachments_of(id)]
    assert sorted(there) == sorted((volume, word) for volume in rows for word in ("attached", "attaching"))
    dials: dict[str, Any] = {"live_mib_per_s": 0.0, "live_dirty_mib_per_s": 0.0}
    if status == "cancelled":
        aborted = await running.admin.compute("DELETE", f"/servers/{id}/migrations/{move['id']}")
        assert aborted.status_code == 202
        await ended(running, id, status)
    turned(running, source, **dials)
    seen = await ended(running, id, status)
    assert host_of(seen) == (move["dest_compute"] if status == "completed" else source)
    for volume in rows:
        shown = (await running.admin.volume("GET", f"/volumes/{volume}")).json()["volume"]
        assert (shown["status"], [each["host_name"] for each in shown["attachments"]]) == ("in-use", [host_of(seen)])
    assert guests(running, id) == [host_of(seen)]
    assert len(await client.attachments_of(id)) == len(rows)
    await assert_nothing_to_repair(running)


async def test_a_paused_server_stays_paused(running: Running) -> None:
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    assert (await act(running, id, {"pause": None})).status_code == 202
    await until(lambda: running.admin.settled(id), lambda seen: seen["status"] == "PAUSED")
    assert (await act(running, id, LIVE)).status_code == 202
    there = await ended(running, id, "completed", "PAUSED")
    assert host_of(there) != source
    assert power(running, host_of(there), id) is PowerState.PAUSED


async def test_a_virtual_function_moves_with_the_bandwidth_of_its_interface(running: Running) -> None:
    """S1.15: resized and reverted, migrated and confirmed, and live: each end has a function of the interface that has the bandwidth."""
    admin = running.admin
    policy, network = await policy_of(admin, kbps=KBPS // 4), await network_on(admin, "physnet1")
    direct = {"network_id": network, "binding:vnic_type": "direct"}
    port = (await made(admin, "/ports", "port", **direct, qos_policy_id=policy))["id"]
    other = (await made(admin, "/ports", "port", **direct))["id"]
    server = await admin.active("a", networks=[{"port": port}])
    id, here, names = server["id"], host_of(server), await providers(admin)
    there = next(each for each in neighbours_of(running, here) if each != here)
    taken = await admin.active("first", networks=[{"port": other}], availability_zone=f"nova:{there}")

    async def is_on(host: str, slot: str, held_at: str | None = None) -> None:
        shown = await show_port(admin, port)
        function, bandwidth = (names[f"{host}:{of}:ens1"] for of in ("SR-IOV", "NIC Switch agent"))
        profile = shown["binding:profile"]
        assert (shown["binding:host_id"], profile["pci_slot"]) == (host, slot)
        assert list(profile["allocation"].values()) == [bandwidth]
        claim = (await placement(admin, f"/allocations/{id}"))["allocations"]
        assert claim[function]["resources"] == {"SRIOV_NET_VF": 1}
        assert claim[bandwidth]["resources"] == {EGR: KBPS // 4}
        (vif,) = running.cloud.fleet.drivers[host].spec_of(ServerId(id)).vifs
        assert (vif.profile["pci_slot"], vif.profile["allocation"]) == (slot, profile["allocation"])
        for each in running.cloud.fleet.drivers:
            expected = (each in (host, held_at)) + (each == there)
            assert await used(admin, names[f"{each}:SR-IOV:ens1"]) == {"SRIOV_NET_VF": expected}

    first, second = "0000:80:01.0", "0000:80:01.1"
    await is_on(here, first)
    to_there = {"migrate": {"host": there}}
    await acted(running, id, to_there, "VERIFY_RESIZE")
    await is_on(there, second, held_at=here)
    await acted(running, id, {"revertResize": None}, "ACTIVE")
    await is_on(here, first)
    await acted(running, id, to_there, "VERIFY_RESIZE")
    await acted(running, id, {"confirmResize": None}, "ACTIVE", 204)
    await is_on(there, second)
    assert (await act(running, id, {"os-migrateLive": {"host": here, "block_migration": "auto"}})).status_code == 202
    await ended(running, id, "completed")
    await is_on(here, first)
    await assert_nothing_to_repair(running)
    for each in (id, taken["id"]):
        await admin.gone(each)
    for each in (port, other):
        await admin.network("DELETE", f"/ports/{each}")
    await admin.network("DELETE", f"/networks/{network}")
    await admin.network("DELETE", f"/qos/policies/{policy}")
