"""Resize in a whole cloud: the server is on another host, with its disk and its ports, and may be reverted."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_shelve import act, actions, guests, held, ports, until
from tests.cloud.test_volume_backed import backed
from tests.cloud.test_volumes import attached, disks
from tests.helpers.explained_claims import explained
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
from tests.helpers.resized_cloud import (
    asked,
    assert_nothing_to_repair,
    disk,
    host_of,
    migrations,
    power,
    quota,
    resized,
)

from moorage.main.config import Hosts
from moorage.main.seed_data import ROUTED
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"hosts": Hosts(count=6, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=100)}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


def letter(running: Running, server: dict[str, Any], text: str = "a letter\n") -> None:
    running.cloud.fleet.drivers[host_of(server)].write_disk(ServerId(server["id"]), text)


async def filled(running: Running, host: str) -> str:
    """Somebody takes all the memory that is left on the host: their consumer."""
    admin, provider = running.admin, (await providers(running.admin))[host]
    row = (await placement(admin, f"/resource_providers/{provider}/inventories"))["inventories"]["MEMORY_MB"]
    free = int((row["total"] - row["reserved"]) * row["allocation_ratio"]) - (await used(admin, provider))["MEMORY_MB"]
    assert 0 < free <= row["max_unit"]
    consumer = str(uuid.uuid4())
    reply = await admin.http.put(
        f"{admin.config.api.placement.url}/placement/allocations/{consumer}",
        json={
            "allocations": {provider: {"resources": {"MEMORY_MB": free}}},
            "consumer_generation": None,
            "project_id": admin.project,
            "user_id": "somebody",
            "consumer_type": "SOMETHING",
        },
        headers={"OpenStack-API-Version": "placement 1.39"},
    )
    assert reply.status_code == 204, reply.text
    return consumer


@pytest.mark.parametrize("network", ["private", ROUTED])
async def test_a_server_is_resized_and_confirmed(running: Running, network: str) -> None:
    before = await quota(running)
    server = await running.admin.active("a", networks=network)
    letter(running, server)
    whole, id = disk(running, server), server["id"]
    there = await resized(running, id)
    assert host_of(there) != host_of(server)
    assert there["flavor"]["original_name"] == "m1.micro"
    assert there["addresses"] == server["addresses"]
    assert disk(running, there) == whole
    assert power(running, host_of(server), id) is PowerState.SHUTDOWN
    assert power(running, host_of(there), id) is PowerState.RUNNING
    assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(there)}
    (move,) = await migrations(running, id)
    assert (move["status"], move["migration_type"]) == ("finished", "resize")
    assert (move["source_compute"], move["dest_compute"]) == (host_of(server), host_of(there))
    assert (await held(running, id))["MEMORY_MB"] == 192
    assert (await held(running, move["uuid"]))["MEMORY_MB"] == 128
    assert await quota(running) == (before[0] + 1, before[1] + 192)
    await assert_nothing_to_repair(running)
    there = await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)
    assert guests(running, id) == [host_of(there)]
    assert disk(running, there) == whole
    assert await held(running, move["uuid"]) == {}
    assert [each["status"] for each in await migrations(running, id)] == ["confirmed"]
    assert [each for each, _ in await actions(running, id)] == ["confirmResize", "resize", "create"]
    await assert_nothing_to_repair(running)


async def test_a_revert_needs_no_free_capacity(running: Running) -> None:
    """N16: what the server had on its old host is the move's until it is confirmed, so nobody else could take it."""
    admin = running.admin
    server = await admin.active("a")
    id, here = server["id"], host_of(server)
    await resized(running, id)
    consumer = await filled(running, here)
    refused = await admin.settled(await admin.boot("b", availability_zone=f"nova:{here}"))
    assert refused["status"] == "ERROR"
    back = await asked(running, id, {"revertResize": None}, "ACTIVE")
    assert host_of(back) == here
    gone = await admin.http.delete(f"{admin.config.api.placement.url}/placement/allocations/{consumer}")
    assert gone.status_code == 204
    await assert_nothing_to_repair(running)
    for each in (id, refused["id"]):
        await admin.gone(each)


@pytest.mark.parametrize("off", [False, True])
async def test_a_server_is_resized_and_reverted(running: Running, off: bool) -> None:
    before = await quota(running)
    server = await running.admin.active("a", networks=ROUTED)
    letter(running, server)
    whole, id = disk(running, server), server["id"]
    if off:
        await asked(running, id, {"os-stop": None}, "SHUTOFF")
    there = await resized(running, id)
    assert power(running, host_of(there), id) is (PowerState.SHUTDOWN if off else PowerState.RUNNING)
    letter(running, there, "a second one\n")
    back = await asked(running, id, {"revertResize": None}, "SHUTOFF" if off else "ACTIVE")
    assert host_of(back) == host_of(server)
    assert back["flavor"] == server["flavor"]
    assert back["addresses"] == server["addresses"]
    assert guests(running, id) == [host_of(server)]
    assert power(running, host_of(server), id) is (PowerState.SHUTDOWN if off else PowerState.RUNNING)
    assert disk(running, back) == whole
    assert {each["binding:host_id"] for each in await ports(running, id)} == {host_of(server)}
    (move,) = await migrations(running, id)
    assert move["status"] == "reverted"
    assert await held(running, move["uuid"]) == {}
    assert (await held(running, id))["MEMORY_MB"] == 128
    assert await quota(running) == (before[0] + 1, before[1] + 128)
    await assert_nothing_to_repair(running)
    said = (await explained(running.admin, id))["summary"]
    assert said.startswith(f"placed on {host_of(server)}: ")
    assert said.endswith("there again since its move was reverted")
    there = await resized(running, id)
    assert (await explained(running.admin, id))["summary"].startswith(f"placed on {host_of(there)} by its move: ")
    await asked(running, id, {"confirmResize": None}, "SHUTOFF" if off else "ACTIVE", 204)


async def test_a_delete_confirms_the_resize_first(running: Running) -> None:
    before = await quota(running)
    server = await running.admin.active("a", networks=ROUTED)
    await resized(running, server["id"])
    (move,) = await migrations(running, server["id"])
    await running.admin.gone(server["id"])
    assert guests(running, server["id"]) == []
    assert await held(running, move["uuid"]) == {}
    assert [each["status"] for each in await migrations(running, server["id"])] == ["confirmed"]
    assert await quota(running) == before
    await assert_nothing_to_repair(running)


async def test_guaranteed_ports_move_with_their_server(running: Running) -> None:
    """S1.17: the allocation is where the server is, the binding names its provider, and what is used is what is held."""
    admin = running.admin
    policy, network = await policy_of(admin, kbps=KBPS // 2), await network_on(admin, "physnet1")
    port = await port_on(admin, network, policy)
    server = await admin.active("a", networks=[{"port": port["id"]}])
    id, here = server["id"], host_of(server)
    names = await providers(admin)

    def bridge(host: str) -> str:
        return next(uuid for name, uuid in names.items() if name.startswith(f"{host}:Open vSwitch agent:br-"))

    async def is_on(host: str, move: str | None, left: str) -> None:
        shown = await show_port(admin, port["id"])
        assert shown["binding:host_id"] == host
        assert bridge(host) in shown["binding:profile"]["allocation"].values()
        assert (await placement(admin, f"/allocations/{id}"))["allocations"][bridge(host)]["resources"][
            EGR
        ] == KBPS // 2
        assert (await used(admin, bridge(host)))[EGR] == KBPS // 2
        held_by_move = {} if move is None else (await placement(admin, f"/allocations/{move}"))["allocations"]
        assert (bridge(left) in held_by_move) is (move is not None)
        assert (await used(admin, bridge(left)))[EGR] == (0 if move is None else KBPS // 2)

    there = await resized(running, id)
    (move,) = await migrations(running, id)
    await is_on(host_of(there), move["uuid"], here)
    await assert_nothing_to_repair(running)
    await asked(running, id, {"revertResize": None}, "ACTIVE")
    await is_on(here, None, host_of(there))
    there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
    await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)
    await is_on(host_of(there), None, here)
    await assert_nothing_to_repair(running)
    await admin.gone(id)
    await admin.network("DELETE", f"/ports/{port['id']}")
    await admin.network("DELETE", f"/networks/{network}")
    await admin.network("DELETE", f"/qos/policies/{policy}")


@pytest.mark.parametrize("action", ["confirmResize", "revertResize"])
async def test_volumes_move_with_their_server(running: Running, action: str) -> None:
    server = await backed(running, "volumes")
    id, here = server["id"], host_of(server)
    there = await resized(running, id)
    rows = [row["volumeId"] for row in await attached(running, id)]
    assert disks(running, there) == rows
    for row in rows:
        shown = (await running.admin.volume("GET", f"/volumes/{row}")).json()["volume"]
        assert [each["host_name"] for each in shown["attachments"]] == [host_of(there)]
    await assert_nothing_to_repair(running)
    now = await asked(running, id, {action: None}, "ACTIVE", 204 if action == "confirmResize" else 202)
    assert host_of(now) == (here if action == "revertResize" else host_of(there))
    assert disks(running, now) == rows
    await assert_nothing_to_repair(running)


async def test_events_of_a_move_begin_and_end_with_its_steps(running: Running) -> None:
    """And its task states are Nova's; the host that sends the disk is the old one."""
    server = await running.admin.active("a")
    id, old = server["id"], host_of(server)
    gate = running.delay_verb("take_guest")
    reply = await act(running, id, {"migrate": None})
    assert reply.status_code == 202
    await until(lambda: running.admin.server(id), lambda shown: shown["OS-EXT-STS:task_state"] == "resize_finish")
    path = f"/servers/{id}/os-instance-actions/{reply.headers['x-openstack-request-id']}"
    events = (await running.admin.compute("GET", path)).json()["instanceAction"]["events"]
    by_name = {each["event"]: each for each in events}
    assert by_name["compute_resize_instance"]["result"] == "Success"
    assert (by_name["compute_resize_instance"]["host"], by_name["compute_finish_resize"]["result"]) == (old, None)
    assert by_name["compute_finish_resize"]["start_time"]
    gate.set()
    assert (await running.admin.settled(id))["status"] == "VERIFY_RESIZE"
    events = (await running.admin.compute("GET", path)).json()["instanceAction"]["events"]
    assert {each["result"] for each in events} == {"Success"}
    await asked(running, id, {"revertResize": None}, "ACTIVE")
    await running.admin.gone(id)


async def test_who_waits_for_the_status_may_act_at_once(running: Running) -> None:
    """ACTIVE after a revert comes without a task, and a stop right then is no conflict."""
    server = await running.admin.active("a")
    await asked(running, server["id"], {"migrate": None}, "VERIFY_RESIZE")
    assert (await act(running, server["id"], {"revertResize": None})).status_code == 202
    shown = await until(lambda: running.admin.server(server["id"]), lambda seen: seen["status"] == "ACTIVE")
    assert shown["OS-EXT-STS:task_state"] is None
    reply = await act(running, server["id"], {"os-stop": None})
    assert reply.status_code == 202, reply.text
    await running.admin.gone(server["id"])
