"""Addresses of flat networks: each is allocated once, also with concurrent requests, and all of a server's or none."""

import asyncio
import ipaddress

import msgspec
import pytest

from moorage.model.flat_network import AddressRequest, Exhausted, FlatPool, completed
from moorage.model.ids import CellId
from moorage.sql import Database
from moorage.store.region import flat_addresses
from moorage.store.region.tables import region_metadata

ONE, TWO = CellId("cell1"), CellId("cell2")


def pool(size: int, cell: CellId = ONE) -> FlatPool:
    return completed(FlatPool("net", cell, "10.0.0.0/24", "10.0.0.10", f"10.0.0.{9 + size}", "", ()))


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(region_metadata)
    return database


async def take(region: Database, server: str, *wants: AddressRequest, host: str = "host1") -> object:
    return await region.write(lambda tx: flat_addresses.take(tx, server, host, wants))


async def test_concurrent_requests_for_the_last_addresses(region: Database) -> None:
    """Twelve servers want two of seven addresses each: three get them, and one address stays free."""
    wants = [AddressRequest(nic, f"fa:16:3e:00:00:{nic:02x}", pool(7)) for nic in range(2)]
    answers = await asyncio.gather(*(take(region, f"server-{n}", *wants) for n in range(12)))
    won = [leases for leases in answers if isinstance(leases, tuple)]
    lost = [answer for answer in answers if isinstance(answer, Exhausted)]
    assert (len(won), len(lost)) == (3, 9)
    addresses = [pool(7).address(lease.slot) for leases in won for lease in leases]
    assert len(set(addresses)) == 6
    assert all("10.0.0.10" <= each <= "10.0.0.16" for each in addresses)
    assert len(await region.read(flat_addresses.every)) == 6


async def test_an_address_taken_again_is_the_same_and_changes_with_the_cell(region: Database) -> None:
    want = AddressRequest(0, "fa:16:3e:00:00:01", pool(4))
    first = await take(region, "s", want)
    assert await take(region, "s", want) == first
    moved = await take(region, "s", want, host="host2")
    assert isinstance(first, tuple)
    assert isinstance(moved, tuple)
    assert (moved[0].slot, moved[0].host) == (first[0].slot, "host2")
    elsewhere = await take(region, "s", AddressRequest(0, want.mac, pool(4, TWO)), host="host3")
    assert isinstance(elsewhere, tuple)
    assert elsewhere[0].cell == TWO
    assert len(await region.read(lambda tx: flat_addresses.of_server(tx, "s"))) == 1


async def test_a_refused_request_keeps_earlier_addresses(region: Database) -> None:
    want = AddressRequest(0, "fa:16:3e:00:00:01", pool(4))
    first = await take(region, "s", want)
    await take(region, "other", AddressRequest(0, "fa:16:3e:00:00:02", pool(1, TWO)))
    assert isinstance(await take(region, "s", AddressRequest(0, want.mac, pool(1, TWO))), Exhausted)
    assert tuple(await region.read(lambda tx: flat_addresses.of_server(tx, "s"))) == first
    await region.write(lambda tx: flat_addresses.give_back(tx, "s"))
    await region.write(lambda tx: flat_addresses.give_back(tx, "s"))
    (left,) = await region.read(flat_addresses.every)
    assert (left.server, left.nic) == ("other", 0)


@pytest.mark.parametrize(
    ("cidr", "more", "says"),
    [
        ("10.0.0.0/31", {}, "has no address to give out"),
        ("2001:db8::/64", {}, "are IPv4"),
        ("10.0.0.0/24", {"first": "10.0.1.1"}, "is not in"),
        ("10.0.0.0/24", {"first": "10.0.0.9", "last": "10.0.0.8"}, "a pool has 1 to"),
        ("10.0.0.0/8", {}, "a pool has 1 to"),
        ("10.0.0.0/24", {"gateway": "10.0.0.50"}, "among the addresses to give out"),
        ("ten", {}, "does not appear to be"),
    ],
)
def test_invalid_pools_are_refused(cidr: str, more: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        completed(msgspec.structs.replace(FlatPool("net", ONE, cidr, "", "", "", ()), **more))


def test_a_pool_needs_only_its_cidr() -> None:
    made = completed(FlatPool("net", ONE, "10.0.0.0/29", "", "", "", ()))
    assert (made.gateway, made.first, made.last, made.size) == ("10.0.0.1", "10.0.0.2", "10.0.0.6", 5)
    assert ipaddress.ip_address(made.address(4)) == ipaddress.ip_address("10.0.0.6")


async def test_a_requested_address_is_given_to_its_requester(region: Database) -> None:
    """Not to another NIC of the same server that takes any; a second wish for it is refused, and so is another one by who has one."""
    wants = [AddressRequest(nic, f"fa:16:3e:00:00:{nic:02x}", pool(4), 2 if nic == 3 else None) for nic in range(4)]
    leases = await take(region, "s", *wants)
    assert isinstance(leases, tuple)
    assert [lease.nic for lease in leases] == [0, 1, 2, 3]
    assert leases[3].slot == 2
    assert sorted(lease.slot for lease in leases) == [0, 1, 2, 3]
    assert await take(region, "s", *wants) == leases
    assert await take(region, "t", AddressRequest(0, "fa:16:3e:00:00:10", pool(4), 2)) == Exhausted(0, pool(4), 2)
    assert await region.read(lambda tx: flat_addresses.holder(tx, pool(4), 2)) == "s"
    assert await region.read(lambda tx: flat_addresses.holder(tx, pool(4, TWO), 2)) is None
    await region.write(lambda tx: flat_addresses.give_back(tx, "s", (0,)))
    free = leases[0].slot
    moved = await take(region, "s", AddressRequest(1, wants[1].mac, pool(4), free))
    assert isinstance(moved, tuple)
    assert moved[0].slot == free, "the one that was taken before is exchanged for the one that is wished"
