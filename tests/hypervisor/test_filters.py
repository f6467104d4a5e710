"""What passes a tap, and how fast: real frames between namespaces, through the wiring that real guests have."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.wired_namespaces import EGRESS, Guest, WiredHost, arp, arrived, frame, icmp6, sh, udp4

from moorage.drivers.libvirt import port_filter
from moorage.drivers.libvirt.described_ports import FILE
from moorage.drivers.libvirt.port_filter import link_local_of
from moorage.model.port_description import AddressSetPart, AllowedAddresses, FilterRule, PortFilter
from moorage_testing.hypervisor.leftovers import leftovers

pytestmark = pytest.mark.hypervisor
HERE = ("env",)
"""Processes of other tests' guests are not ours."""
TALK = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
s.settimeout(3)
print("ready", flush=True)
for line in sys.stdin:
    s.send(b"x")
    try:
        print(len(s.recv(9)), flush=True)
    except TimeoutError:
        print("silent", flush=True)
"""
LISTEN = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
s.settimeout(2)
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(len(s.recv(9)), flush=True)
    except TimeoutError:
        print("silent", flush=True)
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
s.sendto(b"x", (sys.argv[3], int(sys.argv[4])))
"""
PING4, PING6 = FilterRule("ingress", 4, 1), FilterRule("ingress", 6, 58)


def say(process: "subprocess.Popen[str]") -> str:
    """One line to it, and its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[WiredHost]:
    made = WiredHost(tmp_path / "host")
    yield made
    await made.remove()
    assert leftovers(tmp_path / "host", inside=HERE) == []


@pytest.fixture
async def pair(host: WiredHost) -> tuple[Guest, Guest]:
    bridge = host.bridge("mrgtest", "10.88.0.254/24")
    return host.guest(1, bridge), host.guest(2, bridge)


async def test_a_port_without_a_description_is_closed(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    one, two = pair
    assert one.pings(two.four)
    await host.keep()
    assert one.is_cut_off(two.four)
    assert one.is_cut_off("10.88.0.254")
    await host.describe(host.described(one, None), host.described(two, None))
    assert one.pings(two.four)
    assert one.pings(two.six)
    await host.describe(host.described(two, None, up=False))
    assert one.is_cut_off(two.four)


async def test_rules_are_stateful_and_follow_changes_at_once(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    one, two = pair
    web = FilterRule("ingress", 4, 6, 80, 81)
    await host.describe(
        host.described(one, one.filter(*EGRESS)), host.described(two, two.filter(*EGRESS, PING4, PING6, web))
    )
    assert one.pings(two.four)
    assert one.pings(two.six)
    assert two.is_cut_off(one.four), "nothing allows it in, though the other may send it"
    assert two.is_cut_off(one.six)
    with two.serving("tcp", two.four, 80), two.serving("tcp", two.four, 82), two.serving("udp", two.four, 80):
        assert one.reaches("tcp", two.four, 80)
        assert not one.reaches("tcp", two.four, 82)
        assert not one.reaches("udp", two.four, 80)
        await host.describe(host.described(two, two.filter(*EGRESS)))
        assert not one.reaches("tcp", two.four, 80)
        assert one.is_cut_off(two.four)
        await host.describe(host.described(two, two.filter(*EGRESS, FilterRule("ingress", 4, 17))))
        assert one.reaches("udp", two.four, 80)


async def test_the_host_and_its_guests(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    """What the host says to a guest is held against its rules too; answers pass."""
    one, _ = pair
    await host.describe(host.described(one, one.filter(*EGRESS)))
    assert one.pings("10.88.0.254")
    ping = ("ping", "-c1", "-W1", one.four)
    with pytest.raises(AssertionError):
        sh(*ping)
    await host.describe(host.described(one, one.filter(*EGRESS, PING4)))
    sh(*ping)
    await host.describe(host.described(one, one.filter(PING4)))
    assert one.is_cut_off("10.88.0.254"), "nothing may leave any more"
    sh(*ping)


async def test_what_was_allowed_ends_with_its_rule(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    """A connection that stands: it goes on under the same rules made anew, and ends when its rule goes."""
    one, two = pair
    web = FilterRule("ingress", 4, 6, 80, 80)
    await host.describe(host.described(one, one.filter(*EGRESS)), host.described(two, two.filter(web)))
    with two.serving("tcp", two.four, 80), one.script(TALK, two.four, "80") as talk:
        assert say(talk) == "1"
        await host.describe(host.described(two, two.filter(web, PING4)))
        host.made_anew()
        await host.keep()
        assert say(talk) == "1"
        await host.describe(host.described(two, two.filter(PING4)))
        assert say(talk) == "silent"


async def test_spoofed_frames_are_dropped(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    one, two = pair
    open_to_all = (*EGRESS, FilterRule("ingress", 4), FilterRule("ingress", 6))
    await host.describe(host.described(one, one.filter(*open_to_all)), host.described(two, two.filter(*open_to_all)))
    assert one.pings(two.four)
    inside = ("ip", "-n", one.name)
    sh(*inside, "address", "add", "10.88.0.77/24", "dev", "eth0")
    sh(*inside, "address", "add", "fd88::77/64", "dev", "eth0", "nodad")
    for source, target in (("10.88.0.77", two.four), ("fd88::77", two.six)):
        assert one.is_cut_off(target, source)
    pairs = (AllowedAddresses(one.mac, (one.four, one.six, "10.88.0.64/26", "fd88::/112")),)
    wanted = one.filter(*open_to_all)
    await host.describe(host.described(one, PortFilter(pairs, wanted.rules)))
    for source, target in (("10.88.0.77", two.four), ("fd88::77", two.six)):
        assert one.pings(target, source)
    sh(*inside, "link", "set", "eth0", "address", "02:00:00:00:00:99")
    assert one.is_cut_off(two.four)
    await host.describe(
        host.described(one, one.filter(*open_to_all, more=(AllowedAddresses("02:00:00:00:00:99", (one.four,)),)))
    )
    assert one.pings(two.four)


async def test_frames_that_no_guest_may_send(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    """What takes another's place: its address, the router's, the DHCP server's."""
    one, two = pair
    open_to_all = (*EGRESS, FilterRule("ingress", 4), FilterRule("ingress", 6))
    local = link_local_of(one.mac)
    bad = {
        "arp for another's address": arp(one.mac, two.four),
        "arp of another MAC": arp("02:00:00:00:00:77", one.four),
        "a DHCP server": udp4(one.mac, one.four, (67, 68)),
        "a DHCP server that says so from another port": udp4(one.mac, one.four, (9, 68)),
        "another's packet": udp4(one.mac, two.four, (9, 9)),
        "a router": icmp6(one.mac, local, 134),
        "a redirect": icmp6(one.mac, local, 137),
        "a neighbour that is another": icmp6(one.mac, local, 136, two.six),
        "a neighbour from another's address": icmp6(one.mac, two.six, 136, one.six),
        "neither IP nor ARP": frame(one.mac, 0x88CC, b"lldp"),
        "with a VLAN": frame(one.mac, 0x8100, b"\0\1" + udp4(one.mac, one.four, (8, 8))[12:]),
    }
    good = {
        "arp": arp(one.mac, one.four),
        "arp that asks for nothing yet": arp(one.mac, "0.0.0.0"),
        "neighbour": icmp6(one.mac, local, 136, one.six),
        "neighbour, of the link": icmp6(one.mac, local, 136, local),
        "asks for a router": icmp6(one.mac, local, 133),
        "is here now": frame(one.mac, 0x8035, b"rarp"),
    }
    last = udp4(one.mac, one.four, (9, 9))
    unfiltered = host.described(two, None)
    await host.describe(host.described(one, None), unfiltered)
    assert arrived(one, two, bad | good, last) == bad.keys() | good.keys(), "of ports without port security"
    await host.describe(host.described(one, one.filter(*open_to_all)))
    assert arrived(one, two, bad | good, last) == good.keys()
    await host.describe(host.described(two, two.filter(*open_to_all)))
    assert arrived(one, two, good, last) >= {"arp", "neighbour"}
    await host.describe(host.described(one, one.filter()), unfiltered)
    ask = {"asks DHCP": udp4(one.mac, "0.0.0.0", (68, 67)), "not DHCP": udp4(one.mac, "0.0.0.0", (68, 69))}
    assert arrived(one, two, ask, arp(one.mac, one.four)) == {"asks DHCP"}


async def test_connections_go_on_where_nothing_is_known_of_them(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    """As on the new host after a live migration: conntrack has never seen them."""
    one, two = pair
    web = FilterRule("ingress", 4, 6, 80, 80)
    await host.describe(host.described(one, one.filter(*EGRESS)), host.described(two, two.filter(*EGRESS, web)))
    with two.serving("tcp", two.four, 80), one.script(TALK, two.four, "80") as talk:
        assert say(talk) == "1"
        numbers = json.loads((host.room / FILE).read_text())
        numbers["numbers"] |= {one.bridge: 5_000}  # another zone of conntrack
        (host.room / FILE).write_text(json.dumps(numbers))
        host.made_anew()
        await host.keep()
        assert "ct zone set 5000" in sh("nft", "list", "ruleset")
        assert say(talk) == "1"
        assert not two.reaches("tcp", one.four, 80)


async def test_members_of_groups(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    """Tens of thousands of them, that come and go."""
    one, two = pair
    three = host.guest(3, one.bridge)
    id = "aaaaaaaa-0000-4000-8000-00000000000a"
    rules = (*EGRESS, FilterRule("ingress", 4, members=id), FilterRule("ingress", 6, members=id))
    await host.describe(*(host.described(each, each.filter(*rules)) for each in (one, two, three)))
    await host.describe_members(id, one.four, one.six, two.four, two.six)
    assert one.pings(two.four)
    assert two.pings(one.six)
    assert three.is_cut_off(two.four)
    await host.describe_members(id, one.four, two.four, two.six, three.four)
    assert three.pings(two.four)
    assert one.is_cut_off(two.six)
    many = [f"10.{a}.{b}.{c}" for a in (90, 91) for b in range(100) for c in range(0, 250, 2)]
    host.version += 1
    parts = [many[at : at + 5000] for at in range(0, len(many), 5000)]
    for number, each in enumerate(parts):
        part = AddressSetPart(id, host.version, number, len(parts), tuple(each) + ((one.four,) if number == 3 else ()))
        await host.describe(sets=(part,))
        assert one.pings(two.four)
    assert three.is_cut_off(two.four)
    assert len(host.wiring.described.sets[id].addresses) == len(many) + 1


async def test_one_bad_rule_stops_no_other(
    host: WiredHost, pair: tuple[Guest, Guest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A description with a word that is no address is not taken at all (tests/pure/test_parsed_messages.py)."""
    one, two = pair
    bad = (FilterRule("ingress", 4, 1000), FilterRule("ingress", 4, 6, 9, 3))
    await host.describe(host.described(one, one.filter(*EGRESS)), host.described(two, two.filter(*EGRESS, *bad, PING4)))
    assert one.pings(two.four)
    assert len(host.wiring.troubles) == 2
    assert two.is_cut_off(one.four)
    whole = port_filter.rule_line
    monkeypatch.setattr(
        port_filter, "rule_line", lambda rule, sets: "no such words" if rule.low == 7 else whole(rule, sets)
    )
    three = host.guest(3, one.bridge)
    await host.describe(
        host.described(two, two.filter(FilterRule("ingress", 4, 6, 7, 7))),
        host.described(three, three.filter(*EGRESS, PING4)),
    )
    assert one.pings(three.four)
    assert one.is_cut_off(two.four)
    assert any(two.tap in each and "closed" in each for each in host.wiring.troubles)


async def test_stateless_groups(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    one, two = pair
    await host.describe(
        host.described(one, one.filter(*EGRESS, stateful=False)), host.described(two, two.filter(PING4))
    )
    assert one.is_cut_off(two.four), "its answer needs a rule of its own"
    await host.describe(host.described(one, one.filter(*EGRESS, PING4, stateful=False)))
    assert one.pings(two.four)


async def test_two_networks_with_the_same_addresses(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    """What one network's guests began opens nothing in another's."""
    one, two = pair
    other = host.bridge("mrgother")
    three, four = host.guest(3, other), host.guest(4, other)
    for guest, address in ((three, one.four), (four, two.four)):
        sh("ip", "-n", guest.name, "address", "flush", "dev", "eth0")
        sh("ip", "-n", guest.name, "address", "add", f"{address}/24", "dev", "eth0")
        guest.four = address
    rules = (*EGRESS, FilterRule("ingress", 4, 17, 53, 53))
    await host.describe(*(host.described(each, each.filter(*rules)) for each in (one, two, three, four)))
    with one.script(LISTEN, one.four, "5353") as waits:
        assert three.run(sys.executable, "-c", SEND, three.four, "5353", four.four, "53").returncode == 0
        assert two.run(sys.executable, "-c", SEND, two.four, "53", one.four, "5353").returncode == 0
        assert say(waits) == "silent", "it heard what only the other network's state would let pass"
    with four.script(LISTEN, four.four, "53") as waits:
        assert three.run(sys.executable, "-c", SEND, three.four, "5353", four.four, "53").returncode == 0
        assert say(waits) == "1", "rules of the other network hold there"


async def test_filters_that_somebody_flushed_are_written_again(host: WiredHost, pair: tuple[Guest, Guest]) -> None:
    one, two = pair
    await host.describe(host.described(one, one.filter(*EGRESS)), host.described(two, two.filter(*EGRESS)))
    assert await host.wiring.is_intact()
    sh("nft", "flush", "ruleset")
    assert not await host.wiring.is_intact()
    await host.keep()
    assert await host.wiring.is_intact()
    assert one.is_cut_off(two.four)
