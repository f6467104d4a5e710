"""Networks of one router on several hosts, by IPv6: namespaces in the guests' places, and hosts in namespaces."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.helpers.routed_hosts import RoutedHost, Told, routed_hosts
from tests.helpers.wired_namespaces import ASK, SERVE

from moorage.drivers.libvirt.tunnels import tunnel_of
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ServerId, SubnetId
from moorage.model.port_description import (
    AddressSetPart,
    AllowedAddresses,
    FilterRule,
    PortDescription,
    PortFilter,
    arp_set_id,
)
from moorage.model.route_description import ArpEntry, ExternalNetwork, RoutedSubnet, RouterDescription
from moorage_testing.hypervisor.stations import Station

pytestmark = pytest.mark.hypervisor

MTU = 1_450
GATEWAY, ADDRESS = "2001:db8::1", "2001:db8::2"
PUBLIC = ExternalNetwork(NetworkId("public"), "physnet1", cidr6="2001:db8::/64", gateway6=GATEWAY)
NETWORKS = {name: (NetworkId(f"{name * 8}-0000-4000"), number) for number, name in enumerate("abef", start=5)}
RANGES = {"a": 5, "b": 6, "e": 5, "f": 6}
"""Network → its range: two have those of two others, and another router."""
OUT, PING, WEB = FilterRule("egress", 6), FilterRule("ingress", 6, 58), FilterRule("ingress", 6, 6, 80, 80)


def a_router(*networks: str) -> RouterDescription:
    subnets = tuple(
        RoutedSubnet(
            NETWORKS[each][0], f"2001:db8:77:{RANGES[each]}::/64", f"2001:db8:77:{RANGES[each]}::1",
            7_000 + NETWORKS[each][1], MTU,
        )
        for each in networks
    )  # fmt: skip
    return RouterDescription("-".join(networks), subnets6=subnets)


def a_guest(place: int, name: str) -> GuestSpec:
    network, number = NETWORKS[name]
    prefix = f"2001:db8:77:{RANGES[name]}::"
    address = VifAddress(f"{prefix}{place + 16:x}", SubnetId(name), f"{prefix}/64", f"{prefix}1")
    vif = VifData(
        PortId(f"{number:04x}{place:04x}-1111"), network, f"fa:16:3e:78:{number:02x}:{place:02x}", "bridge", mtu=MTU,
        addresses=(address,), vif_details={"described": True}, segmentation_id=7_000 + number,
    )  # fmt: skip
    return GuestSpec(ServerId(f"cccccccc-0000-4000-8000-{number * 100 + place:012d}"), name, 1, 128, vifs=(vif,))


def address_of(guest: GuestSpec) -> str:
    return guest.vifs[0].addresses[0].address


@dataclass
class Known:
    """What the network service would say of guests on hosts."""

    places: dict[str, tuple[RoutedHost, GuestSpec]]
    routers: tuple[RouterDescription, ...]
    rules: dict[str, tuple[FilterRule, ...]] = field(default_factory=dict)
    speaker: RoutedHost | None = None
    """Who has the router's address outside."""
    version: int = 0

    async def say(self, *hosts: RoutedHost) -> None:
        self.version += 1
        for host in hosts:
            mine = {name: guest for name, (at, guest) in self.places.items() if at is host}
            ports = tuple(self._port(name, guest, host) for name, guest in mine.items())
            told = Told(self.version, tuple(mine.values()), ports=ports, sets=self._sets() if ports else ())
            assert await host.have(told) == []

    def _port(self, name: str, guest: GuestSpec, host: RoutedHost) -> PortDescription:
        vif = guest.vifs[0]
        wanted = PortFilter((AllowedAddresses(vif.mac, (address_of(guest),)),), self.rules.get(name, (OUT,)))
        routers = tuple(
            each
            if self.speaker is None
            else replace(each, external=PUBLIC, address6=ADDRESS if host is self.speaker else "")
            for each in self.routers
            if any(one.network == vif.network for one in each.subnets6)
        )
        return PortDescription(vif.port, self.version, vif.network, vif.mac, filter=wanted, routers=routers, bound=True)

    def _sets(self) -> tuple[AddressSetPart, ...]:
        found: dict[str, list[ArpEntry]] = {}
        for _, guest in self.places.values():
            vif = guest.vifs[0]
            entry = ArpEntry(address_of(guest), vif.mac)
            found.setdefault(arp_set_id(vif.network, entry.address), []).append(entry)
        return tuple(AddressSetPart(id, self.version, arp_entries=tuple(each)) for id, each in found.items())


async def reaches(station: Station, address: str) -> bool:
    return (await station.run("ping", "-c1", "-W1", address)).code == 0


async def connects(station: Station, address: str) -> bool:
    return (await station.run(sys.executable, "-c", ASK, "tcp", address, "80", "2")).code == 0


@asynccontextmanager
async def serving(station: Station, address: str) -> AsyncIterator[None]:
    words = ("ip", "netns", "exec", station.name, sys.executable, "-c", SERVE, "tcp", address, "80")
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        yield
    finally:
        process.kill()
        await process.communicate()


async def test_networks_of_routers_reach_one_another_from_host_to_host(tmp_path: Path) -> None:
    with routed_hosts(tmp_path, 2) as made:
        one, two = made.hosts
        places = {name: (one if name in "ae" else two, a_guest(10, name)) for name in "abef"}
        known = Known(places, (a_router("a", "b"), a_router("e", "f")), {"b": (OUT, PING, WEB)})
        stations = {name: made.station(*places[name], name) for name in places}
        second = address_of(places["b"][1])
        await known.say(one, two)
        assert await reaches(stations["a"], second)
        assert not await reaches(stations["e"], second), "it is another one with this address"
        assert not await reaches(stations["b"], address_of(places["a"][1])), "it lets nobody in"
        async with serving(stations["b"], second):
            assert await connects(stations["a"], second)
        known.rules = {"a": (OUT, PING), "f": (OUT, PING)}
        await known.say(one, two)
        assert not await reaches(stations["a"], second)
        assert await reaches(stations["e"], second)
        assert await reaches(stations["b"], address_of(places["a"][1]))
        assert not await reaches(stations["f"], address_of(places["a"][1]))
        for name, (_, guest) in places.items():
            assert await reaches(stations[name], guest.vifs[0].addresses[0].gateway or ""), "its gateway"
        whole = ("ping", "-c1", "-W1", "-M", "do", "-s", str(MTU - 48), second)
        assert (await stations["e"].run(*whole)).code == 0, "frames of full length"

        # The agents end and come again; what goes on does not notice.
        pinging = asyncio.create_task(stations["e"].run("ping", "-i", "0.02", "-c", "250", "-q", second))
        for each in (one, two):
            each.kill()
            each.start()
        await known.say(one, two)
        assert "250 received" in (await pinging).out
        assert second in one.call("ip", "-6", "neigh", "show", "nud", "permanent")
        known.places.clear()
        await known.say(one, two)
        for each in made.hosts:
            assert each.leftovers() == []


async def test_the_outside_reaches_guests_by_the_one_host_that_has_the_address(tmp_path: Path) -> None:
    """Both of a network that is on two hosts, and those of one that is on the other host alone."""
    with routed_hosts(tmp_path, 2) as made:
        one, two = made.hosts
        outside = made.outside(f"{GATEWAY}/64")
        outside.call("ip", "-6", "route", "add", "2001:db8:77::/48", "via", ADDRESS)
        places = {"a": (one, a_guest(10, "a")), "a2": (two, a_guest(20, "a")), "b": (two, a_guest(10, "b"))}
        known = Known(places, (a_router("a", "b"),), speaker=one)
        stations = {name: made.station(*places[name], name) for name in places}
        await known.say(one, two)

        async def from_outside_and_back() -> None:
            for name, (_, guest) in places.items():
                known.rules = {}
                await known.say(one, two)
                assert not await reaches(outside, address_of(guest)), name
                async with serving(outside, GATEWAY):
                    assert await connects(stations[name], GATEWAY), f"{name} is answered"
                known.rules = {name: (OUT, WEB, PING)}
                await known.say(one, two)
                assert await reaches(outside, address_of(guest)), name
                async with serving(stations[name], address_of(guest)):
                    assert await connects(outside, address_of(guest)), name
            assert await reaches(stations["a" if known.speaker is one else "a2"], ADDRESS), "the router itself"

        await from_outside_and_back()
        assert ADDRESS not in two.call("ip", "-6", "address", "show", "dev", "outside")

        # Another host has the address; the outside is told.
        known.speaker = two
        await known.say(one, two)
        mac = two.call("cat", "/sys/class/net/outside/address").strip()
        assert mac in outside.call("ip", "-6", "neigh", "show", ADDRESS)
        await from_outside_and_back()
        assert tunnel_of(NETWORKS["b"][0]) in one.devices()
        known.places = places = {"a": places["a"]}
        await known.say(one, two)
        assert two.leftovers() == []
        assert ADDRESS not in two.call("ip", "-6", "address", "show", "dev", "outside")
        known.places = {}
        await known.say(one)
        assert one.leftovers() == []
