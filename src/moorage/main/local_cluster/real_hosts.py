"""Several hosts with real guests on one machine: each has namespaces and a libvirt daemon of its own, and one bridge connects them.

    <prefix>           a namespace with that bridge; each host's device `under` and this process' device <prefix> are connected to it
    <prefix>-<host>    a host's namespace; `ip netns exec` goes into it
    outer              a second bridge in the first namespace: each host's device `outside` is on it, and this process' device <prefix>out

The services of a trial set listen on this machine's loopback.  A relay lets each host reach them at its own loopback.

Daemons reach one another by TLS, with certificates of an authority that exists only while the hosts are made, and take only one another's.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from moorage.drivers.libvirt.qemu_access import all_may_fetch_memory
from moorage.drivers.libvirt.system_users import SystemUser
from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.local_cluster.libvirt_daemon import Daemon, DaemonCertificates
from moorage.main.local_cluster.qemu_user import let_in
from moorage.model.json_types import JsonObject

UNDERLAY = "10.250.77"
OUTSIDE, EXTERNAL_NETWORK = "203.0.113", "physnet1"
"""Where floating addresses are: hosts have the last addresses of it, and this machine the last one."""
LAST = 254
WIRE_MTU = 1_600
"""Large enough for the packets of a network with an MTU of 1,500 bytes in a tunnel."""
STOPS_WITHIN_S = 30.0


@dataclass
class RealHosts:
    """The hosts; `start` makes them, and `stop` removes them completely."""

    directory: Path
    names: Sequence[str]
    user: SystemUser | None = None
    """QEMU's on all hosts, which must be able to search all directories above; None: root."""
    prefix: str = "mrgset"
    daemons: dict[str, Daemon] = field(default_factory=dict)
    relay: subprocess.Popen[bytes] | None = None

    def namespace(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    @property
    def outer(self) -> str:
        """This machine's device outside."""
        return f"{self.prefix}out"

    def address(self, host: str) -> str:
        """Return the host's address on the bridge."""
        return f"{UNDERLAY}.{self.names.index(host) + 1}"

    def switch(self, host: str) -> Path:
        """Where the host's Open vSwitch has its sockets, if somebody gives it one."""
        return self.directory / host / "ovs"

    def inside(self, host: str) -> list[str]:
        """Return the words before a command that make it run on that host."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def settings(self, host: str, metadata_port: int) -> JsonObject:
        """The host's table `[libvirt]`. `metadata_port`: of the metadata service, on the host's own loopback."""
        address = self.address(host)
        return {
            "uri": self.daemons[host].uri, "address": address, "migration_address": address, "vxlan_address": address,
            "live_uri": "qemu+tls://{address}/system", "live_pki": str(self.daemons[host].pki),
            "live_post_copy": self.user is None or all_may_fetch_memory(), "dhcp": True, "routers": True,
            "external_devices": {EXTERNAL_NETWORK: "outside"},
            "ovs_db": f"unix:{self.switch(host)}/db.sock", "metadata_url": f"http://127.0.0.1:{metadata_port}",
        }  # fmt: skip

    def start(self) -> None:
        """Make the hosts. Raises RuntimeError when a daemon does not start, and CalledProcessError when a command of `ip` fails."""
        self.clear()
        _ip("netns", "add", self.prefix)
        _inside(self.prefix, "link", "set", "lo", "up")
        _inside(self.prefix, "link", "add", "wire", "mtu", str(WIRE_MTU), "type", "bridge", "mcast_snooping", "0")
        _inside(self.prefix, "link", "set", "wire", "up")
        own = ("type", "veth", "peer", "name", "machine", "netns", self.prefix)
        _ip("link", "add", self.prefix, "mtu", str(WIRE_MTU), *own)
        _ip("address", "add", f"{UNDERLAY}.{LAST}/24", "dev", self.prefix)
        _ip("link", "set", self.prefix, "up")
        _inside(self.prefix, "link", "set", "machine", "mtu", str(WIRE_MTU), "master", "wire", "up")
        _inside(self.prefix, "link", "add", "outer", "type", "bridge", "mcast_snooping", "0")
        _inside(self.prefix, "link", "set", "outer", "up")
        _ip("link", "add", self.outer, "type", "veth", "peer", "name", "outside", "netns", self.prefix)
        _ip("address", "add", f"{OUTSIDE}.{LAST}/24", "dev", self.outer)
        _ip("link", "set", self.outer, "up")
        _inside(self.prefix, "link", "set", "outside", "master", "outer", "up")
        authority = CertificateAuthority(self.directory / "pki", "Moorage trial hosts")
        for number, host in enumerate(self.names):
            self._make(number, host)
            signed = authority.issue(host, [self.address(host)])
            self.daemons[host].certificates = DaemonCertificates(authority.file, signed, self.names)
        with ThreadPoolExecutor() as starting:
            list(starting.map(Daemon.start, self.daemons.values()))

    def _make(self, number: int, host: str) -> None:
        name = self.namespace(host)
        _ip("netns", "add", name)
        _inside(name, "link", "set", "lo", "up")
        peer = ("type", "veth", "peer", "name", "under", "netns", name)
        _inside(self.prefix, "link", "add", f"h{number}", "mtu", str(WIRE_MTU), *peer)
        _inside(self.prefix, "link", "set", f"h{number}", "master", "wire", "up")
        _inside(name, "address", "add", f"{self.address(host)}/24", "dev", "under")
        _inside(name, "link", "set", "under", "mtu", str(WIRE_MTU), "up")
        peer = ("type", "veth", "peer", "name", "outside", "netns", name)
        _inside(self.prefix, "link", "add", f"o{number}", *peer)
        _inside(self.prefix, "link", "set", f"o{number}", "master", "outer", "up")
        _inside(name, "address", "add", f"{OUTSIDE}.{LAST - 1 - number}/24", "dev", "outside")
        _inside(name, "link", "set", "outside", "up")
        directory = self.directory / host
        directory.mkdir(parents=True, exist_ok=True)
        if self.user is not None:
            let_in(self.user, [self.directory, directory])
        self.daemons[host] = Daemon(directory, number + 1, self.address(host), name, user=self.user)

    def reach(self, ports: Sequence[int]) -> None:
        """Make these ports of this machine's loopback reachable at each host's loopback. Raises RuntimeError when the relay does not start."""
        names, numbers = (",".join(map(str, each)) for each in (map(self.namespace, self.names), ports))
        words = [sys.executable, "-m", "moorage.main.local_cluster.relay", names, numbers]
        self.relay = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.relay.stdout is not None
        if not self.relay.stdout.readline():
            raise RuntimeError("the relay to the hosts did not start")

    def crash(self, host: str) -> None:
        """Kill the host's daemon and guests, as if it lost power. Its agent is another process, which the caller kills."""
        daemon = self.daemons[host]
        for file in [daemon.run / "libvirtd.pid", *(daemon.run / "qemu").glob("*.pid")]:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        if daemon.process is not None:
            daemon.process.wait(STOPS_WITHIN_S)
        if daemon.group is not None:  # a daemon that comes back does not remove groups of guests that are gone
            daemon.group.remove()

    def stop(self) -> None:
        if self.relay is not None:
            self.relay.terminate()
            self.relay.wait(STOPS_WITHIN_S)
            assert self.relay.stdout is not None
            self.relay.stdout.close()
        with ThreadPoolExecutor() as stopping:
            list(stopping.map(Daemon.stop, self.daemons.values()))
        self.clear()

    def clear(self) -> None:
        """Remove the namespaces of this prefix, and end what runs in them."""
        for name in [self.prefix, *map(self.namespace, self.names)]:
            result = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for process in result.stdout.split():
                with contextlib.suppress(OSError):
                    os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        for device in (self.prefix, self.outer):
            subprocess.run(["ip", "link", "delete", device], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _inside(namespace: str, *words: str) -> None:
    _ip("-n", namespace, *words)
