"""Resizes and migrations in a whole cloud that are refused, cancelled, or go to a named host."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_shelve import act, actions, failure, guests, neighbours_of, ports, until
from tests.cloud.test_volumes import attach, disks, volume
from tests.helpers.guaranteed_ports import (
    EGR,
    KBPS,
    network_on,
    policy_of,
    port_on,
    providers,
)
from tests.helpers.resized_cloud import asked, assert_nothing_to_repair, host_of, migrations, power, quota, resized

from moorage.cli.move import describe
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.model.guest import PowerState

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"hosts": Hosts(count=6, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, packet_rate_kpps=100)}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def test_an_administrator_migrates_a_server_to_a_host(running: Running) -> None:
    server = await running.admin.active("a")
    id, here = server["id"], host_of(server)
    to = next(each for each in neighbours_of(running, here) if each != here)
    for host, status in (("nowhere", 400), (here, 400)):
        assert (await act(running, id, {"migrate": {"host": host}})).status_code == status
    async with running.person("demo", "demo") as demo:
        assert (await act(running, id, {"migrate": None}, by=demo)).status_code == 404
    there = await asked(running, id, {"migrate": {"host": to}}, "VERIFY_RESIZE")
    assert host_of(there) == to
    assert there["flavor"] == server["flavor"]
    assert [each["migration_type"] for each in await migrations(running, id)] == ["migration"]
    for refused in ({"os-stop": None}, {"rebuild": {"imageRef": server["image"]["id"]}}, {"migrate": None}):
        assert (await act(running, id, refused)).status_code == 409, refused
    await asked(running, id, {"revertResize": None}, "ACTIVE")
    assert (await act(running, id, {"confirmResize": None})).status_code == 409
    assert (await actions(running, id))[:2] == [("revertResize", None), ("migrate", None)]


async def test_a_refused_resize_changes_nothing(running: Running) -> None:
    server = await running.admin.active("a", flavor="m1.small")
    id, admin = server["id"], running.admin
    same, tiny, huge = [await admin.id_of("flavor", each) for each in ("m1.small", "m1.tiny", "m1.xlarge")]
    for flavor in (same, "nothing"):
        assert (await act(running, id, {"resize": {"flavorRef": flavor}})).status_code == 400
    before = await quota(running)
    now = await asked(running, id, {"resize": {"flavorRef": tiny}}, "ACTIVE")
    assert host_of(now) == host_of(server)
    assert (await actions(running, id))[0] == ("resize", "Error")
    assert "Unable to resize disk down" in str(await failure(running, id))
    for host in neighbours_of(running, host_of(server)):
        reply = await admin.compute("GET", "/os-services", host=host, binary="nova-compute")
        service = reply.json()["services"][0]["id"]
        if host != host_of(server):
            await admin.compute("PUT", f"/os-services/{service}", {"status": "disabled"})
    now = await asked(running, id, {"resize": {"flavorRef": huge}}, "ACTIVE")
    assert "No valid host was found" in str(await failure(running, id))
    for row in (await admin.compute("GET", "/os-services")).json()["services"]:
        await admin.compute("PUT", f"/os-services/{row['id']}", {"status": "enabled"})
    assert {each["status"] for each in await migrations(running, id)} == {"error"}
    assert await quota(running) == before
    assert power(running, host_of(server), id) is PowerState.RUNNING
    await assert_nothing_to_repair(running)


@pytest.mark.parametrize("verb", ["move_target", "take_guest"])
async def test_a_host_that_cannot_take_the_server_changes_nothing(running: Running, verb: str) -> None:
    """Before the guest is touched the next host is tried; after that it is on its old host as it was."""
    server = await running.admin.active("a")
    id, here = server["id"], host_of(server)
    others = [each for each in neighbours_of(running, here) if each != here]
    fails = {verb: VerbDial(fail_chance=1.0)}
    for each in others:
        driver = running.cloud.fleet.drivers[each]
        driver.turn(msgspec.structs.replace(driver.dials, verbs=fails))
    wanted = await running.admin.id_of("flavor", "m1.micro")
    now = await asked(running, id, {"resize": {"flavorRef": wanted}}, "ACTIVE")
    assert host_of(now) == here
    assert power(running, here, id) is PowerState.RUNNING
    assert guests(running, id) == [here]
    assert {each["binding:host_id"] for each in await ports(running, id)} == {here}
    await assert_nothing_to_repair(running)


async def moves(running: Running, server: str) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", f"/ext/servers/{server}/moves")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["moves"])


async def test_a_move_shows_both_hosts_and_can_be_cancelled(running: Running) -> None:
    admin = running.admin
    before = await quota(running)
    known = await providers(admin)
    policy, network = await policy_of(admin, kbps=KBPS // 2), await network_on(admin, "physnet1")
    wire = await port_on(admin, network, policy)
    server = await admin.active("a", networks=[{"port": wire["id"]}])
    id, source, disk_of = server["id"], host_of(server), await volume(running)
    assert (await attach(running, id, disk_of)).status_code == 202
    await running.wait_until_unlocked(id)
    gate = running.delay_verb("take_guest")
    small = await admin.id_of("flavor", "m1.micro")
    assert (await act(running, id, {"resize": {"flavorRef": small}})).status_code == 202

    def lands(seen: list[dict[str, Any]]) -> bool:
        return bool(seen) and len(seen[0]["destination"]["attachments"]) == 1

    (move,) = await until(lambda: moves(running, id), lambda seen: lands(seen) and bool(seen[0]["operation"]))
    there, left = move["destination"], move["source"]
    assert (move["type"], move["status"], move["may_be_cancelled"]) == ("resize", "migrating", True)
    assert (move["operation"]["name"], move["operation"]["back"]) == ("resize", False)
    assert (left["host"], left["consumer"], there["consumer"]) == (source, move["id"], id)
    assert there["host"] not in {source, None}
    for end, ram in ((left, 128), (there, 192)):
        claimed = {each["provider"]: each["resources"] for each in end["claimed"]}
        assert claimed[known[end["host"]]]["MEMORY_MB"] == ram, end
        assert sorted(EGR in each for each in claimed.values()) == [False, True], "the port's guarantee, at both"
    (port,) = await ports(running, id)
    addresses = [each["ip_address"] for each in port["fixed_ips"]]
    bound = {each["status"]: end["host"] for end in (left, there) for each in end["bindings"]}
    assert set(bound) == {"ACTIVE", "INACTIVE"}
    assert [each["addresses"] for end in (left, there) for each in end["bindings"]] == [addresses, addresses]
    assert (left["attachments"], there["attachments"][0]["volume"]) == ([], disk_of)
    assert (move["services_out"], move["unbound_ports"], move["attachments_elsewhere"]) == ([], [], [])
    assert {f"  source: {source} ({left['cell']})", f"  destination: {there['host']} ({there['cell']})"} < {
        *describe(move)
    }
    undone = running.delay_verb("destroy_guest")  # so that its way back can be seen
    for which, code in ((str(uuid.uuid4()), 404), (move["id"], 202)):
        reply = await admin.compute("POST", f"/ext/servers/{id}/moves/{which}/action", {"cancel": None})
        assert reply.status_code == code, reply.text
    gate.set()
    await until(lambda: moves(running, id), lambda seen: bool(seen[0]["operation"]) and seen[0]["operation"]["back"])
    undone.set()
    seen = await admin.settled(id)
    await running.wait_until_unlocked(id)
    assert (seen["status"], host_of(seen), "fault" in seen) == ("ACTIVE", source, False)
    assert power(running, source, id) is PowerState.RUNNING
    assert guests(running, id) == [source]
    assert disks(running, seen) == [disk_of]
    assert await quota(running) == (before[0] + 1, before[1] + 128)
    (move,) = await moves(running, id)
    assert (move["status"], move["operation"], move["source"]["claimed"]) == ("cancelled", None, [])
    assert [each for each, _ in await actions(running, id)][:2] == ["cancel_move", "resize"]
    await assert_nothing_to_repair(running)
    await resized(running, id)
    move = (await moves(running, id))[0]
    assert (move["status"], move["waiting"]) == ("finished", "its owner, to confirm or revert it")
    assert (move["source"]["consumer"], move["destination"]["consumer"]) == (move["id"], id)
    late = await admin.compute("POST", f"/ext/servers/{id}/moves/{move['id']}/action", {"cancel": None})
    assert late.status_code == 409
    assert "its server is on its new host: confirm or revert it" in late.text
    await asked(running, id, {"revertResize": None}, "ACTIVE")
    await assert_nothing_to_repair(running)
