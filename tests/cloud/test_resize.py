"""Cold migration and resize in a whole cloud: the server is on another host, with what it wrote and with its ports, and may come back."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_guaranteed_ports import explained
from tests.cloud.test_shelve import act, actions, failure, guests, held, neighbours_of, ports, until
from tests.cloud.test_volume_backed import backed
from tests.cloud.test_volumes import attach, attached, disks, volume
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

from moorage.cli.move import describe
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.drivers.fault_injection import VerbDial
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


def host_of(server: dict[str, Any]) -> str:
    return str(server["OS-EXT-SRV-ATTR:host"])


async def asked(running: Running, server: str, action: dict[str, Any], status: str, code: int = 202) -> dict[str, Any]:
    """The server, when it came to that status; nothing shows while a move is being confirmed, as in Nova."""
    reply = await act(running, server, action)
    assert reply.status_code == code, reply.text
    if "confirmResize" in action:
        await until(lambda: running.admin.settled(server), lambda seen: seen["status"] != "VERIFY_RESIZE")
    seen = await running.admin.settled(server)
    await running.let_go(server)  # bindings and quota are seen to after the server
    assert seen["status"] == status, (await failure(running, server), await running.admin.operations_of(server))
    return dict(seen)


async def resized(running: Running, server: str, flavor: str = "m1.micro") -> dict[str, Any]:
    wanted = await running.admin.id_of("flavor", flavor)
    return await asked(running, server, {"resize": {"flavorRef": wanted}}, "VERIFY_RESIZE")


async def migrations(running: Running, server: str) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", "/os-migrations", instance_uuid=server)
    return list(reply.json()["migrations"])


async def quota(running: Running) -> tuple[int, int]:
    reply = await running.admin.compute("GET", "/limits")
    used = reply.json()["limits"]["absolute"]
    return used["totalCoresUsed"], used["totalRAMUsed"]


async def nothing_to_mend(running: Running) -> None:
    """No round of the reconcilers finds anything."""
    context = running.cloud.region.context
    claims = await OrphanAllocations(context).run()
    assert (claims.released, claims.drifted) == ((), 0)
    assert (await QuotaUsage(context).run()).mended == ()
    drift = await PortDrift(context).run()
    assert (drift.mended, drift.amiss) == ((), ())
    attachments = await OrphanAttachments(context).run()
    assert (attachments.dropped, attachments.amiss, attachments.mended) == ((), (), 0)
    await OrphanPorts(context).run()


def letter(running: Running, server: dict[str, Any], text: str = "a letter\n") -> None:
    running.cloud.fleet.drivers[host_of(server)].write_disk(ServerId(server["id"]), text)


def disk(running: Running, server: dict[str, Any]) -> bytes:
    return running.cloud.fleet.drivers[host_of(server)].disk_of(ServerId(server["id"]))


def power(running: Running, host: str, server: str) -> PowerState:
    return running.cloud.fleet.drivers[host].power_of(ServerId(server))


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
    await nothing_to_mend(running)
    there = await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)
    assert guests(running, id) == [host_of(there)]
    assert disk(running, there) == whole
    assert await held(running, move["uuid"]) == {}
    assert [each["status"] for each in await migrations(running, id)] == ["confirmed"]
    assert [each for each, _ in await actions(running, id)] == ["confirmResize", "resize", "create"]
    await nothing_to_mend(running)


async def test_a_revert_is_never_refused_for_want_of_room(running: Running) -> None:
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
    await nothing_to_mend(running)
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
    await nothing_to_mend(running)
    said = (await explained(running.admin, id))["summary"]
    assert said.startswith(f"placed on {host_of(server)}: ")
    assert said.endswith("there again since its move was reverted")
    there = await resized(running, id)
    assert (await explained(running.admin, id))["summary"].startswith(f"placed on {host_of(there)} by its move: ")
    await asked(running, id, {"confirmResize": None}, "SHUTOFF" if off else "ACTIVE", 204)


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


async def test_a_delete_confirms_first(running: Running) -> None:
    before = await quota(running)
    server = await running.admin.active("a", networks=ROUTED)
    await resized(running, server["id"])
    (move,) = await migrations(running, server["id"])
    await running.admin.gone(server["id"])
    assert guests(running, server["id"]) == []
    assert await held(running, move["uuid"]) == {}
    assert [each["status"] for each in await migrations(running, server["id"])] == ["confirmed"]
    assert await quota(running) == before
    await nothing_to_mend(running)


async def test_what_cannot_be_resized_is_as_it_was(running: Running) -> None:
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
    await nothing_to_mend(running)


@pytest.mark.parametrize("verb", ["move_target", "take_guest"])
async def test_a_host_that_cannot_take_it_costs_nothing(running: Running, verb: str) -> None:
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
    await nothing_to_mend(running)


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
    await nothing_to_mend(running)
    await asked(running, id, {"revertResize": None}, "ACTIVE")
    await is_on(here, None, host_of(there))
    there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
    await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)
    await is_on(host_of(there), None, here)
    await nothing_to_mend(running)
    await admin.gone(id)
    await admin.network("DELETE", f"/ports/{port['id']}")
    await admin.network("DELETE", f"/networks/{network}")
    await admin.network("DELETE", f"/qos/policies/{policy}")


@pytest.mark.parametrize("action", ["confirmResize", "revertResize"])
async def test_volumes_go_with_their_server(running: Running, action: str) -> None:
    server = await backed(running, "volumes")
    id, here = server["id"], host_of(server)
    there = await resized(running, id)
    rows = [row["volumeId"] for row in await attached(running, id)]
    assert disks(running, there) == rows
    for row in rows:
        shown = (await running.admin.volume("GET", f"/volumes/{row}")).json()["volume"]
        assert [each["host_name"] for each in shown["attachments"]] == [host_of(there)]
    await nothing_to_mend(running)
    now = await asked(running, id, {action: None}, "ACTIVE", 204 if action == "confirmResize" else 202)
    assert host_of(now) == (here if action == "revertResize" else host_of(there))
    assert disks(running, now) == rows
    await nothing_to_mend(running)


async def moves(running: Running, server: str) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", f"/ext/servers/{server}/moves")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["moves"])


async def test_both_ends_of_a_move_are_shown_and_it_is_cancelled_until_its_server_is_there(running: Running) -> None:
    admin = running.admin
    before = await quota(running)
    known = await providers(admin)
    policy, network = await policy_of(admin, kbps=KBPS // 2), await network_on(admin, "physnet1")
    wire = await port_on(admin, network, policy)
    server = await admin.active("a", networks=[{"port": wire["id"]}])
    id, source, disk_of = server["id"], host_of(server), await volume(running)
    assert (await attach(running, id, disk_of)).status_code == 202
    await running.let_go(id)
    gate = running.hold_up("take_guest")
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
    for which, code in ((str(uuid.uuid4()), 404), (move["id"], 202)):
        reply = await admin.compute("POST", f"/ext/servers/{id}/moves/{which}/action", {"cancel": None})
        assert reply.status_code == code, reply.text
    await until(lambda: moves(running, id), lambda seen: bool(seen[0]["operation"]) and seen[0]["operation"]["back"])
    gate.set()
    seen = await admin.settled(id)
    await running.let_go(id)
    assert (seen["status"], host_of(seen), "fault" in seen) == ("ACTIVE", source, False)
    assert power(running, source, id) is PowerState.RUNNING
    assert guests(running, id) == [source]
    assert disks(running, seen) == [disk_of]
    assert await quota(running) == (before[0] + 1, before[1] + 128)
    (move,) = await moves(running, id)
    assert (move["status"], move["operation"], move["source"]["claimed"]) == ("cancelled", None, [])
    assert [each for each, _ in await actions(running, id)][:2] == ["cancel_move", "resize"]
    await nothing_to_mend(running)
    await resized(running, id)
    move = (await moves(running, id))[0]
    assert (move["status"], move["waiting"]) == ("finished", "its owner, to confirm or revert it")
    assert (move["source"]["consumer"], move["destination"]["consumer"]) == (move["id"], id)
    late = await admin.compute("POST", f"/ext/servers/{id}/moves/{move['id']}/action", {"cancel": None})
    assert late.status_code == 409
    assert "its server is on its new host: confirm or revert it" in late.text
    await asked(running, id, {"revertResize": None}, "ACTIVE")
    await nothing_to_mend(running)
