"""What a host is told is parsed there as what it claims to be, whoever sent it: addresses, ranges, MACs, ids that become names of files, paths.

These words come into files of lines, rules of the kernel and names of devices.  A word that is something else is refused by its code, and
the host has done nothing.  Names that users chose, which are text, are not judged here: whoever writes them leaves out what does not fit.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, MoveTarget, VifAddress, VifData, VolumeDisk
from moorage.model.port_description import AddressSetPart, AllowedAddresses, FilterRule, PortDescription
from moorage.model.route_description import (
    ArpEntry,
    ExternalNetwork,
    FloatingAddress,
    RoutedSubnet,
    RouterDescription,
    StaticRoute,
    SubnetHints,
)

VIF, VOLUME, GARBLED = "vif_not_plugged", "volume_unreachable", "garbled"
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}")
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
FILES_NAMES = frozenset({"server", "image", "move", "port", "volume", "old", "kernel", "ramdisk"})
"""Fields of other messages, of which names of files are made."""
PATH_CHARACTERS_MAX = 4_096
MTU_MAX = 65_535

Judged = Iterable[tuple[str, object, Callable[[Any], bool], str]]
"""What it is called, the word, what it must be, and the code of a refusal."""


KNOWN_MAX = 4_096
"""Gateways, name servers and ranges come again with each guest of a network, and to parse them is most of the work."""
RANGE_CHARACTERS_MAX = 64


def is_address(word: str) -> bool:
    """An address of IPv4 or IPv6, without a zone."""
    return len(word) <= RANGE_CHARACTERS_MAX and _is_address(word)


def is_range(word: str) -> bool:
    """An address, perhaps with the length of a prefix."""
    return len(word) <= RANGE_CHARACTERS_MAX and _is_range(word)


@lru_cache(KNOWN_MAX)
def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return "%" not in word


@lru_cache(KNOWN_MAX)
def _is_range(word: str) -> bool:
    try:
        ipaddress.ip_network(word, strict=False)
    except ValueError:
        return False
    return "%" not in word


def is_id(word: str) -> bool:
    """An id, of which names of files and devices are made."""
    return ID.fullmatch(word) is not None and ".." not in word


def is_mac(word: str) -> bool:
    return MAC.fullmatch(word) is not None


def is_device(word: str) -> bool:
    return DEVICE.fullmatch(word) is not None


def is_text(word: str) -> bool:
    """One line."""
    return CONTROL.search(word) is None


def is_path(word: str) -> bool:
    """An absolute path that leads nowhere by way of a parent."""
    return word.startswith("/") and is_text(word) and len(word) <= PATH_CHARACTERS_MAX and ".." not in word.split("/")


def refuse_malformed(message: object) -> None:
    """Look at all of a decoded message. Raises HostFailed with the code of the word that is something else."""
    for name, word, fits, code in _judged(message):
        if word not in (None, "") and not (isinstance(word, str) and fits(word)):
            raise HostFailed(f"the host was sent a {name} that is none", private=repr(word)[:500], code=code)
    for each in _parts(message):
        refuse_malformed(each)


def is_well_formed(message: object) -> bool:
    """For messages that nobody waits for an answer of."""
    try:
        refuse_malformed(message)
    except HostFailed:
        return False
    return True


WITH_PARTS = (msgspec.Struct, tuple, list)


def _parts(message: object) -> Iterable[object]:
    """Those that are to be looked at themselves: most fields are plain words and numbers."""
    if isinstance(message, msgspec.Struct):
        parts: Iterable[object] = [getattr(message, name) for name in message.__struct_fields__]
    elif isinstance(message, (tuple, list)):
        parts = message
    else:
        return ()
    return [each for each in parts if each and isinstance(each, WITH_PARTS)]


def _judged(message: object) -> Judged:
    if (judge := JUDGES.get(type(message))) is not None:
        return judge(message)
    if not isinstance(message, msgspec.Struct):
        return ()
    return [(each, getattr(message, each), is_id, GARBLED) for each in _files_names(type(message))]


@lru_cache(KNOWN_MAX)
def _files_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(each for each in kind.__struct_fields__ if each in FILES_NAMES)


def _routes(routes: Iterable[tuple[str, str]]) -> Judged:
    for destination, hop in routes:
        yield "route", destination, is_range, VIF
        yield "next hop", hop, is_address, VIF


def _vif_address(one: VifAddress) -> Judged:
    yield "address", one.address, is_address, VIF
    yield "subnet", one.subnet, is_id, VIF
    yield "range", one.cidr, is_range, VIF
    yield "gateway", one.gateway, is_address, VIF
    yield from (("name server", each, is_address, VIF) for each in one.dns)
    yield from _routes(one.routes)


def _vif(one: VifData) -> Judged:
    yield "port", one.port, is_id, VIF
    yield "network", one.network, is_id, VIF
    yield "MAC", one.mac, is_mac, VIF
    yield "physical network", one.physical_network, is_text, VIF
    yield "MTU", str(one.mtu), lambda word: word.isdigit() and int(word) <= MTU_MAX, VIF
    yield "bridge", one.vif_details.get("bridge_name"), is_device, VIF


def _volume(one: VolumeDisk) -> Judged:
    yield "volume", one.volume, is_id, VOLUME
    data = one.connection.get("data", one.connection)
    for place in (one.connection, data):
        if isinstance(place, Mapping):
            yield "path", place.get("device_path"), is_path, VOLUME
            yield "format", place.get("format"), is_id, VOLUME


def _guest(one: GuestSpec) -> Judged:
    yield "server", one.server, is_id, GARBLED
    for each in (one.image, one.kernel, one.ramdisk):
        yield "image", each, is_id, GARBLED


def _move_target(one: MoveTarget) -> Judged:
    yield "address", one.address, is_text, GARBLED
    yield "place", one.where, is_text, GARBLED


def _port(one: PortDescription) -> Judged:
    yield "port", one.port, is_id, VIF
    yield "network", one.network, is_id, VIF
    yield "MAC", one.mac, is_mac, VIF


def _allowed(one: AllowedAddresses) -> Judged:
    yield "MAC", one.mac, is_mac, VIF
    yield from (("address", each, is_range, VIF) for each in one.prefixes)


def _set_part(one: AddressSetPart) -> Judged:
    yield "set", one.id, is_text, VIF
    yield from (("address", each, is_range, VIF) for each in one.addresses)


def _rule(one: FilterRule) -> Judged:
    yield "range", one.prefix, is_range, VIF
    yield "set", one.members, is_text, VIF


def _external(one: ExternalNetwork) -> Judged:
    yield "network", one.network, is_id, VIF
    yield "physical network", one.physical_network, is_text, VIF
    yield from (("range", each, is_range, VIF) for each in (one.cidr, one.cidr6))
    yield from (("gateway", each, is_address, VIF) for each in (one.gateway, one.gateway6))


def _router(one: RouterDescription) -> Judged:
    yield "router", one.router, is_id, VIF
    yield from (("address", each, is_address, VIF) for each in (one.address, one.address6))


def _routed_subnet(one: RoutedSubnet) -> Judged:
    yield "network", one.network, is_id, VIF
    yield "range", one.cidr, is_range, VIF
    yield "gateway", one.gateway, is_address, VIF


def _floating(one: FloatingAddress) -> Judged:
    yield from (("address", each, is_address, VIF) for each in (one.address, one.fixed))


def _hints(one: SubnetHints) -> Judged:
    yield "subnet", one.subnet, is_id, VIF
    yield from (("name server", each, is_address, VIF) for each in one.dns)
    yield from _routes(one.routes)


def _arp(one: ArpEntry) -> Judged:
    yield "address", one.address, is_address, VIF
    yield "MAC", one.mac, is_mac, VIF


def _static(one: StaticRoute) -> Judged:
    return _routes([(one.destination, one.hop)])


JUDGES: Mapping[type, Callable[[Any], Judged]] = {
    VifAddress: _vif_address,
    VifData: _vif,
    VolumeDisk: _volume,
    GuestSpec: _guest,
    MoveTarget: _move_target,
    PortDescription: _port,
    AllowedAddresses: _allowed,
    AddressSetPart: _set_part,
    FilterRule: _rule,
    ExternalNetwork: _external,
    RouterDescription: _router,
    RoutedSubnet: _routed_subnet,
    FloatingAddress: _floating,
    SubnetHints: _hints,
    ArpEntry: _arp,
    StaticRoute: _static,
}
