"""What of guests is still on this machine: the census of hypervisor tests, which is empty when nothing was left behind."""

import subprocess
from pathlib import Path

OURS = ("tap", "mrg")


def leftovers(*context: Path, uri: str = "") -> list[str]:
    """Domains of the daemon, network devices, servers of networks, and files of guests below these hosts' directories."""
    daemon = ("-c", uri) if uri else ()
    found = [f"domain {each}" for each in _said("virsh", "-q", *daemon, "list", "--all", "--name").split()]
    devices = (line.split()[0] for line in _said("ip", "-br", "link").splitlines())
    found += [f"device {each}" for each in devices if each.startswith(OURS)]
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().split(b"\0")
        except OSError:  # it ended meanwhile
            continue
        mine = any(str(room).encode() in word for room in context for word in words)
        if (mine and words[0].endswith((b"dnsmasq", b"qemu-img"))) or b"guest=guest-" in b" ".join(words):
            found.append(f"process {each.parent.name} {words[0].decode()}")
    for room in context:
        for part in ("guests", "arriving", "networks"):
            if (room / part).is_dir():
                found += [f"file {each}" for each in (room / part).rglob("*")]
    return found


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
