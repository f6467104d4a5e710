"""Routers and floating addresses of guests, with namespaces in their places."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.helpers.served_networks import Host, a_guest, make_host, stations

from moorage.model.guest import GuestSpec, VifAddress
from moorage.model.ids import NetworkId, SubnetId
from moorage.model.port_description import PortDescription
from moorage.model.route_description import (
    ExternalNetwork,
    FloatingAddress,
    RoutedSubnet,
    RouterDescription,
    StaticRoute,
)
from moorage_testing.hypervisor.stations import Station, call

__all__ = ["make_host", "stations"]
pytestmark = pytest.mark.hypervisor


EXTERNAL = ExternalNetwork(NetworkId("public"), "physnet1", "203.0.113.0/24", "203.0.113.1")
FLOATING = "203.0.113.50"
WHO_ASKS = """
import socket, sys
listening = socket.create_server(("0.0.0.0", 7000))
print("listening", flush=True)
while True:
    connection, peer = listening.accept()
    connection.sendall(peer[0].encode()); connection.close()
"""
AM_I = "import socket; c = socket.create_connection(('203.0.113.1', 7000), timeout=5); print(c.recv(99).decode())"


def a_router(*networks: str, **more: object) -> RouterDescription:
    subnets = tuple(
        RoutedSubnet(NetworkId(f"{name * 8}-0000-4000"), f"10.77.{number}.0/24", f"10.77.{number}.1")
        for name, number in ((each[0], each[1:]) for each in networks)
    )
    return RouterDescription("router", subnets, EXTERNAL, "203.0.113.2", snat=True, **more)  # type: ignore[arg-type]


def on_subnet(number: int, last: int) -> VifAddress:
    return VifAddress(f"10.77.{number}.{last}", SubnetId(str(number)), f"10.77.{number}.0/24", f"10.77.{number}.1")


async def test_routers_and_floating_addresses(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    host = make_host()
    one, two = a_guest(1, "aaaaaaaa", on_subnet(5, 10)), a_guest(2, "bbbbbbbb", on_subnet(6, 10))
    three, four = a_guest(3, "cccccccc", on_subnet(7, 10)), a_guest(4, "dddddddd", on_subnet(8, 10))
    outside = Station("outside", "")
    outside.start()
    outside.call("ip", "address", "add", "203.0.113.1/24", "dev", "eth0")
    router = a_router("a5", "b6", routes=(StaticRoute("10.99.0.0/16", "10.77.6.10"),))
    other = a_router("d8")
    floating = FloatingAddress(FLOATING, "10.77.5.10", EXTERNAL)
    described = {
        "one": PortDescription(one.vifs[0].port, 1, floating=(floating,), routers=(router,)),
        "two": PortDescription(two.vifs[0].port, 1, routers=(router,)),
        "four": PortDescription(four.vifs[0].port, 1, routers=(replace(other, router="other", address=""),)),
    }
    host.ports = {each.port: each for each in described.values()}
    try:
        await host.have(one, two, three, four)
        guests = [stations(name, each) for name, each in zip("abcd", (one, two, three, four), strict=True)]
        for each in guests:
            await each.ask_dhcp(tmp_path)
        first, second, third, fourth = guests
        server = await asyncio.create_subprocess_exec(
            "ip", "netns", "exec", "outside", sys.executable, "-c", WHO_ASKS, stdout=asyncio.subprocess.PIPE
        )
        assert server.stdout is not None
        await server.stdout.readline()

        async def reaches(station: Station, address: str) -> bool:
            return (await station.run("ping", "-c1", "-W2", address)).code == 0

        async def seen_as(station: Station) -> str:
            return (await station.run(sys.executable, "-c", AM_I)).out.strip()

        assert await reaches(outside, FLOATING)
        assert await seen_as(first) == FLOATING
        assert await seen_as(second) == "203.0.113.2", "by its router's address"
        assert await reaches(first, "10.77.6.10")
        assert await reaches(second, "10.77.5.10")
        assert await reaches(second, FLOATING), "inside, by the address of the outside"
        second.call("ip", "address", "add", "10.99.1.1/32", "dev", "lo")
        assert await reaches(first, "10.99.1.1"), "by a route of the router's"
        # Who has no router, or another one, reaches nothing of it; nor does the outside but by what was given to it.
        for address in ("10.77.5.10", "10.77.8.10", "203.0.113.1"):
            assert not await reaches(third, address)
        assert not await reaches(fourth, "10.77.5.10")
        assert not await reaches(first, "10.77.7.10")
        mac = call("cat", "/sys/class/net/st-outside/address").strip()
        outside.call("ip", "neigh", "replace", "203.0.113.9", "lladdr", mac, "dev", "eth0")
        outside.call("ip", "route", "add", "10.77.0.0/16", "via", "203.0.113.9", "dev", "eth0", "onlink")
        assert not await reaches(outside, "10.77.6.10")
        assert not await reaches(outside, "10.77.7.10")

        # The agent is another one: what goes on does not notice.
        pinging = asyncio.create_task(outside.run("ping", "-i", "0.02", "-c", "150", "-q", FLOATING))
        for _ in range(3):
            ports, host = host.ports, make_host()
            host.ports = ports
            await host.have(one, two, three, four)
        assert "150 received" in (await pinging).out

        # It is given to another guest while both run; the outside is told, also who remembered somebody else.
        host.ports[one.vifs[0].port] = PortDescription(one.vifs[0].port, 2, routers=(router,))
        await host.have(one, two, three, four)
        assert not await reaches(outside, FLOATING)
        assert await seen_as(first) == "203.0.113.2"
        outside.call("ip", "neigh", "replace", FLOATING, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "stale")
        moved = FloatingAddress(FLOATING, "10.77.6.10", EXTERNAL)
        host.ports[two.vifs[0].port] = PortDescription(two.vifs[0].port, 2, floating=(moved,), routers=(router,))
        await host.have(one, two, three, four)
        assert mac in outside.call("ip", "neigh", "show", FLOATING)
        assert await reaches(outside, FLOATING)
        assert await seen_as(second) == FLOATING
        server.kill()
        await server.wait()

        await host.have()
        assert FLOATING not in call("ip", "address", "show", "dev", "st-outside")
        assert call("cat", "/proc/sys/net/ipv4/conf/st-outside/forwarding").strip() == "0"
    finally:
        outside.stop()


async def test_what_an_earlier_release_made_is_replaced(make_host: Callable[[], Host]) -> None:
    """It had one rule for its mark, and none for each router."""
    host, guest = make_host(), a_guest(1, "aaaaaaaa", on_subnet(5, 10))
    host.room.mkdir(parents=True, exist_ok=True)
    made = {"tables": {"router": 43_600}, "rules": {"mrgaaaaaaaa-00": 43_600}, "marked": True}
    (host.room / "routing.json").write_text(json.dumps(made))
    call("ip", "rule", "add", "fwmark", "0x20000000/0x20000000", "lookup", "main", "priority", "1044")
    host.ports = {guest.vifs[0].port: PortDescription(guest.vifs[0].port, 1, routers=(a_router("a5"),))}
    await host.have(guest)
    rules = call("ip", "rule")
    assert "0x20000000" not in rules
    assert "fwmark 0x80000/0xff80000 lookup 43600" in rules
    assert "iif mrgaaaaaaaa-00 lookup 43600" in rules
