"""Namespaces in place of guests: each with a card whose other end is a tap of the host's bridge, which the host's wiring filters and shapes."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import msgspec

from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.port_wiring import PortWiring
from moorage.drivers.libvirt.tunnels import gateway_mac
from moorage.drivers.libvirt.wires import ALIAS, links
from moorage.model.guest import VifData
from moorage.model.ids import NetworkId, PortId
from moorage.model.port_description import (
    AddressSetPart,
    AllowedAddresses,
    FilterRule,
    PortDescription,
    PortFilter,
    Present,
)

OWNER = "0f1e2d3c-test"
NETWORK = NetworkId("cccccccc-0000-4000-8000-000000000000")
ANSWERS_WITHIN_S = 60.0

SERVE = """
import socket, sys, threading
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((address, port))
print("ready", flush=True)
if kind == "udp":
    while True:
        data, peer = s.recvfrom(2048)
        s.sendto(data, peer)
s.listen(16)
def echo(c):
    while data := c.recv(65536):
        c.sendall(data)
while True:
    threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
"""
ASK = """
import socket, sys
kind, address, port, wait = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.settimeout(wait)
s.connect((address, port))
s.send(b"hello")
sys.exit(s.recv(100) != b"hello")
"""


def sh(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


@dataclass
class Guest:
    """A namespace with one card."""

    number: int
    bridge: str
    port: PortId
    mac: str
    four: str
    six: str

    @property
    def name(self) -> str:
        return f"guest{self.number}"

    @property
    def tap(self) -> str:
        return f"tap{self.port[:11]}"

    @property
    def vif(self) -> VifData:
        return VifData(self.port, NETWORK, self.mac, "bridge", vif_details={"described": True})

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(("ip", "netns", "exec", self.name, *words), capture_output=True, text=True, check=False)

    def pings(self, address: str, source: str = "") -> bool:
        """Whether an answer comes, after one echo or some: a machine that is busy may lose the first."""
        return self.run("ping", "-c1", "-w5", *(("-I", source) if source else ()), address).returncode == 0

    def is_cut_off(self, address: str, source: str = "") -> bool:
        """Whether an echo stays without an answer."""
        return self.run("ping", "-c1", "-W1", *(("-I", source) if source else ()), address).returncode != 0

    def reaches(self, kind: str, address: str, port: int, wait_s: float = 1.0) -> bool:
        """Whether the echo there answers."""
        return self.run(sys.executable, "-c", ASK, kind, address, str(port), str(wait_s)).returncode == 0

    @contextlib.contextmanager
    def script(self, text: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
        """Python there, which first says that it is ready, and ends with the block."""
        command = ("ip", "netns", "exec", self.name, sys.executable, "-c", text, *words)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.kill()

    @contextlib.contextmanager
    def serving(self, kind: str, address: str, port: int) -> Iterator[None]:
        with self.script(SERVE, kind, address, str(port)):
            yield

    def filter(self, *rules: FilterRule, stateful: bool = True, more: tuple[AllowedAddresses, ...] = ()) -> PortFilter:
        return PortFilter((AllowedAddresses(self.mac, (self.four, self.six)), *more), rules, stateful)


EGRESS = (FilterRule("egress", 4), FilterRule("egress", 6))


@dataclass
class WiredHost:
    """This namespace as a host: bridges, guests, and the wiring under test."""

    room: Path
    capacity_kbps: int = 0
    guests: list[Guest] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        self.wiring = self.made_anew()

    def made_anew(self) -> PortWiring:
        """As an agent that starts: with what is on disk."""
        described = DescribedPorts(self.room)
        described.load()
        self.wiring = PortWiring(OWNER, described, self.capacity_kbps, f"{ALIAS}{OWNER}")
        return self.wiring

    def bridge(self, name: str, address: str = "") -> str:
        mac = gateway_mac(name)
        sh("ip", "link", "add", name, "address", mac, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        sh("ip", "link", "set", name, "up")
        if address:
            sh("ip", "address", "add", address, "dev", name)
        return name

    def guest(self, number: int, bridge: str) -> Guest:
        made = Guest(
            number,
            bridge,
            PortId(f"{number:08x}-0000-4000-8000-000000000000"),
            f"02:00:00:00:00:{number:02x}",
            f"10.88.0.{number}",
            f"fd88::{number:x}",
        )
        sh("ip", "netns", "add", made.name)
        sh(
            "ip",
            "link",
            "add",
            made.tap,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "address",
            made.mac,
            "netns",
            made.name,
        )
        sh("ip", "link", "set", made.tap, "master", bridge, "up")
        inside = ("ip", "-n", made.name)
        sh(*inside, "link", "set", "lo", "up")
        sh(*inside, "link", "set", "eth0", "up")
        sh(*inside, "address", "add", f"{made.four}/24", "dev", "eth0")
        sh(*inside, "address", "add", f"{made.six}/64", "dev", "eth0", "nodad")
        self.guests.append(made)
        return made

    def described(self, guest: Guest, wanted: PortFilter | None, **more: object) -> PortDescription:
        self.version += 1
        made = PortDescription(guest.port, self.version, NETWORK, guest.mac, filter=wanted)
        return msgspec.structs.replace(made, **more)

    async def describe(self, *ports: PortDescription, sets: tuple[AddressSetPart, ...] = ()) -> None:
        self.wiring.described.take(ports, sets, None, self.version)
        self.wiring.described.save()
        await self.keep()

    async def describe_members(self, id: str, *addresses: str) -> None:
        self.version += 1
        await self.describe(sets=(AddressSetPart(id, self.version, addresses=addresses),))

    async def keep(self) -> None:
        vifs = {each.tap: (each.vif, each.bridge) for each in self.guests}
        await self.wiring.keep(vifs, await links())

    async def remove(self) -> None:
        """All guests go, as they would one after the other."""
        while self.guests:
            gone = self.guests.pop()
            sh("ip", "link", "delete", gone.tap)
            sh("ip", "netns", "delete", gone.name)
            await self.keep()
        self.wiring.described.take((), (), Present(), self.version + 1)
        await self.keep()
        for name in await links():
            if name.startswith("mrg"):
                sh("ip", "link", "delete", name)


async def until(condition: object, why: str) -> None:
    """Until it holds; with a deadline."""
    assert callable(condition)
    ends = time.monotonic() + ANSWERS_WITHIN_S
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < ends, why
        await asyncio.sleep(0.05)


# ------------------------------------------------------------------------------------------------ frames by hand

SEND_FRAMES = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
for each in sys.argv[1:]:
    s.send(bytes.fromhex(each))
"""
SEE_FRAMES = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 0))
s.settimeout(30)
print("ready", flush=True)
last = bytes.fromhex(sys.argv[1])
try:
    while True:
        frame = s.recv(2048)
        frame = frame.rstrip(b"\\0")
        print(frame.hex(), flush=True)
        if frame == last:
            break
except TimeoutError:
    pass
print("end", flush=True)
"""
EVERYBODY = b"\xff" * 6


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def frame(source: str, kind: int, body: bytes, target: bytes = EVERYBODY) -> bytes:
    return (target + mac_bytes(source) + kind.to_bytes(2, "big") + body).ljust(60, b"\0")


def arp(mac: str, address: str) -> bytes:
    """Says that it has this address."""
    sender = mac_bytes(mac) + ip_address(address).packed
    return frame(mac, 0x0806, bytes.fromhex("0001080006040001") + sender + bytes(6) + ip_address(address).packed)


def udp4(mac: str, source: str, ports: tuple[int, int]) -> bytes:
    payload = (
        ports[0].to_bytes(2, "big") + ports[1].to_bytes(2, "big") + (8 + 8).to_bytes(2, "big") + b"\0\0" + b"by hand."
    )
    head = bytearray(bytes.fromhex("45000000000000004011") + b"\0\0" + ip_address(source).packed + b"\xff" * 4)
    head[2:4] = (20 + len(payload)).to_bytes(2, "big")
    total = sum(int.from_bytes(head[at : at + 2], "big") for at in range(0, 20, 2))
    head[10:12] = (0xFFFF - (total % 0xFFFF or 0xFFFF)).to_bytes(2, "big")
    return frame(mac, 0x0800, bytes(head) + payload)


def icmp6(mac: str, source: str, kind: int, about: str = "::") -> bytes:
    """A router advertisement, a neighbour advertisement about an address, or the like, to all nodes."""
    payload = bytes([kind, 0, 0, 0, 0x20, 0, 0, 0]) + ip_address(about).packed
    ends = ip_address(source).packed + ip_address("ff02::1").packed
    checked = ends + len(payload).to_bytes(4, "big") + b"\0\0\0\x3a" + payload
    total = sum(int.from_bytes(checked[at : at + 2], "big") for at in range(0, len(checked), 2))
    checksum = 0xFFFF - (total % 0xFFFF or 0xFFFF)
    payload = payload[:2] + checksum.to_bytes(2, "big") + payload[4:]
    head = bytes.fromhex("60000000") + len(payload).to_bytes(2, "big") + b"\x3a\xff" + ends
    return frame(mac, 0x86DD, head + payload, bytes.fromhex("333300000001"))


def arrived(source: Guest, target: Guest, frames: dict[str, bytes], last: bytes) -> set[str]:
    """Names of those frames that the target got; `last` is one that gets there."""
    with target.script(SEE_FRAMES, _as_seen(last).hex()) as seeing:
        assert seeing.stdout is not None
        sent = source.run(sys.executable, "-c", SEND_FRAMES, *(each.hex() for each in (*frames.values(), last)))
        assert sent.returncode == 0, sent.stderr
        seen: set[str] = set()
        while (line := seeing.stdout.readline().strip()) != "end":
            seen.add(line)
    assert _as_seen(last).hex() in seen, "the last one did not arrive"
    return {name for name, each in frames.items() if _as_seen(each).hex() in seen}


def _as_seen(sent: bytes) -> bytes:
    """The kernel may cut what fills a frame up, and tells the tag of a VLAN beside it."""
    return (sent[:12] + sent[16:] if sent[12:14] == b"\x81\0" else sent).rstrip(b"\0")
