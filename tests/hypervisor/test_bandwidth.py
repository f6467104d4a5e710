"""Rates of ports with real traffic between namespaces, measured by what arrived."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.helpers.wired_namespaces import Guest, WiredHost, sh

from moorage.model.port_description import FilterRule, PacketRate, PortBandwidth, PortDescription, Rate
from moorage_testing.hypervisor.leftovers import leftovers

pytestmark = pytest.mark.hypervisor
PART = 0.2
"""How far a rate may be from what was asked."""
MEASUREMENTS_MAX = 5
MEASURED_S = 3.0
SETTLES_S = 1.0
PORT = 5001
UNSAID = Rate()
FLOOD = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
print("ready", flush=True)
block = b"x" * 65536
while True:
    s.sendall(block)
"""
SINK = """
import socket, sys, time
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
c = s.accept()[0]
settles, measured = float(sys.argv[3]), float(sys.argv[4])
ends = time.monotonic() + settles
while time.monotonic() < ends:
    c.recv(1 << 20)
began = time.monotonic()
got = 0
while time.monotonic() < began + measured:
    got += len(c.recv(1 << 20))
print(got * 8 / 1000 / (time.monotonic() - began), flush=True)
while c.recv(1 << 20):
    pass
"""


SPRAY = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    try:
        s.send(b"x")
    except OSError:  # nobody listens yet, or the queue is full
        pass
"""
COUNT = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
settles, measured = float(sys.argv[3]), float(sys.argv[4])
s.recv(100)
ends = time.monotonic() + settles
while time.monotonic() < ends:
    s.recv(100)
began, got = time.monotonic(), 0
while time.monotonic() < began + measured:
    s.recv(100)
    got += 1
print(got / (time.monotonic() - began), flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[WiredHost]:
    made = WiredHost(tmp_path / "host", capacity_kbps=60_000)
    yield made
    await made.remove()
    assert leftovers(tmp_path / "host", inside=("env",)) == []


def rates_kbps(flows: list[tuple[Guest, Guest]]) -> list[float]:
    """What arrives of floods from each first to each second, side by side, once the bursts are over."""
    measure = (str(SETTLES_S), str(MEASURED_S))
    with ExitStack() as stack:
        sinks = [stack.enter_context(target.script(SINK, target.four, str(PORT), *measure)) for _, target in flows]
        for source, target in flows:
            stack.enter_context(source.script(FLOOD, target.four, str(PORT)))
        return [float(each.stdout.readline()) for each in sinks if each.stdout is not None]


def measured(flows: list[tuple[Guest, Guest]], holds: Callable[..., bool]) -> list[float]:
    """The rates that hold; else the last ones. A machine that is busy may be too slow to fill the rates, so they are measured again."""
    for _ in range(MEASUREMENTS_MAX):
        if holds(*(rates := rates_kbps(flows))):
            break
    return rates


def about(kbps: float) -> "pytest.approx":  # type: ignore[valid-type]
    return pytest.approx(kbps, rel=PART)


def is_free(kbps: float) -> bool:
    return kbps > 100_000


def limited(host: WiredHost, guest: Guest, *, egress: Rate = UNSAID, ingress: Rate = UNSAID) -> PortDescription:
    return host.described(guest, None, bandwidth=PortBandwidth(egress, ingress))


async def test_limits_in_both_directions_change_under_traffic(host: WiredHost) -> None:
    bridge = host.bridge("mrgtest")
    one, two = host.guest(1, bridge), host.guest(2, bridge)
    await host.describe(limited(host, one, egress=Rate(12_000), ingress=Rate(6_000)), host.described(two, None))
    assert measured([(one, two)], about(12_000).__eq__) == [about(12_000)]
    assert measured([(two, one)], about(6_000).__eq__) == [about(6_000)]
    await host.describe(limited(host, one, egress=Rate(24_000, burst_kbit=1_000)))
    assert measured([(one, two)], about(24_000).__eq__) == [about(24_000)]
    host.made_anew()
    await host.keep()
    assert measured([(one, two)], about(24_000).__eq__) == [about(24_000)]
    await host.describe(host.described(one, None))
    assert measured([(one, two)], is_free) > [100_000]
    assert "mif" not in sh("ip", "-br", "link")


async def test_guaranteed_rates_hold_against_greedy_ports(host: WiredHost) -> None:
    """60 Mbit/s for all: 36 are one's own, the rest is shared."""
    bridge = host.bridge("mrgtest")
    sure, greedy, target, other = (host.guest(number, bridge) for number in (1, 2, 3, 4))
    await host.describe(
        limited(host, sure, egress=Rate(guaranteed_kbps=42_000)),
        *(host.described(each, None) for each in (greedy, target, other)),
    )

    def most_is_mine(mine: float, theirs: float) -> bool:
        return mine >= 42_000 * (1 - PART) and mine + theirs == about(60_000)

    def most_is_theirs(mine: float, theirs: float) -> bool:
        return theirs >= 40_000 * (1 - PART) and mine >= 10_000 * (1 - PART)

    both = [(sure, target), (greedy, other)]
    assert most_is_mine(*measured(both, most_is_mine))
    assert measured([(greedy, other)], about(60_000).__eq__) == [about(60_000)], (
        "what is guaranteed and not used is the others'"
    )
    await host.describe(
        limited(host, sure, egress=Rate(guaranteed_kbps=10_000)),
        limited(host, greedy, egress=Rate(guaranteed_kbps=40_000)),
    )
    assert most_is_theirs(*measured(both, most_is_theirs))
    await host.describe(
        host.described(sure, None),
        limited(host, target, ingress=Rate(guaranteed_kbps=42_000)),
        host.described(greedy, None),
    )
    assert most_is_mine(*measured(both, most_is_mine))


def packets_in_a_second(source: Guest, target: Guest, wanted: object = None) -> float:
    """Of small datagrams that are sent as fast as can be, those that arrive once the burst is over; measured again as rates are."""
    for _ in range(MEASUREMENTS_MAX):
        with target.script(COUNT, target.four, str(PORT), str(SETTLES_S), str(MEASURED_S)) as sink:
            assert sink.stdout is not None
            with source.script(SPRAY, target.four, str(PORT)):
                found = float(sink.stdout.readline())
        if wanted is None or found == wanted:
            break
    return found


async def test_rates_of_packets(host: WiredHost) -> None:
    """In each direction, of a port that is filtered and of one that is not, and again after a start of the agent."""
    bridge = host.bridge("mrgtest")
    one, two = host.guest(1, bridge), host.guest(2, bridge)
    limits = PortBandwidth(egress_packets=PacketRate(2_000), ingress_packets=PacketRate(1_000, 50))
    await host.describe(host.described(one, None, bandwidth=limits), host.described(two, None))
    assert packets_in_a_second(one, two, about(2_000)) == about(2_000)
    assert packets_in_a_second(two, one, about(1_000)) == about(1_000)
    everything = (FilterRule("egress", 4), FilterRule("ingress", 4))
    await host.describe(host.described(one, one.filter(*everything), bandwidth=limits))
    assert packets_in_a_second(one, two, about(2_000)) == about(2_000)
    host.made_anew()
    await host.keep()
    assert packets_in_a_second(two, one, about(1_000)) == about(1_000)
    await host.describe(host.described(one, None))
    assert packets_in_a_second(one, two) > 2_400


async def test_rates_beyond_tc_are_unlimited_and_logged(host: WiredHost) -> None:
    host.capacity_kbps = 0
    host.made_anew()
    bridge = host.bridge("mrgtest")
    one, two = host.guest(1, bridge), host.guest(2, bridge)
    huge = Rate(2**31 - 1, 2**31 - 1)
    await host.describe(limited(host, one, egress=huge, ingress=huge), host.described(two, None))
    assert any("more than" in each for each in host.wiring.troubles)
    assert one.pings(two.four)
    assert measured([(one, two)], is_free) > [100_000]
    await host.describe(limited(host, one, egress=Rate(1, 2**31 - 1), ingress=Rate(100)))
    assert rates_kbps([(two, one)])[0] < 400


async def test_a_device_that_somebody_removed_is_made_again(host: WiredHost) -> None:
    bridge = host.bridge("mrgtest")
    one, two = host.guest(1, bridge), host.guest(2, bridge)
    await host.describe(limited(host, one, egress=Rate(8_000)), host.described(two, None))
    sh(
        "ip",
        "link",
        "delete",
        "dev",
        next(line.split()[0] for line in sh("ip", "-br", "link").splitlines() if line.startswith("mif")),
    )
    await host.keep()
    assert measured([(one, two)], about(8_000).__eq__) == [about(8_000)]


async def test_marks_of_dscp(host: WiredHost) -> None:
    bridge = host.bridge("mrgtest")
    one, two = host.guest(1, bridge), host.guest(2, bridge)
    await host.describe(host.described(one, None, bandwidth=PortBandwidth(dscp=26)), host.described(two, None))
    assert one.pings(two.six)
    chain = "type filter hook input priority 0; ip dscp 26 counter accept; ip6 dscp 26 counter accept;"
    assert two.run("nft", f"table inet count {{ chain c {{ {chain} }}; }}").returncode == 0
    assert one.pings(two.four)
    assert one.pings(two.six)
    counters = two.run("nft", "list", "ruleset").stdout
    assert counters.count("counter packets 0") == 0, counters
