"""Namespaces in the place of guests, or of the outside: a network device with a port's MAC on a bridge, which costs no boot.

A network serves whatever has the MAC, so everything except the guest's own part can be tested in it.
"""

import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """\
#!/bin/sh
[ "$1" = bound ] || exit 0
env | sort >{told}
ip address flush dev "$interface" scope global
ip -4 address add "$ip/$mask" dev "$interface"
[ -n "$mtu" ] && ip link set "$interface" mtu "$mtu"
if [ -n "$staticroutes" ]; then
  set -- $staticroutes
  while [ $# -ge 2 ]; do
    if [ "$2" = 0.0.0.0 ]; then ip route add "$1" dev "$interface"; else ip route add "$1" via "$2" dev "$interface"; fi
    shift 2
  done
else
  for each in $router; do ip route add default via "$each" dev "$interface"; done
fi
exit 0
"""


@dataclass(frozen=True)
class Output:
    code: int
    out: str


@dataclass
class Station:
    """`start` and `stop`; its device is `eth0`."""

    name: str
    bridge: str
    mac: str = ""
    device: str = ""
    """Its other end, which has a name made of its own without one."""
    inside: Sequence[str] = ()
    """What a command begins with that is to run where the bridge is, when that is a namespace."""

    @property
    def outer(self) -> str:
        return self.device or f"st-{self.name}"

    def start(self) -> None:
        outer, coming = self.outer, f"x{self.name}"
        call("ip", "netns", "add", self.name)
        call(*self.inside, "ip", "link", "add", outer, "type", "veth", "peer", "name", coming)
        call(*self.inside, "ip", "link", "set", coming, "netns", self.name)
        self.call("ip", "link", "set", coming, "name", "eth0")
        if self.mac:
            self.call("ip", "link", "set", "eth0", "address", self.mac)
        for device in ("lo", "eth0"):
            self.call("ip", "link", "set", device, "up")
        if self.bridge:
            call(*self.inside, "ip", "link", "set", outer, "master", self.bridge)
        call(*self.inside, "ip", "link", "set", outer, "up")

    def stop(self) -> None:
        call("ip", "netns", "delete", self.name)
        subprocess.run([*self.inside, "ip", "link", "delete", self.outer], capture_output=True, check=False)

    def call(self, *words: str) -> str:
        """Raises CalledProcessError."""
        return call("ip", "netns", "exec", self.name, *words)

    async def run(self, *words: str, limit_s: float = 60.0) -> Output:
        """What a program says in there, whatever comes of it."""
        process = await asyncio.create_subprocess_exec(
            "ip", "netns", "exec", self.name, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(limit_s):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Output(process.returncode or 0, out.decode())

    async def ask_dhcp(self, room: Path) -> dict[str, str]:
        """What it was given; it has the address then. Raises RuntimeError without an answer."""
        told, script = room / f"{self.name}.told", room / f"{self.name}.sh"
        script.write_text(SCRIPT.format(told=told))
        script.chmod(0o755)
        options = [each for name in ("staticroutes", "mtu", "domain", "tftp", "bootfile") for each in ("-O", name)]
        said = await self.run(
            "busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "10", "-T", "2", "-s", str(script), *options
        )
        if said.code:
            raise RuntimeError(said.out)
        parts = [line.partition("=") for line in told.read_text().splitlines()]
        return {name: value for name, _, value in parts}


def call(*words: str) -> str:
    """Raises CalledProcessError."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
