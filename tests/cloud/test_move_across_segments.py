"""A routed segment whose other hosts are gone: a cold migration gives the server an address of another segment, and can be reverted (N9)."""

from typing import Any

from conftest import Running, Start
from guaranteed import placement
from test_dry_run import tried
from test_fixed_ips import act
from test_guaranteed_ports import explained
from test_last_address import ADDRESS, routed_with
from test_resize import asked, host_of, migrations, nothing_to_mend
from test_shelve import ports

from moorage.main.config import Cell, Compute, Hosts
from moorage.testing.person import Person

WIRES = (("physnet1",), ("physnet1",), ("physnet2",), ("physnet2",))


async def retire(admin: Person, host: str) -> None:
    listed = (await admin.compute("GET", "/os-services", host=host)).json()["services"]
    (service,) = [each["id"] for each in listed if each["binary"] == "nova-compute"]
    assert (await admin.compute("PUT", f"/os-services/{service}", {"status": "disabled"})).status_code == 200


async def addresses_on(running: Running, server: str) -> list[str]:
    """All that its port has, at the network service."""
    (port,) = await ports(running, server)
    return sorted(each["ip_address"] for each in port["fixed_ips"])


def shown(server: dict[str, Any]) -> list[str]:
    return [each["addr"] for each in server["addresses"]["tight"]]


async def test_a_server_leaves_a_retired_segment_and_comes_back_or_stays(start: Start) -> None:
    compute = Compute(allow_move_across_segments=True)
    async with start(hosts=Hosts(count=4, physical_networks=WIRES), compute=compute, cells=(Cell("cell1"),)) as running:
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
        await nothing_to_mend(running)

        back = await asked(running, id, {"revertResize": None}, "ACTIVE")
        assert (host_of(back), shown(back)) == ("host2", [old])
        assert await addresses_on(running, id) == [old]
        assert [await addresses_held(running, each, left, new) for each in (id, move)] == [[1, 0], [0, 0]]
        await nothing_to_mend(running)

        there = await asked(running, id, {"migrate": None}, "VERIFY_RESIZE")
        (given,), move = shown(there), (await migrations(running, id))[0]["uuid"]
        told = (await explained(admin, id))["operations"][-1]["attempts"][-1]["readdressed"]
        assert told == [{"port": port["id"], "old": [old], "new": [given], "old_segment": left, "new_segment": new}]
        said = [each["details"] for each in await events_of_newest_action(admin, id)]
        assert f"port {port['id']}: {old} is now {given}" in said
        stays = await asked(running, id, {"confirmResize": None}, "ACTIVE", 204)
        assert (host_of(stays), shown(stays)) == (host_of(there), [given])
        assert await addresses_on(running, id) == [given]
        assert [await addresses_held(running, each, left, new) for each in (id, move)] == [[0, 1], [0, 0]]
        await nothing_to_mend(running)
        await admin.gone(id)


async def held_one_is_not_the_owners(running: Running, id: str, network: str, held: str, given: str) -> None:
    """It is not shown, cannot be taken away, and no other is given beside it; what is given goes again."""
    admin = running.admin
    assert await interface(admin, id) == [given]
    gone = await act(admin, id, {"removeFixedIp": {"address": held}})
    assert (gone.status_code, held in gone.text) == (400, True)
    for _ in range(3):  # the segment has four
        assert (await act(admin, id, {"addFixedIp": {"networkId": network}})).status_code == 202
    full = await act(admin, id, {"addFixedIp": {"networkId": network}})
    assert (full.status_code, "No fixed IP addresses available" in full.text) == (400, True)
    more = [each for each in await interface(admin, id) if each != given]
    assert (len(more), {each.rsplit(".", 1)[0] for each in more}) == (3, {"10.91.0"})
    for each in more:
        assert (await act(admin, id, {"removeFixedIp": {"address": each}})).status_code == 202
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
