"""Routers with subnets of IPv6, with namespaces in the places of guests and of the outside."""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.helpers.served_networks import Host, a_guest, make_host, stations, until

from moorage.drivers.libvirt import routing
from moorage.drivers.libvirt.dhcp import METADATA_V6, SERVICE_V6
from moorage.drivers.libvirt.port_filter import link_local_of
from moorage.drivers.libvirt.tunnels import gateway_mac
from moorage.model.guest import GuestSpec, VifAddress
from moorage.model.ids import NetworkId, SubnetId
from moorage.model.port_description import PortDescription
from moorage.model.route_description import ExternalNetwork, RoutedSubnet, RouterDescription, StaticRoute
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.stations import Station, call

__all__ = ["make_host", "stations"]
pytestmark = pytest.mark.hypervisor

GATEWAY, ROUTER = "2001:db8::1", "2001:db8::2"
PUBLIC = ExternalNetwork(NetworkId("public"), "physnet1", cidr6="2001:db8::/64", gateway6=GATEWAY)


def prefix(number: int) -> str:
    return f"2001:db8:77:{number}::"


def a_router(name: str, *networks: str, **more: object) -> RouterDescription:
    subnets = tuple(
        RoutedSubnet(NetworkId(f"{each[0] * 8}-0000-4000"), f"{prefix(int(each[1:]))}/64", f"{prefix(int(each[1:]))}1")
        for each in networks
    )
    return RouterDescription(name, subnets6=subnets, **more)  # type: ignore[arg-type]


def v6_guest(place: int, network: str, number: int) -> GuestSpec:
    """With the address that it makes itself of what is advertised."""
    mac = f"fa:16:3e:77:06:{place:02x}"
    own = int(ip_address(prefix(number))) | int(ip_address(link_local_of(mac))) & (1 << 64) - 1
    modes = {"address_mode": "slaac", "ra_mode": "slaac"}
    address = VifAddress(
        str(ip_address(own)), SubnetId(str(number)), f"{prefix(number)}/64", f"{prefix(number)}1", **modes
    )  # type: ignore[arg-type]
    return a_guest(place, network * 8, address)


def address_of(guest: GuestSpec) -> str:
    return guest.vifs[0].addresses[0].address


async def has_its_address(station: Station, guest: GuestSpec) -> None:
    async def has() -> bool:
        mine = station.call("ip", "-6", "address", "show", "dev", "eth0", "scope", "global")
        return address_of(guest) in mine and "tentative" not in mine

    await until(has)


async def reaches(station: Station, address: str, *more: str) -> bool:
    return (await station.run("ping", "-c1", "-W2", *more, address)).code == 0


async def test_networks_of_a_router_and_the_outside(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    host = make_host()
    guests = [v6_guest(place, name, number) for place, (name, number) in enumerate((("a", 5), ("b", 6), ("c", 7)), 1)]
    one, two, three = guests
    outside = Station("outside", "")
    outside.start()
    outside.call("ip", "-6", "address", "add", f"{GATEWAY}/64", "dev", "eth0", "nodad")
    outside.call("ip", "-6", "route", "add", "2001:db8:77::/48", "via", ROUTER)
    routes = (StaticRoute("2001:db8:99::/48", address_of(two)),)
    router = a_router("router", "a5", "b6", routes=routes)
    host.ports = {each.vifs[0].port: PortDescription(each.vifs[0].port, 1, routers=(router,)) for each in (one, two)}
    host.ports[three.vifs[0].port] = PortDescription(three.vifs[0].port, 1, routers=(a_router("other", "c7"),))
    await host.have(*guests)
    try:
        first, second, third = (stations(name, guest) for name, guest in zip("abc", guests, strict=True))
        for station, guest in zip((first, second, third), guests, strict=True):
            await has_its_address(station, guest)
        advertised = first.call("ip", "-6", "route", "show", "default").split()[2]
        assert advertised in {link_local_of(gateway_mac(one.vifs[0].network)), METADATA_V6, SERVICE_V6}

        # Two networks of one router, and a route of it; nobody else, and not the outside.
        assert await reaches(first, address_of(two))
        assert await reaches(second, address_of(one))
        assert await reaches(first, f"{prefix(5)}1")
        second.call("ip", "-6", "address", "add", "2001:db8:99::1/128", "dev", "lo")
        assert await reaches(first, "2001:db8:99::1"), "by a route of the router's"
        assert not await reaches(third, address_of(one))
        assert not await reaches(first, address_of(three))
        assert not await reaches(first, GATEWAY)
        assert not await reaches(outside, address_of(one))
        neighbours = first.call("ip", "-6", "neigh", "show", advertised)
        assert "router" in neighbours, "who advertises says that it is one"

        # The router has an outside: addresses are as they are, there and back.
        out = replace(router, external=PUBLIC, address6=ROUTER)
        host.ports |= {each.vifs[0].port: PortDescription(each.vifs[0].port, 2, routers=(out,)) for each in (one, two)}
        await host.have(*guests)
        assert await reaches(first, GATEWAY)
        assert await reaches(outside, address_of(one))
        assert await reaches(outside, address_of(two))
        assert not await reaches(outside, address_of(three)), "its router has no outside"
        mac = call("cat", "/sys/class/net/st-outside/address").strip()
        assert mac in outside.call("ip", "-6", "neigh", "show", ROUTER)
        early = await first.run("ping", "-c1", "-W2", "-t1", GATEWAY)
        assert f"From {prefix(5)[:-1]}" in early.out, "what the host says of a packet"

        # The agent is another one: what goes on does not notice.
        pinging = asyncio.create_task(outside.run("ping", "-i", "0.02", "-c", "150", "-q", address_of(one)))
        for _ in range(3):
            ports, host = host.ports, make_host()
            host.ports = ports
            await host.have(*guests)
        assert "150 received" in (await pinging).out

        # It has none any more; nothing of it is left.
        host.ports |= {
            each.vifs[0].port: PortDescription(each.vifs[0].port, 3, routers=(router,)) for each in (one, two)
        }
        await host.have(*guests)
        assert not await reaches(first, GATEWAY)
        assert ROUTER not in call("ip", "-6", "address", "show", "dev", "st-outside")
        assert call("cat", "/proc/sys/net/ipv6/conf/st-outside/force_forwarding").strip() == "0"
        assert await reaches(first, address_of(two))
        await host.have()
        assert [each for each in leftovers(host.room, inside=("env",)) if "rule" in each] == []
    finally:
        outside.stop()


async def test_a_kernel_that_forwards_for_all_devices_or_none(
    make_host: Callable[[], Host],
    stations: Callable[[str, GuestSpec], Station],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before Linux 6.17: whether the machine is a router is its operator's to say."""
    monkeypatch.setattr(routing, "FORCE_FORWARDING", "unknown_to_this_kernel")
    everywhere = Path("/proc/sys/net/ipv6/conf/all/forwarding")
    host, router = make_host(), a_router("router", "a5", "b6")
    one, two = v6_guest(1, "a", 5), v6_guest(2, "b", 6)
    host.ports = {each.vifs[0].port: PortDescription(each.vifs[0].port, 1, routers=(router,)) for each in (one, two)}
    await host.have(one, two)
    assert routing.NOT_FORWARDED in caplog.text
    assert host.services.not_routed == (routing.NOT_FORWARDED,)
    first, second = stations("a", one), stations("b", two)
    for station, guest in ((first, one), (second, two)):
        await has_its_address(station, guest)
    assert not await reaches(first, address_of(two))
    try:
        await asyncio.to_thread(everywhere.write_text, "1")
        assert await reaches(first, address_of(two))
    finally:
        await asyncio.to_thread(everywhere.write_text, "0")
