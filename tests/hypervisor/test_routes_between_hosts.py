"""Networks of one router on several hosts: namespaces in the guests' places, and hosts in namespaces."""

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.helpers.routed_hosts import RoutedHost, Told, routed_hosts
from tests.helpers.wired_namespaces import ASK, SERVE, until

from moorage.drivers.libvirt.tunnels import gateway_mac, routed_mac, tunnel_of
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
from moorage.model.route_description import (
    ArpEntry,
    ExternalNetwork,
    FloatingAddress,
    RoutedSubnet,
    RouterDescription,
    StaticRoute,
)
from moorage_testing.hypervisor.guests import Pinging
from moorage_testing.hypervisor.stations import Station

pytestmark = pytest.mark.hypervisor

SAME = 100
"""More than the number of a network is that of one with the same addresses."""
NETWORKS = {
    number: NetworkId(f"{name * 8}-0000-4000")
    for name, number in {"a": 5, "b": 6, "e": 5 + SAME, "f": 6 + SAME}.items()
}
MTU = 1_450
SUBNETS, SAME_SUBNETS = (
    tuple(
        RoutedSubnet(NETWORKS[each + more], f"10.77.{each}.0/24", f"10.77.{each}.1", 7_000 + each + more, MTU)
        for each in (5, 6)
    )
    for more in (0, SAME)
)
ROUTER = RouterDescription("router", SUBNETS, routes=(StaticRoute("10.99.0.0/16", "10.77.6.10"),))
SAME_ROUTER = RouterDescription("same", SAME_SUBNETS)
FLOATING = "203.0.113.50"
PUBLIC = ExternalNetwork(NetworkId("public"), "physnet1", "203.0.113.0/24", "203.0.113.1")
PING, WEB = FilterRule("ingress", 4, 1), FilterRule("ingress", 4, 6, 80, 80)
OUT = FilterRule("egress", 4)
BRIDGE_A, BRIDGE_B = "mrgaaaaaaaa-00", "mrgbbbbbbbb-00"
WHO_SENDS = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
s.bind(("eth0", 0))
s.settimeout(30)
while True:
    frame = s.recv(2048)
    if frame[26:30] == socket.inet_aton(sys.argv[1]):
        print(frame[6:12].hex(":"))
        break
"""


def a_guest(number: int, network: int) -> GuestSpec:
    prefix = f"10.77.{network % SAME}"
    address = VifAddress(f"{prefix}.{number}", SubnetId(str(network)), f"{prefix}.0/24", f"{prefix}.1")
    vif = VifData(
        PortId(f"{network:04x}{number:04x}-1111"),
        NETWORKS[network],
        f"fa:16:3e:77:{network:02x}:{number:02x}",
        "bridge",
        mtu=MTU,
        addresses=(address,),
        vif_details={"described": True},
        segmentation_id=7_000 + network,
    )
    return GuestSpec(ServerId(f"cccccccc-0000-4000-8000-{number:012d}"), f"guest{number}", 1, 128, vifs=(vif,))


@dataclass
class Known:
    """What the network service would say of guests on hosts."""

    places: dict[str, tuple[RoutedHost, GuestSpec]] = field(default_factory=dict)
    rules: dict[str, tuple[FilterRule, ...]] = field(default_factory=dict)
    routed: bool = True
    floating: dict[str, str] = field(default_factory=dict)
    version: int = 0

    def told(self, host: RoutedHost) -> Told:
        mine = {name: guest for name, (at, guest) in self.places.items() if at is host}
        ports = tuple(self._port(name, guest) for name, guest in mine.items())
        sets = self._sets(host) if self.routed and ports else ()
        return Told(self.version, tuple(mine.values()), ports=ports, sets=sets)

    def _port(self, name: str, guest: GuestSpec) -> PortDescription:
        vif = guest.vifs[0]
        own = (*(each.address for each in vif.addresses), *(("10.99.0.0/16",) if name == "b" else ()))
        wanted = PortFilter((AllowedAddresses(vif.mac, own),), self.rules.get(name, (OUT,)))
        router = SAME_ROUTER if vif.network in {each.network for each in SAME_SUBNETS} else ROUTER
        router = replace(router, external=PUBLIC) if self.floating else router
        routers = (router,) if self.routed else ()
        found = PortDescription(
            vif.port, self.version, vif.network, vif.mac, filter=wanted, routers=routers, bound=True
        )
        address = self.floating.get(name)
        floating = (FloatingAddress(address, vif.addresses[0].address, PUBLIC),) if address else ()
        return replace(found, floating=floating)

    def _sets(self, host: RoutedHost) -> tuple[AddressSetPart, ...]:
        if all(at is host for at, _ in self.places.values()):
            return ()
        found: dict[str, list[ArpEntry]] = {}
        for _, guest in self.places.values():
            vif = guest.vifs[0]
            for each in vif.addresses:
                found.setdefault(arp_set_id(vif.network, each.address), []).append(ArpEntry(each.address, vif.mac))
        return tuple(AddressSetPart(id, self.version, arp_entries=tuple(each)) for id, each in found.items())

    async def say(self, *hosts: RoutedHost) -> None:
        self.version += 1
        for each in hosts:
            assert await each.have(self.told(each)) == []


async def reaches(station: Station, address: str) -> bool:
    return (await station.run("ping", "-c1", "-W1", address)).code == 0


async def connects(station: Station, address: str, port: int) -> bool:
    return (await station.run(sys.executable, "-c", ASK, "tcp", address, str(port), "2")).code == 0


async def test_two_networks_of_a_router_reach_one_another_from_host_to_host(tmp_path: Path) -> None:
    with routed_hosts(tmp_path, 2) as made:
        one, two = made.hosts
        known = Known({"a": (one, a_guest(10, 5)), "b": (two, a_guest(10, 6))}, routed=False)
        first, second = (made.station(*known.places[name], name) for name in ("a", "b"))
        known.rules = {"a": (OUT,), "b": (PING, WEB)}
        await known.say(one, two)
        assert not await reaches(first, "10.77.6.10"), "they have no router"
        assert one.devices() == {BRIDGE_A, "mvxaaaaaaaa-00"}

        # By a router; what may be sent and received is said by the ports' rules, answers by the connection.
        known.routed = True
        await known.say(one, two)
        assert one.devices() == two.devices() == {BRIDGE_A, BRIDGE_B, "mvxaaaaaaaa-00", "mvxbbbbbbbb-00"}
        assert await reaches(first, "10.77.6.10")
        assert not await reaches(second, "10.77.5.10"), "it may not send, and the other one may not receive"
        web = await asyncio.create_subprocess_exec(
            "ip", "netns", "exec", second.name, sys.executable, "-c", SERVE, "tcp", "10.77.6.10", "80",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert web.stdout is not None
            await web.stdout.readline()
            assert await connects(first, "10.77.6.10", 80)
            known.rules["b"] = (OUT, PING)
            await known.say(two)
            assert not await connects(first, "10.77.6.10", 80), "a rule that is gone lets nothing through"
        finally:
            web.kill()
            await web.wait()
        assert not await reaches(second, "10.77.5.10"), "the other one may not receive"
        early = await first.run("ping", "-c1", "-W2", "-t1", "10.77.6.10")
        assert "Time to live exceeded" in early.out, "what its host says of a packet is of its connection"
        known.rules["a"] = (OUT, PING)
        await known.say(one)
        assert await reaches(second, "10.77.5.10")
        second.call("ip", "address", "add", "10.99.1.1/32", "dev", "lo")
        assert await reaches(first, "10.99.1.1"), "by a route of the router's"
        assert (await second.run("ping", "-c1", "-W1", "-I", "10.99.1.1", "10.77.5.10")).code == 0
        whole = ("ping", "-c1", "-W1", "-M", "do", "-s", str(MTU - 28), "10.77.6.10")
        assert (await first.run(*whole)).code == 0, "frames of full length"

        # Bridges know where everybody is, and nobody is shown a host's own MAC.
        assert "fa:16:3e:77:06:0a dst 10.250.79.2" in one.call("bridge", "fdb", "show", "dev", "mvxbbbbbbbb-00")
        learned = two.call("bridge", "fdb", "show", "br", BRIDGE_B, "dev", "mvxbbbbbbbb-00")
        assert routed_mac(one.owner) in learned
        assert gateway_mac(NETWORKS[6]) not in learned
        seen = asyncio.create_task(second.run(sys.executable, "-c", WHO_SENDS, "10.77.5.10"))
        while not seen.done():
            await reaches(first, "10.77.6.10")
        assert (await seen).out.strip() == gateway_mac(NETWORKS[6])

        # The agents end and come again; what goes on does not notice.
        pinging = asyncio.create_task(first.run("ping", "-i", "0.02", "-c", "250", "-q", "10.77.6.10"))
        for each in (one, two, one):
            each.kill()
            each.start()
            await each.have(known.told(each))
        assert "250 received" in (await pinging).out

        # Somebody of the other network comes to this host, and goes: its network is here, and is far again.
        known.places["c"] = (one, a_guest(20, 6))
        third = made.station(*known.places["c"], "c")
        known.rules["c"] = (OUT, PING)
        await known.say(one, two)
        assert await reaches(first, "10.77.6.20")
        assert await reaches(second, "10.77.6.20")
        assert await reaches(third, "10.77.6.10")
        assert await reaches(first, "10.77.6.10")
        assert await reaches(second, "10.77.5.10")
        del known.places["c"]
        await known.say(one, two)
        assert await reaches(first, "10.77.6.10")
        assert "10.77.6.1" not in one.call("ip", "-4", "address", "show", "dev", BRIDGE_B)
        assert "10.77.6.20" not in one.call("ip", "neigh", "show", "dev", BRIDGE_B)

        # It goes with the last one who needs it.
        del known.places["b"]
        await known.say(one, two)
        assert one.devices() == {BRIDGE_A, "mvxaaaaaaaa-00"}
        assert two.leftovers() == []
        known.places.clear()
        await known.say(one, two)
        for each in made.hosts:
            assert each.leftovers() == []


async def test_a_guest_that_moves_is_found_on_its_new_host(tmp_path: Path) -> None:
    with routed_hosts(tmp_path, 3) as made:
        one, two, three = made.hosts
        known = Known({"a": (one, a_guest(10, 5)), "b": (two, a_guest(10, 6))})
        known.rules = {"b": (OUT, PING)}
        first = made.station(*known.places["a"], "a")
        made.station(*known.places["b"], "b")
        await known.say(one, two, three)
        assert await reaches(first, "10.77.6.10")
        known.places["b"] = (three, known.places["b"][1])
        made.station(*known.places["b"], "b3")
        await known.say(one, two, three)
        assert await reaches(first, "10.77.6.10")
        tunnel = tunnel_of(NETWORKS[6])
        await until(
            lambda: "fa:16:3e:77:06:0a dst 10.250.79.3" in one.call("bridge", "fdb", "show", "dev", tunnel),
            "it was announced by its new host",
        )
        assert two.leftovers() == []


async def test_a_guest_that_is_described_before_it_is_plugged_in(tmp_path: Path) -> None:
    """Its boot was written down, and makes its devices in a moment."""
    with routed_hosts(tmp_path, 2) as made:
        one, two = made.hosts
        known = Known({"a": (one, a_guest(10, 5)), "b": (two, a_guest(10, 6))}, rules={"b": (OUT, PING)})
        first, _ = (made.station(*known.places[name], name) for name in ("a", "b"))
        await known.say(two)
        told = known.told(one)
        assert await one.have(Told(told.version, coming=told.guests, ports=told.ports, sets=told.sets)) == []
        assert BRIDGE_A not in one.devices()
        await known.say(one)
        assert await reaches(first, "10.77.6.10")
        await until(
            lambda: "fa:16:3e:77:05:0a dst 10.250.79.1" in two.call("bridge", "fdb", "show", "dev", "mvxaaaaaaaa-00"),
            "it is announced when it is plugged in",
        )


async def test_a_floating_address_goes_where_its_port_is_bound(tmp_path: Path) -> None:
    """The guest is on both hosts for a moment, as at the end of a live migration; the port's binding says which one has its address."""
    with routed_hosts(tmp_path, 2) as made:
        one, two = made.hosts
        outside = made.outside("203.0.113.1/24")
        guest = a_guest(10, 5)
        at_one = Known({"a": (one, guest)}, rules={"a": (OUT, PING)}, floating={"a": FLOATING})
        at_two = Known({"a": (two, guest)}, rules={"a": (OUT, PING)}, floating={"a": FLOATING}, version=10)
        made.station(one, guest, "a1")
        await at_one.say(one)
        assert await reaches(outside, FLOATING)
        made.station(two, guest, "a2")
        await at_two.say(two)
        own = two.call("cat", "/sys/class/net/outside/address").strip()
        await until(lambda: own in outside.call("ip", "neigh", "show", FLOATING), "it is announced from there")
        pinging = Pinging(FLOATING, ("ip", "netns", "exec", outside.name))
        at_one.places.clear()
        await at_one.say(one)
        assert await reaches(outside, FLOATING)
        answered, lost = await asyncio.to_thread(pinging.end)
        assert answered
        assert lost == [], "who had it before is no longer asked"
        assert FLOATING not in one.call("ip", "address", "show", "dev", "outside")
        at_two.places.clear()
        await at_two.say(two)
        for each in made.hosts:
            assert each.leftovers() == []


async def test_two_routers_with_the_same_networks_on_two_hosts(tmp_path: Path) -> None:
    with routed_hosts(tmp_path, 2) as made:
        one, two = made.hosts
        outside = made.outside("203.0.113.1/24")
        places = {"a": (one, 5), "b": (two, 6), "e": (one, 5 + SAME), "f": (two, 6 + SAME), "g": (two, 5 + SAME)}
        known = Known(
            {name: (host, a_guest(20 if name == "g" else 10, number)) for name, (host, number) in places.items()}
        )
        stations = {name: made.station(*known.places[name], name) for name in known.places}
        known.floating = {"a": FLOATING, "e": "203.0.113.60", "g": "203.0.113.61"}

        async def let_in(*names: str) -> None:
            """With pings by way of all that there is, and an answer from nobody else."""
            known.rules = {name: (OUT, PING) if name in names else (OUT,) for name in known.places}
            await known.say(one, two)
            for name, address in known.floating.items():
                assert await reaches(outside, address) == (name in names), name
            assert await reaches(stations["a"], "10.77.6.10") == ("b" in names)
            assert await reaches(stations["b"], "10.77.5.10") == ("a" in names)
            for name in ("e", "g"):
                assert await reaches(stations[name], "10.77.6.10") == ("f" in names), name
            assert await reaches(stations["f"], "10.77.5.10") == ("e" in names)
            assert await reaches(stations["f"], "10.77.5.20") == ("g" in names)
            assert await reaches(stations["a"], known.floating["e"]) == ("e" in names)
            assert await reaches(stations["a"], known.floating["g"]) == ("g" in names), "of another host"
            assert await reaches(stations["g"], FLOATING) == ("a" in names)
            for name in ("a", "e", "g"):
                assert await reaches(stations[name], "10.77.5.1"), "its gateway"

        await let_in("a", "b")
        await let_in("e", "f", "g")
        for each in (one, two):
            each.kill()
            each.start()
        await let_in("a", "f")
        known.places.clear()
        await known.say(one, two)
        for each in made.hosts:
            assert each.leftovers() == []


async def test_a_network_that_cannot_be_made_is_said_and_keeps_nobody_from_starting(tmp_path: Path) -> None:
    with routed_hosts(tmp_path, 1) as made:
        [one] = made.hosts
        known = Known({"a": (one, a_guest(10, 5))}, version=1)
        made.station(*known.places["a"], "a")
        wide = tuple(replace(each, mtu=9_000) if each.network == NETWORKS[6] else each for each in SUBNETS)
        told = known.told(one)
        port = replace(told.ports[0], routers=(replace(ROUTER, subnets=wide),))
        elsewhere = AddressSetPart(
            arp_set_id(NETWORKS[6], "10.77.6.10"), 1, arp_entries=(ArpEntry("10.77.6.10", "fa:16:3e:77:06:0a"),)
        )
        [trouble] = await one.have(Told(1, told.guests, ports=(port,), sets=(elsewhere,)))
        assert NETWORKS[6] in trouble
        assert "MTU" in trouble
        await one.have(Told(2))
        assert one.leftovers() == []
