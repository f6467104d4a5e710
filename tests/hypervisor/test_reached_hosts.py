"""What a host itself reaches is the same whatever ranges and gateways its guests' networks have: in a namespace, with the kernel's own word."""

import ipaddress
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hypervisor

RANDOM_RANGES = 60
CHOSEN = (
    {"cidr": "198.51.100.0/24", "gateway": "198.51.100.1", "address": "198.51.100.10"},
    {"cidr": "198.51.100.0/24", "gateway": "198.51.100.10", "address": "198.51.100.11"},
    {"cidr": "8.8.8.0/24", "gateway": "8.8.8.8", "address": "8.8.8.9"},
    {"cidr": "192.0.2.0/24", "gateway": "192.0.2.1", "address": "192.0.2.9"},
    {"cidr": "192.0.2.0/24", "gateway": "192.0.2.77", "address": "192.0.2.9"},
    {"cidr": "192.0.2.0/24", "gateway": "192.0.2.5", "address": "192.0.2.9"},
    {"cidr": "192.0.2.0/24", "gateway": "", "address": "192.0.2.77"},
    {"cidr": "0.0.0.0/0", "gateway": "", "address": "10.0.0.9"},
    {"cidr": "0.0.0.0/0", "gateway": "192.0.2.1", "address": "10.0.0.9"},
    {"cidr": "128.0.0.0/2", "gateway": "128.0.0.1", "address": "128.0.0.9"},
    {"cidr": "127.0.0.0/8", "gateway": "127.0.0.53", "address": "127.0.0.9"},
    {"cidr": "169.254.0.0/16", "gateway": "169.254.169.254", "address": "169.254.1.1"},
    {"cidr": "2001:db8:aa::/80", "gateway": "2001:db8:aa::1", "address": "2001:db8:aa::77"},
    {"cidr": "2001:db8:aa::/64", "gateway": "2001:db8:aa::1", "address": "2001:db8:aa::77", "mode": "slaac"},
    {"cidr": "2001:db8:bb::/64", "gateway": "2001:db8:bb::10", "address": "2001:db8:bb::9", "mode": "dhcpv6-stateful"},
    {"cidr": "2000::/3", "gateway": "2001:4860:4860::8888", "address": "2000::9"},
    {"cidr": "::/0", "gateway": "2001:db8:aa::1", "address": "2000::9"},
)
EARLIER = (
    {
        "cidr": "198.51.100.0/24", "gateway": "198.51.100.10", "address": "198.51.100.9",
        "earlier": "address add 198.51.100.10/24 dev mrg0000000a-00\n-6 address add 2001:db8:bb::10/64 dev mrg0000000a-00 nodad",
    },
    {
        "cidr": "0.0.0.0/0", "gateway": "", "address": "10.0.0.9",
        "earlier": "address add 169.254.70.7/32 dev mrg0000000a-00\nroute replace 0.0.0.0/1 dev mrg0000000a-00 src 169.254.70.7",
    },
)  # fmt: skip
"""As an agent of an earlier release left them."""


def asked(room: Path, ranges: list[dict[str, str]]) -> list[dict[str, Any]]:
    words = ("unshare", "-n", sys.executable, "-m", "tests.helpers.reached_hosts", str(room))
    lines = "".join(json.dumps(each) + "\n" for each in ranges)
    done = subprocess.run(words, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(each) for each in done.stdout.splitlines()]


def a_range(dice: random.Random) -> dict[str, str]:
    """Any range, often around something that the host reaches, with any gateway or none."""
    six = dice.random() < 0.5
    bits = 128 if six else 32
    around = dice.choice(("192.0.2.77", "198.51.100.10", "8.8.8.8", "127.0.0.1", "169.254.169.254"))
    around6 = dice.choice(("2001:db8:aa::77", "2001:db8:bb::", "2001:4860:4860::8888", "fd00::1"))
    known = int(ipaddress.ip_address(around6 if six else around))
    value = known if dice.random() < 0.7 else dice.getrandbits(bits)
    made = ipaddress.IPv6Address if six else ipaddress.IPv4Address
    network = ipaddress.ip_network((made(value), dice.randrange(bits - 1)), strict=False)
    inside = [str(network[dice.randrange(network.num_addresses)]) for _ in range(2)] + [str(made(value))]
    gateway = dice.choice((*inside, ""))
    mode = dice.choice(("", "slaac", "dhcpv6-stateful")) if six else ""
    return {"cidr": str(network), "gateway": gateway, "address": inside[0], "mode": mode}


def test_ranges_that_are_the_hosts_own(tmp_path: Path) -> None:
    for what, seen in zip(CHOSEN, asked(tmp_path, [*CHOSEN]), strict=True):
        assert seen["said"] == "served", what
        assert seen["meanwhile"] == seen["before"], what
        assert seen["left"] == [], what


def test_what_an_earlier_release_put_into_the_hosts_tables_goes(tmp_path: Path) -> None:
    for what, seen in zip(EARLIER, asked(tmp_path, [*EARLIER]), strict=True):
        assert seen["said"] == "served", what
        assert seen["meanwhile"] == seen["before"], what
        assert seen["left"] == [], what


@pytest.mark.parametrize("seed", range(2))
def test_no_range_at_all_changes_what_the_host_reaches(seed: int, tmp_path: Path) -> None:
    """A range that cannot be served, because dnsmasq does not take it, changes nothing either."""
    dice = random.Random(seed)
    ranges = [a_range(dice) for _ in range(RANDOM_RANGES)]
    for what, seen in zip(ranges, asked(tmp_path, ranges), strict=True):
        assert seen["meanwhile"] == seen["before"], what
        assert seen["left"] == [], what
