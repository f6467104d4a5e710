"""Addresses that this host answers for on devices that lead outside; whoever remembers another host for one is told.

IPv4: gratuitous ARP.  IPv6: unsolicited neighbour advertisements that override (RFC 4861), after an address without duplicate detection.
"""

import asyncio
import ipaddress
import logging
import socket
import struct
from collections.abc import Mapping
from typing import Protocol

from moorage.drivers.libvirt.commands import run

FRAMES, ARP_ETHERTYPE, IPV6_ETHERTYPE = 3, 0x0806, 0x86DD
ICMPV6, NEIGHBOUR_ADVERT, OVERRIDE, TARGET_MAC = 58, 136, 0x2000_0000, 2
"""Of an advertisement: its type, the flag, and the kind of option that says a MAC."""
ALL_NODES, ALL_NODES_MAC = ipaddress.IPv6Address("ff02::1"), bytes.fromhex("333300000001")

_log = logging.getLogger(__name__)


class ExternalDevice(Protocol):
    """A device with addresses."""

    @property
    def mac(self) -> str: ...

    def has(self, address: str) -> bool: ...


async def keep_addresses(
    wanted: Mapping[str, str], made: Mapping[str, str], devices: Mapping[str, ExternalDevice]
) -> None:
    """Address → device, as it should be, and what we put there. Raises HostFailed (`vif_not_plugged`)."""
    for address, device in wanted.items():
        if not devices[device].has(address):
            await _ip("address", "replace", _with_length(address), "dev", device, *_unused_by_us(address))
            await asyncio.to_thread(_announce, device, devices[device].mac, address)
    for address, device in made.items():
        if wanted.get(address) != device and device in devices and devices[device].has(address):
            await _ip("address", "delete", _with_length(address), "dev", device)


def _with_length(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def _unused_by_us(address: str) -> tuple[str, ...]:
    """The machine itself speaks to nobody under it."""
    return ("nodad", "preferred_lft", "0") if ":" in address else ("scope", "link")


def _announce(device: str, mac: str, address: str) -> None:
    own = bytes.fromhex(mac.replace(":", ""))
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
            out.bind((device, 0))
            for number in range(FRAMES):
                out.send(advertisement(own, address) if ":" in address else _gratuitous(own, address, number))
    except OSError as failure:
        _log.warning("%s cannot be announced on %s: %s", address, device, failure)


def _gratuitous(own: bytes, address: str, number: int) -> bytes:
    """A question and an answer by turns: not everybody hears both."""
    ip = socket.inet_aton(address)
    operation, target = (2, own) if number % 2 else (1, bytes(6))
    head = b"\xff" * 6 + own + struct.pack("!H", ARP_ETHERTYPE)
    return head + struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + own + ip + target + ip


def advertisement(own: bytes, address: str) -> bytes:
    """A frame that says to all nodes that this MAC has the address."""
    source = ipaddress.IPv6Address(address).packed
    option = bytes([TARGET_MAC, 1]) + own
    body = struct.pack("!BBHI", NEIGHBOUR_ADVERT, 0, 0, OVERRIDE) + source + option
    ends = source + ALL_NODES.packed
    checksum = _checksum(ends + struct.pack("!II", len(body), ICMPV6) + body)
    body = body[:2] + struct.pack("!H", checksum) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), ICMPV6, 255) + ends
    return ALL_NODES_MAC + own + struct.pack("!H", IPV6_ETHERTYPE) + head + body


def _checksum(data: bytes) -> int:
    """Of the Internet (RFC 1071); the data has an even length."""
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


async def _ip(*words: str) -> None:
    await run("ip", *words, code="vif_not_plugged")
