"""Evacuation in a whole cloud: only from a fenced host, never two guests, and nothing leaks when the host returns."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_network_cuts import Wires
from tests.cloud.test_shelve import act, actions, failure, guests, held, neighbours_of, ports, until
from tests.cloud.test_volume_backed import backed
from tests.cloud.test_volumes import attached, disks
from tests.helpers.guaranteed_ports import (
    EGR,
    KBPS,
    network_on,
    placement,
    policy_of,
    port_on,
    providers,
    show_port,
    used,
)
from tests.helpers.resized_cloud import assert_nothing_to_repair, host_of, migrations, power

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Hosts
from moorage.main.seed_data import ROUTED
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage_testing.leak_audit import guests_on_disk
from moorage_testing.waiting import until as soon

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {
    "compute": Compute(host_silence_s=3.0, fence_plugin="simulated"),
    "hosts": Hosts(count=6, beat_s=0.3, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=100),
}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


class Dead:
    """A host that nobody hears: its agent is stopped, or its wire is cut and it runs on."""

    def __init__(self, running: Running, host: str, wires: Wires | None) -> None:
        self.running, self.host, self.wires = running, host, wires

    async def dies(self) -> None:
        if self.wires is None:
            await self.running.cloud.fleet.agents[self.host].stop()
        else:
            self.wires.cut.add(self.host)
        caller = self.running.cloud.region.context.hosts
        await soon(lambda: caller.is_silent(self.host))

    async def returns(self) -> None:
        """As it was when it died."""
        if self.wires is None:
            plan = next(plan for plan in self.running.cloud.plans if plan.host == self.host)
            await self.running.cloud.fleet.restart(plan)
        else:
            self.wires.cut.clear()

    async def down(self, forced: bool = True) -> None:
        """An operator says so."""
        await force(self.running, self.host, forced)


async def force(running: Running, host: str, forced: bool) -> None:
    reply = await running.admin.compute("GET", "/os-services", host=host, binary="nova-compute")
    service = reply.json()["services"][0]["id"]
    reply = await running.admin.compute("PUT", f"/os-services/{service}", {"forced_down": forced})
    assert reply.status_code == 200, reply.text
    caller = running.cloud.region.context.hosts
    if not forced:
        await soon(lambda: not caller.is_silent(host))


async def killed(running: Running, host: str, wires: Wires | None = None) -> Dead:
    dead = Dead(running, host, wires)
    await dead.dies()
    return dead


async def evacuated(
    running: Running, server: str, status: str = "ACTIVE", at: str = "2.94", **asked: Any
) -> dict[str, Any]:
    """The server, when it came to that status."""
    reply = await act(running, server, {"evacuate": asked}, at=at)
    assert (reply.status_code, reply.content) == (200, b""), reply.text
    seen = await running.admin.settled(server)
    await running.wait_until_unlocked(server)
    assert seen["status"] == status, (await failure(running, server), await running.admin.operations_of(server))
    return dict(seen)


async def cleaned(running: Running, server: str, host: str) -> None:
    """The host is back: the guest went there, and the move's record says that it is over."""
    moves = await until(lambda: migrations(running, server), lambda seen: seen[0]["status"] == "completed")
    assert host not in on_disk(running, server)
    assert await held(running, moves[0]["uuid"]) == {}


def wired(running: Running, monkeypatch: pytest.MonkeyPatch) -> Wires:
    wires = Wires(running)
    monkeypatch.setattr(running.cloud.region.bus, "publish", wires.publish)
    return wires


async def bindings(running: Running, server: str) -> list[tuple[str, Any]]:
    return sorted((each["id"], each["revision_number"]) for each in await ports(running, server))


@pytest.mark.parametrize("death", ["its agent stops", "its wire is cut"])
async def test_a_server_of_a_fenced_host_is_evacuated_and_the_host_returns(
    running: Running, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    id, here = server["id"], host_of(server)
    for asked, at, status in (
        ({}, "2.95", 400),
        ({"host": "nowhere"}, "2.95", 404),
        ({"host": here}, "2.95", 400),
    ):
        assert (await act(running, id, {"evacuate": asked}, at=at)).status_code == status, asked
    assert "still in use" in (await act(running, id, {"evacuate": {}})).text
    dead = await killed(running, here, wired(running, monkeypatch) if "wire" in death else None)
    refused = await act(running, id, {"evacuate": {}})
    assert refused.status_code == 409
    assert "openstack compute service set --down HOST nova-compute" in refused.text
    assert (await running.admin.settled(id))["status"] == "ACTIVE"
    await dead.down()
    shared_disk = await act(running, id, {"evacuate": {"onSharedStorage": True}}, at="2.13")
    assert shared_disk.status_code == 400
    before = await held(running, id)
    there = await evacuated(running, id)
    assert host_of(there) in neighbours_of(running, here)
    assert host_of(there) != here
    assert there["addresses"] == server["addresses"]
    assert power(running, host_of(there), id) is PowerState.RUNNING
    assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(there)}
    (move,) = await migrations(running, id)
    assert (move["status"], move["migration_type"]) == ("done", "evacuation")
    assert (move["source_compute"], move["dest_compute"]) == (here, host_of(there))
    assert await held(running, id) == before, "nothing is doubled"
    left = await held(running, move["uuid"])
    assert left == {name: amount for name, amount in before.items() if name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    assert [each for each, _ in await actions(running, id)] == ["evacuate", "create"]
    await assert_nothing_to_repair(running)
    bound = await bindings(running, id)
    await dead.returns()
    await cleaned(running, id, here)
    assert guests(running, id) == [host_of(there)]
    assert await bindings(running, id) == bound, "the network service is told nothing (S1.19)"
    await dead.down(False)
    await assert_nothing_to_repair(running)


def first_fails(running: Running, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that are told to start a guest, of which the first cannot."""
    caller, tried = running.cloud.region.context.hosts, list[str]()
    start = caller.start_guest

    async def starting(to: Any, command_context: Any, guest: Any) -> Any:
        tried.append(to.host)
        if len(tried) == 1:
            await start(to, command_context, guest)
            raise HostFailed("it made the guest, and fails", code="guest_failed")
        return await start(to, command_context, guest)

    monkeypatch.setattr(caller, "start_guest", starting)
    return tried


@pytest.mark.parametrize("reschedule", [False, True])
async def test_guaranteed_ports_move_with_their_server(
    running: Running, monkeypatch: pytest.MonkeyPatch, reschedule: bool
) -> None:
    """S1.17, S1.19: what is claimed is where the server is, the binding names its provider, and the old host gives all of it back."""
    admin = running.admin
    policy, network = await policy_of(admin, kbps=KBPS // 2), await network_on(admin, "physnet1")
    port = await port_on(admin, network, policy)
    server = await admin.active("a", networks=[{"port": port["id"]}])
    id, here = server["id"], host_of(server)
    names = await providers(admin)

    def bridge(host: str) -> str:
        return next(uuid for name, uuid in names.items() if name.startswith(f"{host}:Open vSwitch agent:br-"))

    dead = await killed(running, here)
    await dead.down()
    tried = first_fails(running, monkeypatch) if reschedule else []
    there = await evacuated(running, id)
    assert len(tried) == (2 if reschedule else 0)
    assert not reschedule or tried[-1] == host_of(there) != tried[0]
    shown = await show_port(admin, port["id"])
    assert shown["binding:host_id"] == host_of(there) != here
    assert bridge(host_of(there)) in shown["binding:profile"]["allocation"].values()
    mine = (await placement(admin, f"/allocations/{id}"))["allocations"]
    assert mine[bridge(host_of(there))]["resources"][EGR] == KBPS // 2
    move = (await migrations(running, id))[0]
    assert bridge(here) in (await placement(admin, f"/allocations/{move['uuid']}"))["allocations"]
    for host in neighbours_of(running, here):
        assert (await used(admin, bridge(host)))[EGR] == (KBPS // 2 if host in (here, host_of(there)) else 0)
    await assert_nothing_to_repair(running)
    await dead.returns()
    await cleaned(running, id, here)
    assert (await used(admin, bridge(here)))[EGR] == 0
    now = await show_port(admin, port["id"])
    assert (now["revision_number"], now["binding:host_id"]) == (shown["revision_number"], host_of(there))
    await dead.down(False)
    await assert_nothing_to_repair(running)
    await admin.gone(id)
    await admin.network("DELETE", f"/ports/{port['id']}")
    await admin.network("DELETE", f"/networks/{network}")
    await admin.network("DELETE", f"/qos/policies/{policy}")


async def test_volumes_are_evacuated_with_the_fence_plug_in(running: Running) -> None:
    """From 2.95 on the server stays off."""
    server = await backed(running, "volumes")
    id, here = server["id"], host_of(server)
    rows = [row["volumeId"] for row in await attached(running, id)]
    dead = await killed(running, here)
    assert (await act(running, id, {"evacuate": {}})).status_code == 409
    dials = running.config.data / "hosts" / here / "dials.json"
    dials.write_bytes(msgspec.json.encode({"fenced": True}))
    there = await evacuated(running, id, "SHUTOFF", at="2.95")
    assert power(running, host_of(there), id) is PowerState.SHUTDOWN
    assert disks(running, there) == rows
    for volume in rows:
        shown = (await running.admin.volume("GET", f"/volumes/{volume}")).json()["volume"]
        assert [each["host_name"] for each in shown["attachments"]] == [host_of(there)]
    dials.unlink()
    await dead.returns()
    await cleaned(running, id, here)
    await assert_nothing_to_repair(running)


async def test_a_refused_evacuation_changes_nothing(running: Running) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    id, here = server["id"], host_of(server)
    before, bound = await held(running, id), {each["binding:host_id"] for each in await ports(running, id)}
    dead = await killed(running, here)
    await dead.down()
    others = [each for each in neighbours_of(running, here) if each != here]
    for host in others:
        running.dial(host, start_guest=VerbDial(fail_chance=1.0))
    seen = await evacuated(running, id, "ERROR")
    assert host_of(seen) == here
    assert await held(running, id) == before
    assert {each["binding:host_id"] for each in await ports(running, id)} == bound == {here}
    (move,) = await migrations(running, id)
    assert (move["status"], await held(running, move["uuid"])) == ("failed", {})
    assert on_disk(running, id) == [here]
    running.set_faults_everywhere()
    there = await evacuated(running, id)
    assert host_of(there) != here, "one that is in ERROR is evacuated too"
    await running.admin.gone(id)
    assert on_disk(running, id) == [here]
    await dead.returns()
    await until(lambda: _none(running, id), lambda left: left == [])
    move = (await until(lambda: migrations(running, id), lambda seen: seen[0]["status"] == "completed"))[0]
    assert await held(running, move["uuid"]) == {}
    await dead.down(False)
    await assert_nothing_to_repair(running)


def on_disk(running: Running, server: str) -> list[str]:
    """Also of a host whose agent is stopped."""
    return guests_on_disk(running.config.data).get(server, [])


async def _none(running: Running, server: str) -> list[str]:
    return on_disk(running, server)


async def test_a_host_that_returns_during_an_evacuation_runs_no_second_guest(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guest ran all the time: what is started elsewhere waits for nobody, and the old guest goes at once."""
    server = await running.admin.active("a")
    id, here = server["id"], host_of(server)
    dead = await killed(running, here, wired(running, monkeypatch))
    await dead.down()
    others = [each for each in neighbours_of(running, here) if each != here]
    started = running.delay_verb("start_guest", others)
    assert (await act(running, id, {"evacuate": {}}, at="2.94")).status_code == 200
    await until(lambda: migrations(running, id), lambda seen: bool(seen) and seen[0]["status"] == "migrating")
    await dead.returns()
    await until(lambda: _none(running, id), lambda left: here not in left)
    assert (await migrations(running, id))[0]["status"] == "migrating"
    started.set()
    seen = await running.admin.settled(id)
    assert (seen["status"], guests(running, id)) == ("ACTIVE", [host_of(seen)])
    await cleaned(running, id, here)
    await dead.down(False)
    await assert_nothing_to_repair(running)
