"""What a host's routers say of packets that they cannot deliver. There are no guests in it, only namespaces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.hypervisor, pytest.mark.hypervisor_ci]

LIFETIME, SIZE = ("Time to live exceeded", "Hop limit"), ("Frag needed", "Packet too big")
NOBODY, NO_WAY = ("Destination Host Unreachable", "Address unreachable"), ("Destination Host Unreachable", "No route")
EXPECTED = {
    "time of a": ("10.77.5.1", LIFETIME[0]),
    "time of e": ("10.77.5.1", LIFETIME[0]),
    "time of a, IPv6": ("2001:db8:77:5:", LIFETIME[1]),
    "time of b, IPv6": ("2001:db8:77:6:", LIFETIME[1]),
    "size of a": ("10.77.5.1", SIZE[0]),
    "size of b": ("10.77.6.1", SIZE[0]),
    "size of a, IPv6": ("2001:db8:77:5:", SIZE[1]),
    "size of a, by a floating address": ("203.0.113.60", SIZE[0]),
    "size of the outside": ("203.0.113.60", SIZE[0]),
    "size of the outside, IPv6": ("2001:db8:77:", SIZE[1]),
    "nobody for a": ("10.77.5.1", NOBODY[0]),
    "nobody for a, IPv6": ("2001:db8:77:5:", NOBODY[1]),
    "no way for i": ("10.77.8.1", NO_WAY[0]),
    "no way for i, IPv6": ("2001:db8:77:8:", NO_WAY[1]),
}
"""What is asked → from whom the answer is, and what it says."""


def test_guests_and_the_outside_hear_of_it_where_the_host_has_no_route_to_them(tmp_path: Path) -> None:
    """Also where two routers have the same networks: the right one's guest does, and no other."""
    words = (
        "unshare",
        "--net",
        "--mount",
        "--propagation",
        "private",
        sys.executable,
        "-m",
        "tests.helpers.icmp_errors",
    )
    done = subprocess.run((*words, str(tmp_path)), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    heard = json.loads(done.stdout)
    wrong = {
        asked: heard[asked]
        for asked, (source, what) in EXPECTED.items()
        if f"From {source}" not in heard[asked] or what not in heard[asked]
    }
    assert wrong == {}
    assert (heard["size of what a answers"], heard["size of what e answers"]) == (1, 0)
    assert (heard["before"], heard["set"], heard["after"]) == (["0", "0"], ["1", "1"], ["0", "0"]), "it is taken back"
    assert heard["beside another"] == ["1", "1"], "another agent of the machine needs it"
    assert "10.77." not in heard["routes"], "what tenants choose is in no table of the host's own"
    assert "2001:db8:77:5::/" not in heard["routes"]
