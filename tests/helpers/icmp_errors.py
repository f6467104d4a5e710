"""What guests and the outside hear of packets that a host's routers cannot deliver, as JSON: a program for namespaces of its own.

    unshare --net --mount --propagation private python -m tests.helpers.icmp_errors DIRECTORY

Two routers have the same networks, and a third one has no way out.  The host itself has no route to any of their guests, nor to the outside.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.drivers.libvirt.bridge_tables import (
    SERVICES,
    BridgeNetwork,
    BridgeTables,
    Held,
    advertising_address,
    set_up_device,
)
from moorage.drivers.libvirt.dhcp import SERVICE_V6
from moorage.drivers.libvirt.far_networks import own_bridge_of
from moorage.drivers.libvirt.metadata_keeper import Seat
from moorage.drivers.libvirt.routing import TABLE_PREFIX, Routing
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ServerId, SubnetId
from moorage.model.port_description import PortDescription
from moorage.model.route_description import ExternalNetwork, FloatingAddress, RoutedSubnet, RouterDescription
from moorage_testing.hypervisor.stations import Station, call

OUTSIDE, OUTSIDE_V6 = "203.0.113.1", "2001:db8::1"
PUBLIC = ExternalNetwork(NetworkId("public"), "physnet1", "203.0.113.0/24", OUTSIDE, "2001:db8::/64", OUTSIDE_V6)
FLOATING = {"a": "203.0.113.50", "e": "203.0.113.60"}
NETWORKS = {"a": (5, "one"), "b": (6, "one"), "e": (5, "two"), "i": (8, "three")}
"""Guest → its subnet, and its router."""
NARROW, OUTER = 1300, 1400
"""The largest packets of e's network, and of the way out."""
BIG, TOO_BIG_OUTSIDE = "1320", "1380"
"""What a ping carries."""
SETTINGS = [Path(f"/proc/sys/net/{family}/fwmark_reflect") for family in ("ipv4", "ipv6")]
ANSWER = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: never in pieces
s.bind(("", 7000))
print("ready", flush=True)
while True:
    peer = s.recvfrom(9)[1]
    s.sendto(bytes({BIG}), peer)
"""
ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b"?", (sys.argv[1], 7000))
"""


def on(number: int, host: str) -> tuple[str, str]:
    return f"10.77.{number}.{host}", f"2001:db8:77:{number}::{host}"


def ranges(number: int) -> tuple[str, str]:
    return f"10.77.{number}.0/24", f"2001:db8:77:{number}::/64"


def network_of(name: str) -> NetworkId:
    return NetworkId(f"{name * 8}-0000-4000")


def a_router(name: str) -> RouterDescription:
    mine = [(guest, number) for guest, (number, router) in NETWORKS.items() if router == name]
    four, six = (
        tuple(RoutedSubnet(network_of(guest), ranges(number)[at], on(number, "1")[at]) for guest, number in mine)
        for at in (0, 1)
    )
    if name == "three":
        return RouterDescription(name, four, subnets6=six)
    last = {"one": "2", "two": "3"}[name]
    return RouterDescription(
        name, four, PUBLIC, f"203.0.113.{last}", snat=True, subnets6=six, address6=f"2001:db8::{last}"
    )


def a_seat(place: int, name: str) -> Seat:
    number = NETWORKS[name][0]
    addresses = tuple(
        VifAddress(*parts[:1], SubnetId(str(number)), *parts[1:])
        for parts in zip(on(number, "10"), ranges(number), on(number, "1"), strict=True)
    )
    mac = f"fa:16:3e:77:06:{place:02x}"
    vif = VifData(PortId(f"{place:08x}-1111"), network_of(name), mac, "bridge", addresses=addresses)
    return Seat(vif, GuestSpec(ServerId(name), name, 1, 128, vifs=(vif,)))


def a_bridge(place: int, name: str) -> BridgeNetwork:
    bridge, number = own_bridge_of(network_of(name)), NETWORKS[name][0]
    call("ip", "link", "add", bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    assert set_up_device(bridge)
    call("ip", "link", "set", bridge, "up")
    six = (f"{SERVICE_V6}/64", f"{advertising_address(bridge, ranges(number)[1])}/64")
    return BridgeNetwork(
        bridge, str(SERVICES[place]), tuple(zip(ranges(number), on(number, "1"), strict=True)), own_v6=six
    )


def a_station(name: str, bridge: str, mac: str) -> Station:
    made = Station(name, bridge, mac)
    made.start()
    for own, gateway, length in zip(on(NETWORKS[name][0], "10"), on(NETWORKS[name][0], "1"), (24, 64), strict=True):
        made.call("ip", "address", "add", f"{own}/{length}", "dev", "eth0", *(["nodad"] if ":" in own else []))
        made.call("ip", "route", "add", "default", "via", gateway)
    return made


def the_outside() -> Station:
    made = Station("outside", "")
    made.start()
    made.call("ip", "address", "add", f"{OUTSIDE}/24", "dev", "eth0")
    made.call("ip", "address", "add", f"{OUTSIDE_V6}/64", "dev", "eth0", "nodad")
    made.call("ip", "route", "add", "2001:db8:77::/48", "via", "2001:db8::2")
    call("ip", "link", "set", made.outer, "mtu", str(OUTER))
    return made


def unreachable_heard(station: Station) -> int:
    names, values = (line.split() for line in station.call("cat", "/proc/net/snmp").splitlines() if "Icmp:" in line)
    return int(values[names.index("InDestUnreachs")])


@contextmanager
def answering(station: Station) -> Iterator[None]:
    words = ("ip", "netns", "exec", station.name, sys.executable, "-c", ANSWER)
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


async def heard(stations: dict[str, Station]) -> dict[str, str | int]:
    async def ping(name: str, *words: str) -> str:
        return (await stations[name].run("ping", "-n", "-c1", "-W5", *words)).out

    large = ("-M", "do", "-s")
    asked = {
        **{f"time of {name}": (name, "-t1", OUTSIDE) for name in "ae"},
        **{f"time of {name}, IPv6": (name, "-t1", OUTSIDE_V6) for name in "ab"},
        **{f"size of {name}": (name, *large, TOO_BIG_OUTSIDE, OUTSIDE) for name in "ab"},
        "size of a, IPv6": ("a", *large, TOO_BIG_OUTSIDE, OUTSIDE_V6),
        "size of a, by a floating address": ("a", *large, BIG, FLOATING["e"]),
        "size of the outside": ("outside", *large, BIG, FLOATING["e"]),
        "size of the outside, IPv6": ("outside", *large, BIG, on(6, "10")[1]),
        "nobody for a": ("a", on(6, "99")[0]),
        "nobody for a, IPv6": ("a", on(6, "99")[1]),
        "no way for i": ("i", "10.99.0.1"),
        "no way for i, IPv6": ("i", "2001:db8:99::1"),
    }
    answers = await asyncio.gather(*(ping(*words) for words in asked.values()))
    found: dict[str, str | int] = dict(zip(asked, answers, strict=True))
    before = {name: unreachable_heard(stations[name]) for name in "ae"}
    stations["a"].call("ip", "route", "flush", "cache")  # what it has learned of sizes
    with answering(stations["a"]):
        await stations["e"].run(sys.executable, "-c", ASK, FLOATING["a"])
        await asyncio.sleep(1)
    return found | {f"size of what {name} answers": unreachable_heard(stations[name]) - before[name] for name in "ae"}


def settings() -> list[str]:
    return [each.read_text().strip() for each in SETTINGS]


async def main(room: Path) -> None:
    seats = {name: a_seat(place, name) for place, name in enumerate(NETWORKS, start=1)}
    networks = {name: a_bridge(place, name) for place, name in enumerate(NETWORKS, start=1)}
    await BridgeTables().keep([*networks.values()], {}, [Held(each.bridge) for each in networks.values()])
    outside = the_outside()
    stations = {"outside": outside} | {
        name: a_station(name, networks[name].bridge, seat.vif.mac) for name, seat in seats.items()
    }
    for name in ("b", "e"):
        call("ip", "link", "set", networks[name].bridge, "mtu", str(NARROW))
    described = {}
    for name, seat in seats.items():
        number, router = NETWORKS[name]
        floating = (FloatingAddress(FLOATING[name], on(number, "10")[0], PUBLIC),) if name in FLOATING else ()
        port = seat.vif.port
        described[port] = PortDescription(port, 1, floating=floating, routers=(a_router(router),))
    routing = Routing("0a1b2c3d", room, {"physnet1": outside.outer})
    served = {networks[name].bridge: [seat] for name, seat in seats.items()}
    before = settings()
    await routing.keep(served, described)
    tables = [
        call("ip", *family, "route", "show", "table", each) for each in ("main", "local") for family in ((), ("-6",))
    ]
    call("ip", "route", "flush", "table", "main")
    found = {"before": before, "set": settings(), "routes": "".join(tables), **await heard(stations)}
    call("nft", "add", "table", "inet", f"{TABLE_PREFIX}another")
    await routing.keep({}, {})
    found["beside another"] = settings()
    for each, what in zip(SETTINGS, before, strict=True):
        each.write_text(what)
    call("nft", "delete", "table", "inet", f"{TABLE_PREFIX}another")
    await routing.keep(served, described)
    await routing.keep({}, {})
    sys.stdout.write(json.dumps(found | {"after": settings()}))


if __name__ == "__main__":
    for kind, place in (("sysfs", "/sys"), ("tmpfs", "/run/netns")):
        Path(place).mkdir(exist_ok=True)
        call("mount", "-t", kind, kind, place)
    call("ip", "link", "set", "lo", "up")
    asyncio.run(main(Path(sys.argv[1])))
