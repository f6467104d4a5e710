"""Rates of ports with real traffic between namespaces, measured by what arrived."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.helpers.wired_namespaces import Guest, WiredHost, sh

from moorage.model.port_description import PortBandwidth, PortDescription, Rate
from moorage_testing.hypervisor.leftovers import leftovers

pytestmark = pytest.mark.hypervisor
PART = 0.2
"""How far a rate may be from what was asked."""
MEASUREMENTS_MAX = 5
MEASURED_S = 3.0
SETTLES_S = 1.0
PORT = 5001
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


def limited(host: WiredHost, guest: Guest, **rates: Rate) -> PortDescription:
    return host.described(guest, None, bandwidth=PortBandwidth(**rates))


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


async def test_what_is_guaranteed_is_had_beside_others_that_want_all(host: WiredHost) -> None:
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


async def test_rates_that_tc_cannot_count_are_no_limit_and_said(host: WiredHost) -> None:
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
