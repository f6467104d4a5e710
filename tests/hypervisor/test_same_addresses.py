"""Networks with the same addresses on one host, each with a router, with namespaces in the places of guests."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.helpers.served_networks import Host, a_guest, ask, make_host, stations

from moorage.model.guest import GuestSpec, VifAddress
from moorage.model.ids import NetworkId, SubnetId
from moorage.model.port_description import PortDescription
from moorage.model.route_description import ExternalNetwork, FloatingAddress, RoutedSubnet, RouterDescription
from moorage_testing.hypervisor.stations import Station

__all__ = ["make_host", "stations"]
pytestmark = pytest.mark.hypervisor

EXTERNAL = ExternalNetwork(NetworkId("public"), "physnet1", "203.0.113.0/24", "203.0.113.1")
GATEWAY, PORT = "203.0.113.1", 7_000
FLOATING = {"a": "203.0.113.50", "e": "203.0.113.60"}
BEHIND = {"one": "203.0.113.2", "two": "203.0.113.3"}
"""Router → its own address outside."""
NETWORKS = {"a": (5, "one"), "b": (6, "one"), "e": (5, "two"), "f": (6, "two")}
"""Guest → its subnet and its router; each is in a network of its own."""
SAY_WHO = """
import socket, sys, threading
listening = socket.create_server(("0.0.0.0", int(sys.argv[2])))
print("listening", flush=True)
def serve(connection, peer):
    with connection:
        while connection.recv(99):
            connection.sendall(f"{sys.argv[1]} {peer[0]}".encode())
while True:
    threading.Thread(target=serve, args=listening.accept(), daemon=True).start()
"""
"""Says its own name, and as whom it sees who asks, as often as it is asked."""
HOLD = """
import socket, sys
c = socket.socket()
c.settimeout(10)
c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
c.bind(("", int(sys.argv[3])))
c.connect((sys.argv[1], int(sys.argv[2])))
for line in sys.stdin:
    c.sendall(b"?")
    print(c.recv(99).decode(), flush=True)
"""


def a_router(name: str) -> RouterDescription:
    subnets = tuple(
        RoutedSubnet(NetworkId(f"{guest * 8}-0000-4000"), f"10.77.{number}.0/24", f"10.77.{number}.1")
        for guest, (number, router) in NETWORKS.items()
        if router == name
    )
    return RouterDescription(name, subnets, EXTERNAL, BEHIND[name], snat=True)


def on_subnet(number: int) -> VifAddress:
    return VifAddress(f"10.77.{number}.10", SubnetId(str(number)), f"10.77.{number}.0/24", f"10.77.{number}.1")


def described(name: str, guest: GuestSpec) -> PortDescription:
    number, router = NETWORKS[name]
    floating = (FloatingAddress(FLOATING[name], f"10.77.{number}.10", EXTERNAL),) if name in FLOATING else ()
    return PortDescription(guest.vifs[0].port, 1, floating=floating, routers=(a_router(router),))


@dataclass
class Twins:
    """Guests and the outside, all of which say who they are."""

    guests: dict[str, GuestSpec]
    stations: dict[str, Station] = field(default_factory=dict)
    servers: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def serve(self, name: str) -> None:
        words = ("ip", "netns", "exec", self.stations[name].name, sys.executable, "-c", SAY_WHO, name, str(PORT))
        self.servers.append(await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE))
        stdout = self.servers[-1].stdout
        assert stdout is not None
        await stdout.readline()

    @asynccontextmanager
    async def connected(self, name: str, address: str, source: int = 0) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        """Who is there, and as whom it sees this one, asked again and again by one connection."""
        process = await asyncio.create_subprocess_exec(
            "ip", "netns", "exec", self.stations[name].name, sys.executable, "-c", HOLD, address, str(PORT),
            str(source), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip

        async def again() -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            await process.stdin.drain()
            return (await process.stdout.readline()).decode().strip()

        try:
            yield again
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

    async def who(self, name: str, address: str) -> str:
        async with self.connected(name, address) as again:
            return await again()

    async def reaches(self, name: str, address: str, *more: str) -> bool:
        return (await self.stations[name].run("ping", "-c1", "-W2", *more, address)).code == 0

    async def end(self) -> None:
        for each in self.servers:
            each.kill()
            await each.communicate()


async def own_route(address: str) -> str:
    """The machine's own way to the address; empty: it has none."""
    words = ("ip", "route", "get", address)
    return (await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)).stdout


async def test_two_routers_with_the_same_networks(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    host = make_host()
    guests = {
        name: a_guest(place, name * 8, on_subnet(number))
        for place, (name, (number, _)) in enumerate(NETWORKS.items(), start=1)
    }
    twins = Twins(guests)
    outside = Station("outside", "")
    outside.start()
    outside.call("ip", "address", "add", f"{GATEWAY}/24", "dev", "eth0")
    host.ports = {guest.vifs[0].port: described(name, guest) for name, guest in guests.items()}
    try:
        await host.have(*guests.values())
        twins.stations = {"outside": outside} | {name: stations(name, guest) for name, guest in guests.items()}
        for name, guest in guests.items():
            told = await twins.stations[name].ask_dhcp(tmp_path)
            assert told["ip"] == guest.vifs[0].addresses[0].address
        for name in twins.stations:
            await twins.serve(name)

        # What each has of its own: the gateway, metadata, a floating address, the way out, the other network of its router.
        for name, (number, router) in NETWORKS.items():
            assert await twins.reaches(name, f"10.77.{number}.1"), name
            heard = json.loads((await ask(twins.stations[name]))[1])["headers"]
            assert heard["x-instance-id"] == guests[name].server
            assert await twins.who(name, GATEWAY) == f"outside {FLOATING.get(name, BEHIND[router])}"
            assert (await twins.stations[name].ask_dhcp(tmp_path))["ip"] == f"10.77.{number}.10", "it is renewed"
        for name, address in FLOATING.items():
            assert await twins.who("outside", address) == f"{name} {GATEWAY}"
        assert await twins.who("a", "10.77.6.10") == "b 10.77.5.10"
        assert await twins.who("e", "10.77.6.10") == "f 10.77.5.10"
        assert await twins.who("f", "10.77.5.10") == "e 10.77.6.10"

        # From one router to the other, by floating addresses, also where both guests have the same address.
        assert await twins.who("a", FLOATING["e"]) == f"e {FLOATING['a']}"
        assert await twins.who("e", FLOATING["a"]) == f"a {FLOATING['e']}"
        assert await twins.who("f", FLOATING["a"]) == f"a {BEHIND['two']}"
        assert await twins.who("b", FLOATING["a"]) == f"a {BEHIND['one']}"

        # What the host says of packets, and of its own, finds whom it is about.
        for name in NETWORKS:
            said = await twins.stations[name].run("ping", "-c1", "-W2", "-t1", GATEWAY)
            assert "Time to live exceeded" in said.out, name

        # Both from one port of one address to one server at the same time.
        async with (
            twins.connected("b", GATEWAY, 40_000) as one,
            twins.connected("f", GATEWAY, 40_000) as two,
            twins.connected("a", FLOATING["e"], 40_001) as three,
            twins.connected("e", FLOATING["a"], 40_001) as four,
            twins.connected("outside", FLOATING["a"], 40_002) as five,
            twins.connected("outside", FLOATING["e"], 40_002) as six,
        ):
            expected = {
                one: f"outside {BEHIND['one']}",
                two: f"outside {BEHIND['two']}",
                three: f"e {FLOATING['a']}",
                four: f"a {FLOATING['e']}",
                five: f"a {GATEWAY}",
                six: f"e {GATEWAY}",
            }
            for _ in range(3):
                for each, what in expected.items():
                    assert await each() == what

            # The agent is another one: what goes on does not notice.
            pings = [
                asyncio.create_task(outside.run("ping", "-i", "0.02", "-c", "150", "-q", each))
                for each in FLOATING.values()
            ]
            for _ in range(3):
                ports, host = host.ports, make_host()
                host.ports = ports
                await host.have(*guests.values())
            for ping in pings:
                assert "150 received" in (await ping).out
            for each, what in expected.items():
                assert await each() == what

        # The machine itself reaches neither by a tenant's addresses; one goes on while the other goes.
        assert "mrg" not in await own_route("10.77.5.10")
        second = asyncio.create_task(outside.run("ping", "-i", "0.02", "-c", "100", "-q", FLOATING["e"]))
        await host.have(guests["e"], guests["f"])
        assert "100 received" in (await second).out
        assert not await twins.reaches("outside", FLOATING["a"])
        assert "mrg" not in await own_route("10.77.5.10")
        assert await twins.who("f", GATEWAY) == f"outside {BEHIND['two']}"
        await host.have()
    finally:
        await twins.end()
        outside.stop()


async def test_a_network_without_a_router_has_its_gateway(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    """Where the machine's own routes lead to another network with these addresses."""
    host = make_host()
    guests = [a_guest(number, name * 8, on_subnet(5)) for number, name in enumerate("agh", start=1)]
    first, *others = guests
    host.ports = {first.vifs[0].port: described("a", first)}
    await host.have(*guests)
    for name, guest in zip("agh", guests, strict=True):
        station = stations(name, guest)
        await station.ask_dhcp(tmp_path)
        assert (await station.run("ping", "-c1", "-W2", "10.77.5.1")).code == 0, name
        assert json.loads((await ask(station))[1])["headers"]["x-instance-id"] == guest.server
        if guest in others:
            assert (await station.run("ping", "-c1", "-W1", FLOATING["a"])).code != 0, "nobody routes for it"
