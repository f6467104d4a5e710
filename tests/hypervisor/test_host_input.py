"""What guests reach of the host itself, and what goes on when somebody takes rules away: stations in the places of guests."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.helpers.served_networks import Host, a_guest, ask, make_host, open_subnet, stations, v6

from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.wires import Wires
from moorage.model.guest import GuestSpec, VifAddress
from moorage.model.ids import NetworkId, SubnetId
from moorage.model.port_description import PortDescription
from moorage.model.route_description import ExternalNetwork, FloatingAddress, RoutedSubnet, RouterDescription
from moorage_testing.hypervisor.stations import Station, call

__all__ = ["make_host", "stations"]
pytestmark = pytest.mark.hypervisor

TUNNELS = 4789
TOLD = "from a guest"
CONNECT = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
socket.socket(family, socket.SOCK_STREAM).close()
socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()
"""
TELL = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
"""
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9))
print("ready", flush=True)
while True:
    data, peer = s.recvfrom(99)
    s.sendto(data, peer)
"""
HOLD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.connect((sys.argv[1], 9))
for line in sys.stdin:
    s.send(b"x")
    try:
        print(len(s.recv(9)), flush=True)
    except TimeoutError:
        print("silent", flush=True)
"""


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """A service of the machine, at all of its addresses: its port."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def a_tunnel_port(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tunnels:
        tunnels.bind((address, TUNNELS))
        tunnels.setblocking(False)
        yield tunnels


async def connects(station: Station, address: str, port: int) -> bool:
    return (await station.run(sys.executable, "-c", CONNECT, address, str(port))).code == 0


@contextlib.asynccontextmanager
async def inside(station: Station, text: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", station.name, sys.executable, "-c", text, *words, stdin=pipe, stdout=pipe
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


async def say(process: asyncio.subprocess.Process) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    await process.stdin.drain()
    return (await process.stdout.readline()).decode().strip()


async def test_guests_reach_what_the_host_does_for_them_and_nothing_else(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    host = make_host()
    guest = a_guest(1, "aaaaaaaa", open_subnet(10, dhcp=True), v6("fd77::10", "slaac"))
    other = VifAddress("10.78.5.10", SubnetId("o"), "10.78.5.0/24", "10.78.5.1", dhcp=True)
    neighbour = a_guest(2, "bbbbbbbb", other)
    call("ip", "link", "add", "name", "machine", "type", "bridge")
    try:
        call("ip", "address", "add", "198.51.100.9/32", "dev", "machine")
        call("ip", "link", "set", "machine", "up")
        await host.have(guest, neighbour)
        station = stations("one", guest)
        assert (await station.ask_dhcp(tmp_path))["ip"] == "10.77.5.10"
        station.call("ip", "address", "add", "fd77::10/64", "dev", "eth0", "nodad")
        with listening() as port, a_tunnel_port("198.51.100.9") as tunnels:
            for address in ("10.77.5.1", "10.78.5.1", "198.51.100.9", "fd77::1"):
                assert not await connects(station, address, port), address
            await station.run(sys.executable, "-c", TELL, "198.51.100.9", str(TUNNELS), TOLD)
            assert (await station.run("ping", "-c1", "-w5", "10.77.5.1")).code == 0
            with pytest.raises(BlockingIOError):
                tunnels.recv(99)
        assert (await station.run("ping", "-c1", "-w5", "fd77::1")).code == 0
        assert await connects(station, "10.77.5.1", 53)
        assert (await ask(station))[0] == 200
        call("ping", "-c1", "-w5", "-I", "mrgaaaaaaaa-00", "10.77.5.10")
        route = ("ip", "route", "get", "10.77.5.10")
        found = await asyncio.to_thread(subprocess.run, route, capture_output=True, text=True, check=False)
        assert "mrg" not in found.stdout, "the machine's own routes know no guest; without a way outside there is none"
    finally:
        call("ip", "link", "delete", "machine")


async def test_ports_that_the_operator_opens(tmp_path: Path, stations: Callable[[str, GuestSpec], Station]) -> None:
    guest = a_guest(1, "aaaaaaaa", open_subnet(10))
    with listening() as port, listening() as closed:
        told = Libvirt(dhcp=True, port_filter=False, guest_tcp_ports=(port,))
        wires = Wires("owner", told, Plumber(tmp_path, told), DescribedPorts(tmp_path))
        await wires.plug(guest.vifs)
        await wires.serve(guest.vifs)
        try:
            station = stations("one", guest)
            station.call("ip", "address", "add", "10.77.5.10/24", "dev", "eth0")
            assert await connects(station, "10.77.5.1", port)
            assert not await connects(station, "10.77.5.1", closed)
        finally:
            await wires.serve([])


async def test_rules_that_another_program_flushed_are_written_again(
    make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    host = make_host()
    guest = a_guest(1, "aaaaaaaa", open_subnet(10))
    await host.have(guest)
    before = call("nft", "list", "ruleset")
    assert await host.wires.is_intact()
    assert await host.services.is_intact()
    call("nft", "flush", "ruleset")
    assert not await host.wires.is_intact()
    assert not await host.services.is_intact()
    await host.serve(guest)
    assert sorted(call("nft", "list", "ruleset").splitlines()) == sorted(before.splitlines())


async def test_what_a_floating_address_carried_ends_with_it(
    make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    """Also a connection that stands: conntrack would translate it on."""
    host = make_host()
    guest = a_guest(1, "aaaaaaaa", open_subnet(10))
    external = ExternalNetwork(NetworkId("public"), "physnet1", "203.0.113.0/24", "203.0.113.1")
    inner = (RoutedSubnet(guest.vifs[0].network, "10.77.5.0/24", "10.77.5.1"),)
    router = RouterDescription("router", inner, external, "203.0.113.2", snat=True)
    with_it = PortDescription(
        guest.vifs[0].port, 1, floating=(FloatingAddress("203.0.113.50", "10.77.5.10", external),), routers=(router,)
    )
    outside = Station("outside", "")
    outside.start()
    try:
        outside.call("ip", "address", "add", "203.0.113.1/24", "dev", "eth0")
        host.ports = {with_it.port: with_it}
        await host.have(guest)
        station = stations("one", guest)
        station.call("ip", "address", "add", "10.77.5.10/24", "dev", "eth0")
        station.call("ip", "route", "add", "default", "via", "10.77.5.1")
        async with inside(station, ECHO) as echo:
            assert echo.stdout is not None
            await echo.stdout.readline()
            async with inside(outside, HOLD, "203.0.113.50") as connection:
                assert await say(connection) == "1"
                assert await say(connection) == "1"
                host.ports = {with_it.port: structs.replace(with_it, floating=())}
                await host.serve(guest)
                assert await say(connection) == "silent"
    finally:
        await host.have()
        outside.stop()
