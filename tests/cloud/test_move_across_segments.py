"""A routed segment whose other hosts are gone: a move gives the server an address of another segment, and can be reverted (N9).

Each of its moves in turn, for they are the ways back and forth between the same two segments.
"""

from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_dry_run import tried
from tests.cloud.test_evacuate import cleaned, evacuated, killed
from tests.cloud.test_fixed_ips import act as act_early
from tests.cloud.test_full_segments import filled
from tests.cloud.test_last_address import ADDRESS, routed_with
from tests.cloud.test_shelve import act, done, ports
from tests.helpers.explained_claims import explained
from tests.helpers.guaranteed_ports import placement
from tests.helpers.resized_cloud import asked, assert_nothing_to_repair, host_of, migrations

from moorage.conductor.reconcilers import segments
from moorage.main import reconcilers
from moorage.main.config import Cell, Compute, Hosts
from moorage.model.ids import NetworkId
from moorage_testing.api_user import Person

WIRES = (("physnet1",), ("physnet1",), ("physnet2",), ("physnet2",))


async def retire(admin: Person, host: str, status: str = "disabled") -> None:
    listed = (await admin.compute("GET", "/os-services", host=host)).json()["services"]
    (service,) = [each["id"] for each in listed if each["binary"] == "nova-compute"]
    assert (await admin.compute("PUT", f"/os-services/{service}", {"status": status})).status_code == 200


async def addresses_on(running: Running, server: str) -> list[str]:
    """All that its port has, at the network service."""
    (port,) = await ports(running, server)
    return sorted(each["ip_address"] for each in port["fixed_ips"])


def shown(server: dict[str, Any]) -> list[str]:
    return [each["addr"] for each in server["addresses"]["tight"]]


async def test_a_server_leaves_a_removed_segment_and_returns_or_stays(start: Start) -> None:
    compute = Compute(allow_move_across_segments=True, host_silence_s=10.0)
    hosts = Hosts(count=4, physical_networks=WIRES, beat_s=0.3)
    async with start(hosts=hosts, compute=compute, cells=(Cell("cell1"),)) as running:
        admin = running.admin
        network, (left, new) = await routed_with(admin, 4, 4)
        server = await admin.active("a", networks=[{"uuid": network}], availability_zone="nova:host1")
        id, (old,) = server["id"], shown(server)
        (port,) = await ports(running, id)

        there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
        assert (host_of(there), shown(there)) == ("host2", [old]), "its own segment comes first"
        await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)

        await retire(admin, "host1")
        plan = await tried(running, f"/servers/{id}/action", {"migrate": None})
        assert {each["host"] for each in plan["hosts"]} == {"host3", "host4"}
        there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
        assert host_of(there) in {"host3", "host4"}
        (given,) = shown(there)
        assert given.startswith("10.91.0.")
        assert await addresses_on(running, id) == [old, given], "the old one is held for a revert"
        await held_one_is_not_the_owners(running, id, network, old, given)
        (now,) = await ports(running, id)
        assert (now["id"], now["mac_address"]) == (port["id"], port["mac_address"])
        move = (await migrations(running, id))[0]["uuid"]
        assert [await addresses_held(running, each, left, new) for each in (id, move)] == [[0, 1], [1, 0]]
        await assert_nothing_to_repair(running)

        back = await asked(running, id, {"revertResize": None}, "ACTIVE")
        assert (host_of(back), shown(back)) == ("host2", [old])
        assert await addresses_on(running, id) == [old]
        assert [await addresses_held(running, each, left, new) for each in (id, move)] == [[1, 0], [0, 0]]
        await assert_nothing_to_repair(running)

        there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
        (given,), move = shown(there), (await migrations(running, id))[0]["uuid"]
        await assert_readdressed(running, id, (old, left), (given, new))
        stays = await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)
        assert (host_of(stays), shown(stays)) == (host_of(there), [given])
        assert await addresses_on(running, id) == [given]
        assert [await addresses_held(running, each, left, new) for each in (id, move)] == [[0, 1], [0, 0]]
        await assert_nothing_to_repair(running)
        back = await unshelved_across(running, id, (given, new), left)
        await evacuated_across(running, id, (back, left), new)
        await admin.gone(id)


async def assert_readdressed(running: Running, id: str, old: tuple[str, str], new: tuple[str, str]) -> None:
    """Of its newest operation, what it changed: address and segment before and after."""
    (port,) = await ports(running, id)
    said = (await explained(running.admin, id))["operations"][-1]["attempts"][-1]["readdressed"]
    known = {"old": [old[0]], "new": [new[0]], "old_segment": old[1], "new_segment": new[1]}
    assert said == [{"port": port["id"], **known}]
    details = [each["details"] for each in await events_of_newest_action(running.admin, id)]
    assert f"port {port['id']}: {old[0]} is now {new[0]}" in details


async def unshelved_across(running: Running, id: str, had: tuple[str, str], segment: str) -> str:
    """The address that it was given, when only a host of that other segment was there to take it."""
    (port,) = await ports(running, id)
    await done(running, id, {"shelve": None}, "SHELVED_OFFLOADED")
    assert await addresses_on(running, id) == [had[0]]
    for host in ("host3", "host4"):
        await retire(running.admin, host)
    plan = await tried(running, f"/servers/{id}/action", {"unshelve": None})
    assert [each["host"] for each in plan["hosts"]] == ["host2"]
    back = await done(running, id, {"unshelve": None}, "ACTIVE")
    (given,) = shown(back)
    assert (host_of(back), given.rsplit(".", 1)[0]) == ("host2", "10.90.0")
    assert await addresses_on(running, id) == [given]
    (now,) = await ports(running, id)
    assert (now["id"], now["mac_address"]) == (port["id"], port["mac_address"])
    assert await addresses_held(running, id, segment, had[1]) == [1, 0]
    await assert_readdressed(running, id, had, (given, segment))
    await assert_nothing_to_repair(running)
    return given


async def evacuated_across(running: Running, id: str, had: tuple[str, str], segment: str) -> None:
    """Its host dies; what a live migration refuses, an evacuation does."""
    await retire(running.admin, "host3", "enabled")
    live = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    assert (await act(running, id, live)).status_code == 202
    await running.wait_until_unlocked(id)
    assert (await migrations(running, id))[0]["status"] == "error", "a guest that runs keeps its address"
    dead = await killed(running, "host2")
    await dead.down()
    there = await evacuated(running, id)
    (given,) = shown(there)
    assert (host_of(there), given.rsplit(".", 1)[0]) == ("host3", "10.91.0")
    assert await addresses_on(running, id) == [given]
    move = (await migrations(running, id))[0]["uuid"]
    assert [await addresses_held(running, each, had[1], segment) for each in (id, move)] == [[0, 1], [0, 0]]
    await assert_readdressed(running, id, had, (given, segment))
    await assert_nothing_to_repair(running)
    await dead.returns()
    await cleaned(running, id, "host2")
    await assert_nothing_to_repair(running)


async def held_one_is_not_the_owners(running: Running, id: str, network: str, held: str, given: str) -> None:
    """It is not shown, cannot be taken away, and no other is given beside it; what is given goes again."""
    admin = running.admin
    assert await interface(admin, id) == [given]
    gone = await act_early(admin, id, {"removeFixedIp": {"address": held}})
    assert (gone.status_code, held in gone.text) == (400, True)
    for _ in range(3):  # the segment has four
        assert (await act_early(admin, id, {"addFixedIp": {"networkId": network}})).status_code == 202
    full = await act_early(admin, id, {"addFixedIp": {"networkId": network}})
    assert (full.status_code, "No fixed IP addresses available" in full.text) == (400, True)
    more = [each for each in await interface(admin, id) if each != given]
    assert (len(more), {each.rsplit(".", 1)[0] for each in more}) == (3, {"10.91.0"})
    for each in more:
        assert (await act_early(admin, id, {"removeFixedIp": {"address": each}})).status_code == 202
    assert await addresses_on(running, id) == [held, given]


async def interface(admin: Person, server: str) -> list[str]:
    (card,) = (await admin.compute("GET", f"/servers/{server}/os-interface")).json()["interfaceAttachments"]
    return sorted(each["ip_address"] for each in card["fixed_ips"])


async def events_of_newest_action(admin: Person, server: str) -> list[dict[str, Any]]:
    path = f"/servers/{server}/os-instance-actions"
    newest = (await admin.compute("GET", path)).json()["instanceActions"][0]["request_id"]
    return list((await admin.compute("GET", f"{path}/{newest}")).json()["instanceAction"]["events"])


async def addresses_held(running: Running, consumer: str, *segments: str) -> list[int]:
    """How many of each segment placement counts as its."""
    there = (await placement(running.admin, f"/allocations/{consumer}"))["allocations"]
    return [there.get(each, {}).get("resources", {}).get(ADDRESS, 0) for each in segments]


async def test_an_address_that_was_freed_a_moment_ago_is_found(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own segment has free addresses and no host any more, and the other one was full: a move and an unshelve look again."""
    monkeypatch.setattr(reconcilers, "SEGMENTS_EVERY_S", 3600.0)
    monkeypatch.setattr(segments, "ASKED_EVERY_S", 0.0)
    compute = Compute(allow_move_across_segments=True)
    hosts = Hosts(count=2, physical_networks=(("physnet1",), ("physnet2",)))
    async with start(hosts=hosts, compute=compute, cells=(Cell("cell1"),)) as running:
        admin = running.admin
        network, (_, new) = await routed_with(admin, 4, 1)
        await filled(running, network, new, 1)
        server = await admin.active("a", networks=[{"uuid": network}], availability_zone="nova:host1")
        id = server["id"]
        await asked(running, id, {"migrate": None}, "ACTIVE")
        assert (await migrations(running, id))[0]["status"] == "error", "there was no address yet"
        await freed(running, network)
        there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
        assert host_of(there) == "host2"
        await asked(running, id, {"revertResize": None}, "ACTIVE")
        await filled(running, network, new, 1)
        await done(running, id, {"shelve": None}, "SHELVED_OFFLOADED")
        await retire(admin, "host1")
        context = running.cloud.region.context
        assert context.redraw_segments is not None
        await context.redraw_segments(NetworkId(network))
        await freed(running, network)
        there = await done(running, id, {"unshelve": None}, "ACTIVE")
        assert host_of(there) == "host2"
        await admin.gone(id)


async def freed(running: Running, network: str) -> None:
    """The ports that no server has are gone."""
    for port in (await running.admin.network("GET", "/ports", network_id=network)).json()["ports"]:
        if not port["device_id"]:
            assert (await running.admin.network("DELETE", f"/ports/{port['id']}")).status_code == 204
