"""What of guests is still on this machine: the census of hypervisor tests, which is empty when nothing was left behind."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from moorage.drivers.libvirt.plumber import read_later_of
from moorage.main.local_cluster.control_groups import MACHINE

OURS = ("tap", "mrg", "mrv", "mvx", "mvl", "mif")
TABLES = ("43518", "436", "437", "438", "439", "44")
"""Of routes, by what their numbers begin with."""
PROGRAMS = frozenset({b"moorage.drivers.libvirt.metadata_proxy", b"moorage.drivers.libvirt.thawing"})
"""Of ours, which run on without the agent."""
CONTROL_GROUPS = Path("/sys/fs/cgroup")
SHAPING = ("htb", "clsact", "ingress")
"""Of tc, on whatever device."""


def leftovers(
    *directories: Path, uri: str = "", inside: Sequence[str] = (), groups: Sequence[Path] | None = None
) -> list[str]:
    """Domains of the daemon, network devices, tables and queues, servers of networks, control groups of guests, and files of guests
    below these hosts' directories.

    `groups`: where another daemon than that of the namespaces makes control groups. `inside`: what a command begins with that is to run
    on the host, where that is a namespace; then processes are those of its directory.
    """
    daemon = ("-c", uri) if uri else ()
    found = [f"domain {each}" for each in _output("virsh", "-q", *daemon, "list", "--all", "--name").split()]
    devices = (line.split()[0] for line in _output(*inside, "ip", "-br", "link").splitlines())
    found += [f"device {each}" for each in devices if each.startswith(OURS)]
    if shutil.which("nft"):
        found += [
            f"table {each}" for each in _output(*inside, "nft", "list", "tables").splitlines() if "moorage" in each
        ]
    rules = [line for family in ("-4", "-6") for line in _output(*inside, "ip", family, "rule").splitlines()]
    found += [
        f"rule {each}" for each in rules if any(f"lookup {table}" in each for table in TABLES) or "fwmark" in each
    ]
    if shutil.which("tc"):
        qdiscs = (line.split() for line in _output(*inside, "tc", "qdisc", "show").splitlines())
        found += [f"qdisc {' '.join(each)}" for each in qdiscs if each[1] in SHAPING]
    if groups is None and not uri:
        groups = [each / MACHINE for each in CONTROL_GROUPS.glob("*")]
    found += [f"control group {each}" for parent in groups or () for each in parent.glob("qemu-*") if _is_used(each)]
    here = os.readlink("/proc/self/ns/net")  # other runs of these tests on the machine have guests of their own
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().split(b"\0")
            near = os.readlink(each.parent / "ns/net") == here
        except OSError:  # it ended meanwhile
            continue
        mine = any(str(directory).encode() in word for directory in directories for word in words)
        guest = b"guest=guest-" in b" ".join(words)
        server = words[0].endswith((b"dnsmasq", b"qemu-img")) or not PROGRAMS.isdisjoint(words)
        if (mine and server) or (guest and (mine or (near and not inside))):
            found.append(f"process {each.parent.name} {words[0].decode()}")
    for directory in directories:
        found += [
            f"file {directory / name}"
            for name in ("descriptions.coming", "routing.json")
            if (directory / name).exists()
        ]
        found += [f"file {each}" for each in (read_later_of(directory),) if each.exists()]
        for part in ("guests", "arriving", "networks", "metadata"):
            if (directory / part).is_dir():
                found += [f"file {each}" for each in (directory / part).rglob("*")]
    return found


def _is_used(group: Path) -> bool:
    """Whether a process is in it. An empty one is libvirt's: a daemon that is killed may leave it, and it goes with the daemon's own."""
    for each in group.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):  # it goes meanwhile
            if each.read_text().strip():
                return True
    return False


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
