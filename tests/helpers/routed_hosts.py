"""Hosts of a set in namespaces of this machine, each with the networks of a host and without a hypervisor; stations stand in the guests' places.

As a program, it is one of these hosts: it puts into effect what it is told by lines, and what it has made outlives it, as with an agent.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.devices import ALIAS, tap_of
from moorage.drivers.libvirt.guest_services import GuestServices
from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.wires import Wires
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec
from moorage.model.port_description import AddressSetPart, PortDescription, Present
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.stations import Station, call

PREFIX, WIRE_MTU, UNDERLAY = "rh", 1_600, "10.250.79"
DONE = "done"


class Told(msgspec.Struct):
    """All that a host is to know, and the guests that it has."""

    version: int
    guests: tuple[GuestSpec, ...] = ()
    coming: tuple[GuestSpec, ...] = ()
    """Those that are recorded, and are not plugged in yet."""
    ports: tuple[PortDescription, ...] = ()
    sets: tuple[AddressSetPart, ...] = ()


@dataclass
class RoutedHost:
    """One host; `start` is its agent's start, and `kill` its agent's end."""

    number: int
    room: Path
    agent: "subprocess.Popen[str] | None" = None

    @property
    def namespace(self) -> str:
        return f"{PREFIX}{self.number}"

    @property
    def address(self) -> str:
        return f"{UNDERLAY}.{self.number}"

    @property
    def owner(self) -> str:
        return f"{self.number:08x}-0000-4000-8000-000000000000"

    @property
    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace]

    def start(self) -> None:
        words = (
            *self.inside,
            sys.executable,
            "-m",
            "tests.helpers.routed_hosts",
            str(self.room),
            self.address,
            self.owner,
        )
        self.agent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def kill(self) -> None:
        if self.agent is not None:
            self.agent.kill()
            self.agent.communicate()
        self.agent = None

    async def have(self, told: Told) -> list[str]:
        """Put it into effect; what could not be. Raises AssertionError when the host failed."""
        return await asyncio.to_thread(self._have, told)

    def _have(self, told: Told) -> list[str]:
        assert self.agent is not None
        assert self.agent.stdin is not None
        assert self.agent.stdout is not None
        self.agent.stdin.write(msgspec.json.encode(told).decode() + "\n")
        self.agent.stdin.flush()
        said = json.loads(self.agent.stdout.readline() or '["the host ended"]')
        assert said[0] == DONE, said
        return list(said[1])

    def call(self, *words: str) -> str:
        """Raises CalledProcessError."""
        return call(*self.inside, *words)

    def devices(self) -> set[str]:
        """Of ours, without those that stations are plugged into."""
        names = {line.split()[0].partition("@")[0] for line in self.call("ip", "-br", "link").splitlines()}
        return {each for each in names if each.startswith(("mrg", "mvx"))}

    def leftovers(self) -> list[str]:
        return leftovers(self.room, inside=self.inside)

    def station(self, guest: GuestSpec, name: str) -> Station:
        """In the place of this guest, behind the tap of its port. `have` plugs it in."""
        vif = guest.vifs[0]
        made = Station(name, "", vif.mac, device=tap_of(vif), inside=self.inside)
        made.start()
        self.call("ip", "link", "set", made.outer, "alias", f"{ALIAS}{self.owner}")
        made.call("ip", "link", "set", "eth0", "mtu", str(vif.mtu))
        for each in vif.addresses:
            length = each.cidr.partition("/")[2]
            more = ("nodad",) if ":" in each.address else ()
            made.call("ip", "address", "add", f"{each.address}/{length}", "dev", "eth0", *more)
            family = "-6" if ":" in each.address else "-4"
            made.call("ip", family, "route", "add", "default", "via", each.gateway or "")
        return made


@dataclass
class RoutedHosts:
    """Connected by a wire of their own."""

    hosts: Sequence[RoutedHost]
    stations: list[Station] = field(default_factory=list)

    def outside(self, address: str) -> Station:
        """Beyond the hosts' devices `outside`."""
        self.stations.append(Station(f"{PREFIX}-out", "outer", inside=("ip", "netns", "exec", f"{PREFIX}0")))
        self.stations[-1].start()
        more = ("nodad",) if ":" in address else ()
        self.stations[-1].call("ip", "address", "add", address, "dev", "eth0", *more)
        return self.stations[-1]

    def station(self, host: RoutedHost, guest: GuestSpec, name: str) -> Station:
        self.stations.append(host.station(guest, f"{PREFIX}-{name}"))
        return self.stations[-1]


@contextmanager
def routed_hosts(room: Path, count: int) -> Iterator[RoutedHosts]:
    made = RoutedHosts([RoutedHost(number, room / f"host{number}") for number in range(1, count + 1)])
    wire = f"{PREFIX}0"
    try:
        call("ip", "netns", "add", wire)
        call("ip", "-n", wire, "link", "add", "wire", "mtu", str(WIRE_MTU), "type", "bridge", "mcast_snooping", "0")
        call("ip", "-n", wire, "link", "set", "wire", "up")
        call("ip", "-n", wire, "link", "add", "outer", "type", "bridge", "mcast_snooping", "0")
        call("ip", "-n", wire, "link", "set", "outer", "up")
        for each in made.hosts:
            call("ip", "netns", "add", each.namespace)
            peer = ("type", "veth", "peer", "name", "under", "netns", each.namespace)
            call("ip", "-n", wire, "link", "add", each.namespace, "mtu", str(WIRE_MTU), *peer)
            call("ip", "-n", wire, "link", "set", each.namespace, "master", "wire", "up")
            peer = ("type", "veth", "peer", "name", "outside", "netns", each.namespace)
            call("ip", "-n", wire, "link", "add", f"{each.namespace}out", *peer)
            call("ip", "-n", wire, "link", "set", f"{each.namespace}out", "master", "outer", "up")
            call("ip", "-n", each.namespace, "link", "set", "outside", "up")
            call("ip", "-n", each.namespace, "link", "set", "lo", "up")
            call("ip", "-n", each.namespace, "address", "add", f"{each.address}/24", "dev", "under")
            call("ip", "-n", each.namespace, "link", "set", "under", "mtu", str(WIRE_MTU), "up")
            call("ip", "-n", each.namespace, "route", "add", "default", "dev", "under")  # as machines have one
            each.start()
        yield made
    finally:
        for station in made.stations:
            station.stop()
        for each in made.hosts:
            each.kill()
        for name in (wire, *(each.namespace for each in made.hosts)):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


# ------------------------------------------------------------------------------------------------ one host, as a program


async def _be_host(room: Path, address: str, owner: str) -> None:
    told = Libvirt(dhcp=True, routers=True, vxlan_address=address, external_devices={"physnet1": "outside"})
    described = DescribedPorts(room)
    described.load()
    wires = Wires(owner, told, Plumber(room, told), described)
    services = GuestServices(owner, room, told, "secret")
    while line := await asyncio.to_thread(sys.stdin.readline):
        wanted = msgspec.json.decode(line, type=Told)
        present = Present(tuple(each.port for each in wanted.ports), tuple(each.id for each in wanted.sets))
        described.take(wanted.ports, wanted.sets, present, wanted.version)
        described.save()
        try:
            for each in wanted.guests:
                await wires.plug(each.vifs)
            every = (*wanted.guests, *wanted.coming)
            await wires.serve([vif for each in every for vif in each.vifs])
            await services.keep(await wires.seats(every), described.ports, wires.far_side)
            sys.stdout.write(json.dumps([DONE, wires.not_wired]) + "\n")
        except HostFailed as failure:
            sys.stdout.write(json.dumps([f"{failure} {failure.private}"]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_be_host(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
