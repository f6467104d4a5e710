"""What a machine reaches while it serves networks of tenants, in a network namespace: as a program, which prints it as JSON.

python -m tests.helpers.reached_hosts DIRECTORY    ranges as JSON lines, each answered by a line
"""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.errors import HostFailed
from moorage.model.guest import VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, SubnetId

BRIDGE = "mrg0000000a-00"
MACHINE = (
    "link set lo up",
    "link add eth0 type veth peer name eth0p",
    "link set eth0p up",
    "address add 192.0.2.5/24 dev eth0",
    "address add 2001:db8:aa::5/64 dev eth0 nodad",
    "link set eth0 up",
    "route add default via 192.0.2.1",
    "-6 route add default via 2001:db8:aa::1 dev eth0",
)
"""Its own networks, and all others by a router."""
OF_LINKS = re.compile(r"\b(fe80:|ff00:)")
"""Routes that the kernel gives each device."""
REACHED = (
    "192.0.2.5", "192.0.2.1", "192.0.2.77", "198.51.100.10", "8.8.8.8", "203.0.113.9", "10.0.0.1", "172.16.0.9", "127.0.0.1", "127.0.0.53",
    "169.254.169.254", "169.254.1.1", "2001:db8:aa::5", "2001:db8:aa::1", "2001:db8:aa::77", "2001:db8:bb::", "2001:db8:bb::10",
    "2001:4860:4860::8888", "fd00::1", "::1",
)  # fmt: skip
"""Itself, neighbours, a control plane, name servers, its metadata, a range's first address."""


def call(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def ways(*more: str) -> dict[str, str]:
    """Destination → how the kernel would send to it; the name of the table is only said where there are rules."""
    found = {each: call("ip", "route", "get", each, check=False).split("uid")[0] for each in (*REACHED, *more)}
    return {each: " ".join(way.replace(" table local", "").split()) for each, way in found.items()}


def described(what: dict[str, str]) -> VifData:
    address = VifAddress(what["address"], SubnetId("s"), what["cidr"], what["gateway"], dhcp=bool(what.get("dhcp")))
    if ":" in what["cidr"]:
        address = VifAddress(
            what["address"], SubnetId("s"), what["cidr"], what["gateway"], dhcp=True,
            address_mode=what.get("mode", ""), ra_mode=what.get("mode", ""),
        )  # fmt: skip
    return VifData(PortId("p"), NetworkId("n"), "fa:16:3e:00:00:01", "bridge", addresses=(address,))


async def tried(room: Path, what: dict[str, str]) -> dict[str, object]:
    """How the ways are before, while and after the network is served; and what the bridge left."""
    looked_at = [each for each in (what["gateway"], what["address"], what.get("look", "")) if each]
    before = ways(*looked_at)
    call("ip", "link", "add", BRIDGE, "type", "bridge")
    call("ip", "link", "set", BRIDGE, "up")
    for each in what.get("earlier", "").splitlines():
        call("ip", *each.split())
    plumber, said = Plumber(room, Libvirt(dhcp=True)), "served"
    try:
        await plumber.serve({BRIDGE: [described(what)]})
    except HostFailed as failure:
        said = failure.private
    meanwhile = ways(*looked_at)
    await Plumber(room, Libvirt(dhcp=True)).serve({})  # another process: all that was made is found
    rules = [each for family in ("-4", "-6") for each in call("ip", family, "rule").splitlines() if "lookup 44" in each]
    routes = call("ip", "route", "show", "table", "all").splitlines()
    left = [each for each in (*rules, *routes) if "lookup 44" in each or "table 44" in each or BRIDGE in each]
    left = [each for each in left if not OF_LINKS.search(each)]
    call("ip", "link", "delete", BRIDGE)
    return {"said": said, "before": before, "meanwhile": meanwhile, "left": left}


async def main(room: Path) -> None:
    for each in MACHINE:
        call("ip", *each.split())
    for line in sys.stdin:
        print(json.dumps(await tried(room, json.loads(line))), flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
