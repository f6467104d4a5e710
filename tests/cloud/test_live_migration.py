"""Live migration in a whole cloud: the server runs on another host, and was silent for the switch alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_resize import asked as acted
from tests.cloud.test_resize import disk, host_of, letter, migrations, nothing_to_mend, power, quota
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

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.seed_data import ROUTED
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"hosts": Hosts(count=6, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=100)}
LIVE = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
SLOW = 256.0


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


def turned(running: Running, host: str, **changes: Any) -> None:
    driver = running.cloud.fleet.drivers[host]
    driver.turn(msgspec.structs.replace(driver.dials, **changes))


def silences(running: Running, server: dict[str, Any]) -> tuple[float, ...]:
    return running.cloud.fleet.drivers[host_of(server)].silences(ServerId(server["id"]))


async def ended(running: Running, id: str, status: str, state: str = "ACTIVE") -> dict[str, Any]:
    """The server, when its last move came to that status."""
    moves = await until(lambda: migrations(running, id), lambda rows: bool(rows) and rows[0]["status"] == status)
    assert moves[0]["migration_type"] == "live-migration"
    seen = await running.admin.settled(id)
    await running.let_go(id)
    assert (seen["status"], seen["OS-EXT-STS:task_state"]) == (state, None)
    return dict(seen)


async def under_way(running: Running, id: str, status: str = "running") -> dict[str, Any]:
    async def listed() -> list[dict[str, Any]]:
        reply = await running.admin.compute("GET", f"/servers/{id}/migrations")
        return list(reply.json()["migrations"])

    rows = await until(listed, lambda found: bool(found) and found[0]["status"] == status)
    return rows[0]


async def sends(running: Running, id: str, number: int) -> dict[str, Any]:
    """The move, when its source has said that it sends: "running" is shown before it is told to."""

    async def shown() -> dict[str, Any]:
        reply = await running.admin.compute("GET", f"/servers/{id}/migrations/{number}")
        return dict(reply.json()["migration"])

    return dict(await until(shown, lambda row: row["memory_processed_bytes"] > 0))


class Late(SystemClock):
    """How much later than it was asked for it woke somebody, at the worst."""

    worst_s = 0.0

    async def sleep(self, seconds: float) -> None:
        began = self.now()
        await super().sleep(seconds)
        self.worst_s = max(self.worst_s, self.now() - began - seconds)


@pytest.mark.parametrize("network", ["private", ROUTED])
async def test_a_server_changes_hosts_while_it_runs(
    running: Running, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    await nothing_to_mend(running)


async def test_one_that_is_slow_shows_its_progress_and_is_forced(running: Running) -> None:
    """It writes to its memory faster than it is sent, so it never ends by itself."""
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)
    await act(running, id, {"os-migrateLive": {"host": None, "block_migration": True}}, "2.30")
    assert (await running.admin.server(id) or {})["status"] == "MIGRATING"
    number = (await under_way(running, id))["id"]

    sent = await sends(running, id, number)
    assert sent["memory_total_bytes"] == 128 << 20
    assert sent["memory_remaining_bytes"] > 0
    assert sent["disk_remaining_bytes"] == 0
    assert sent["disk_processed_bytes"] == sent["disk_total_bytes"]
    assert power(running, source, id) is PowerState.RUNNING
    assert guests(running, id) == sorted([source, sent["dest_compute"]])
    assert (await act(running, id, {"os-stop": None})).status_code == 409
    path = f"/servers/{id}/migrations/{number}/action"
    assert (await running.admin.compute("POST", path, {"force_complete": None})).status_code == 202
    there = await ended(running, id, "completed")
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert guests(running, id) == [host_of(there)] == [sent["dest_compute"]]
    words = [each for each, _ in await actions(running, id)]
    assert words == ["live_migration_force_complete", "live-migration", "create"]
    for method, tail, code in (("GET", "", 404), ("DELETE", "", 409), ("POST", "/action", 409)):
        body = {"force_complete": None} if method == "POST" else None
        reply = await running.admin.compute(method, f"/servers/{id}/migrations/{number}{tail}", body)
        assert reply.status_code == code, (method, reply.text)
    await nothing_to_mend(running)


@pytest.mark.parametrize("status", ["preparing", "running"])
async def test_one_that_is_aborted_was_never_silent(running: Running, status: str) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    id, source, before = server["id"], host_of(server), await ports(running, server["id"])
    claim, usage = await held(running, id), await quota(running)
    prepared = running.hold_up("prepare_live") if status == "preparing" else asyncio.Event()
    for host in running.cloud.fleet.drivers:
        turned(running, host, live_mib_per_s=1.0)
    await act(running, id, LIVE)
    number = (await under_way(running, id, status))["id"]
    path = f"/servers/{id}/migrations/{number}"
    url, old = running.config.api.compute.url + "/v2.1" + path, {"OpenStack-API-Version": "compute 2.64"}
    early = await running.admin.http.delete(url, headers=old)
    assert early.status_code == (400 if status == "preparing" else 202), early.text
    if status == "preparing":
        assert (await running.admin.compute("DELETE", path)).status_code == 202
    prepared.set()
    there = await ended(running, id, "cancelled")
    for host in running.cloud.fleet.drivers:
        turned(running, host, live_mib_per_s=0.0)
    assert host_of(there) == source
    assert guests(running, id) == [source]
    assert power(running, source, id) is PowerState.RUNNING
    assert silences(running, there) == ()
    assert [each["binding:host_id"] for each in await ports(running, id)] == [
        each["binding:host_id"] for each in before
    ]
    assert (await held(running, id), await quota(running)) == (claim, usage)
    assert [each for each, _ in await actions(running, id)] == ["live_migration_cancel", "live-migration", "create"]
    await nothing_to_mend(running)


async def test_a_host_sends_one_at_a_time_and_the_others_wait_in_line(running: Running) -> None:
    """Queued ones are aborted since 2.65 and deleted at any time; the next one in line goes when the one before has left or stays."""
    source = "host1"
    servers = [await running.admin.active(f"s{number}", availability_zone=f"nova:{source}") for number in range(5)]
    ids, moves = [str(each["id"]) for each in servers], list[dict[str, Any]]()
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)

    for number, id in enumerate(ids):
        assert (await act(running, id, LIVE)).status_code == 202
        moves.append(await under_way(running, id, "queued" if number else "running"))
    assert all(each["dest_compute"] not in (None, source) for each in moves)

    async def abort(number: int, version: str) -> int:
        url = f"{running.config.api.compute.url}/v2.1/servers/{ids[number]}/migrations/{moves[number]['id']}"
        return int((await running.admin.http.delete(url, headers={"OpenStack-API-Version": version})).status_code)

    assert await abort(3, "compute 2.64") == 400
    assert await abort(3, "compute 2.65") == 202
    assert host_of(await ended(running, ids[3], "cancelled")) == source
    await running.admin.gone(ids[4])
    assert (await migrations(running, ids[4]))[0]["status"] == "cancelled"
    aborted = running.hold_up("abort_live", {source})
    assert [await abort(0, "compute 2.64") for _ in range(2)] == [202, 202], (
        "it is aborting, and that is accepted again"
    )
    aborted.set()
    await ended(running, ids[0], "cancelled")
    await under_way(running, ids[1])
    assert (await under_way(running, ids[2], "queued"))["memory_total_bytes"] == 0
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert {host_of(await ended(running, each, "completed")) != source for each in ids[1:3]} == {True}
    assert [guests(running, ids[number]) for number in (0, 3, 4)] == [[source], [source], []]
    await nothing_to_mend(running)


async def test_what_no_host_will_have_stays(running: Running) -> None:
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
    await nothing_to_mend(running)


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
    await nothing_to_mend(running)

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
async def test_volumes_are_at_both_ends_for_as_long_as_it_takes(running: Running, status: str) -> None:
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
    await nothing_to_mend(running)


async def test_an_agent_that_dies_while_it_sends(running: Running) -> None:
    """The transfer died with it, and the guest did not: the move is taken back when the host says so."""
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    fleet = running.cloud.fleet
    driver = fleet.drivers[source]
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)
    assert (await act(running, id, LIVE)).status_code == 202
    await sends(running, id, (await under_way(running, id))["id"])
    await fleet.agents[source].stop()
    await driver.close()
    await driver.start()
    await fleet.restart(next(plan for plan in running.cloud.plans if plan.host == source))
    there = await ended(running, id, "failed")
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert host_of(there) == source
    await until(lambda: running.admin.settled(id), lambda seen: guests(running, id) == [source])
    assert power(running, source, id) is PowerState.RUNNING
    assert (await act(running, id, LIVE)).status_code == 202
    await ended(running, id, "completed")
    await nothing_to_mend(running)


async def test_a_delete_ends_it(running: Running) -> None:
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    turned(running, source, live_mib_per_s=SLOW, live_dirty_mib_per_s=SLOW)
    assert (await act(running, id, LIVE)).status_code == 202
    move = await under_way(running, id)
    await running.admin.gone(id)
    turned(running, source, live_mib_per_s=0.0, live_dirty_mib_per_s=0.0)
    assert guests(running, id) == []
    assert (await held(running, id), await held(running, move["uuid"])) == ({}, {})
    assert (await migrations(running, id))[0]["status"] == "cancelled"
    await nothing_to_mend(running)


async def test_what_is_paused_stays_paused(running: Running) -> None:
    server = await running.admin.active("a")
    id, source = server["id"], host_of(server)
    assert (await act(running, id, {"pause": None})).status_code == 202
    await until(lambda: running.admin.settled(id), lambda seen: seen["status"] == "PAUSED")
    assert (await act(running, id, LIVE)).status_code == 202
    there = await ended(running, id, "completed", "PAUSED")
    assert host_of(there) != source
    assert power(running, host_of(there), id) is PowerState.PAUSED


async def test_a_virtual_function_goes_with_the_bandwidth_of_its_interface(running: Running) -> None:
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
    await nothing_to_mend(running)
    for each in (id, taken["id"]):
        await admin.gone(each)
    for each in (port, other):
        await admin.network("DELETE", f"/ports/{each}")
    await admin.network("DELETE", f"/networks/{network}")
    await admin.network("DELETE", f"/qos/policies/{policy}")
