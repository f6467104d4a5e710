"""What this host was told of its ports, on disk, so that an agent that starts again wires them as before.

<host's directory>/descriptions.json
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from moorage.model.clock import Clock
from moorage.model.guest import GuestSpec, VifData
from moorage.model.ids import NetworkId, PortId
from moorage.model.parsed_messages import is_well_formed
from moorage.model.port_description import (
    PARTS_MAX,
    AddressSetPart,
    PortDescription,
    Present,
    held_digest,
    network_of_arp_set,
)
from moorage.model.route_description import ArpEntry

DescribedT = TypeVar("DescribedT", PortDescription, AddressSetPart)

FILE = "descriptions.json"
LOOK_EVERY_S = 0.2
NUMBER_MAX = 60_000
"""Numbers of ports (classes of tc) and bridges (zones of conntrack) have 16 bits."""
FIRST_NUMBER = 16
FORM = 3
"""Counts what descriptions can say: a file of another release lacks what this one could read."""

_log = logging.getLogger(__name__)


class AddressSet(msgspec.Struct, frozen=True):
    """All addresses of one set, by one version."""

    version: int
    addresses: tuple[str, ...] = ()
    arp_entries: tuple[ArpEntry, ...] = ()


class _OnDisk(msgspec.Struct):
    form: int = 0
    ports: dict[PortId, PortDescription] = {}
    sets: dict[str, AddressSet] = {}
    numbers: dict[str, int] = {}


class DescribedPorts:
    """Of one host."""

    def __init__(self, room: Path) -> None:
        self._file = room / FILE
        self._now = _OnDisk(FORM)
        self._incoming: dict[str, dict[int, AddressSetPart]] = {}
        """Parts of sets that are not complete yet."""
        self._listed, self._listed_at = Present(), 0
        """The newest list of what there is: older things that it does not name are gone for good."""
        self._digest = held_digest({}, {})

    @property
    def ports(self) -> Mapping[PortId, PortDescription]:
        return self._now.ports

    @property
    def sets(self) -> Mapping[str, AddressSet]:
        return self._now.sets

    def as_described(self, guest: GuestSpec) -> GuestSpec:
        """With what its subnets tell guests now, in the place of what they told when its ports were bound."""
        vifs = tuple(self._with_current_subnets(each) for each in guest.vifs)
        return guest if vifs == guest.vifs else msgspec.structs.replace(guest, vifs=vifs)

    def _with_current_subnets(self, vif: VifData) -> VifData:
        description = self._now.ports.get(vif.port)
        hints = {each.subnet: each for each in description.subnets} if description is not None else {}
        addresses = tuple(
            msgspec.structs.replace(each, dns=hints[each.subnet].dns, routes=hints[each.subnet].routes)
            if each.subnet in hints
            else each
            for each in vif.addresses
        )
        return msgspec.structs.replace(vif, addresses=addresses)

    def arp_entries(self) -> dict[NetworkId, dict[str, str]]:
        """Network → addresses of its ports, on whatever host, with their MACs."""
        found: dict[NetworkId, dict[str, str]] = {}
        for id, each in self._now.sets.items():
            if (network := network_of_arp_set(id)) is not None:
                found.setdefault(network, {}).update((one.address, one.mac) for one in each.arp_entries)
        return found

    @property
    def digest(self) -> str:
        """Of what is on disk."""
        return self._digest

    def load(self) -> None:
        """A file that cannot be read is as none: all ports are closed until they are described again, within seconds."""
        try:
            self._now = msgspec.json.decode(self._file.read_bytes(), type=_OnDisk)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as garbled:
            _log.error("descriptions of ports cannot be read, and are asked for anew: %s", garbled)
            self._now = _OnDisk(FORM)
        if self._now.form != FORM:
            self._doubt()
        self._digest = self._of_now()

    def _doubt(self) -> None:
        """All of it holds until it is sent again, for its digest is no longer that of what there is."""
        now = self._now
        ports = {name: msgspec.structs.replace(each, version=0) for name, each in now.ports.items()}
        sets = {name: msgspec.structs.replace(each, version=0) for name, each in now.sets.items()}
        self._now = _OnDisk(FORM, ports, sets, now.numbers)

    def save(self) -> None:
        """Raises OSError, for a full disk say; the digest is that of what was saved last then."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        coming = self._file.with_suffix(".coming")
        with os.fdopen(os.open(coming, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(msgspec.json.encode(self._now))
        os.replace(coming, self._file)
        self._digest = self._of_now()

    def forget(self) -> None:
        """All of it: of a host that is given up."""
        self._now = _OnDisk(FORM)
        self._incoming.clear()
        self._listed, self._listed_at = Present(), 0
        self._digest = self._of_now()
        with contextlib.suppress(FileNotFoundError):
            self._file.unlink()

    def _of_now(self) -> str:
        ports = {name: each.version for name, each in self._now.ports.items()}
        return held_digest(ports, {name: each.version for name, each in self._now.sets.items()})

    def take(
        self, ports: Sequence[PortDescription], sets: Sequence[AddressSetPart], present: Present | None, version: int
    ) -> bool:
        """What is newer than what is known; whether anything was."""
        changed = False
        for port in _well_formed(ports):
            known = self._now.ports.get(port.port)
            if port.version <= self._listed_at and port.port not in self._listed.ports:
                continue
            if known is None or known.version < port.version:
                self._now.ports[port.port] = port
                changed = True
        for part in _well_formed(sets):
            changed = self._take_part(part) or changed
        return (present is not None and self._drop_absent(present, version)) or changed

    def _take_part(self, part: AddressSetPart) -> bool:
        known = self._now.sets.get(part.id)
        if part.version <= self._listed_at and part.id not in self._listed.sets:
            return False
        if (known is not None and known.version >= part.version) or not 0 <= part.part < part.parts <= PARTS_MAX:
            return False
        incoming = self._incoming.setdefault(part.id, {})
        if any(each.version > part.version for each in incoming.values()):
            return False
        for number in [number for number, each in incoming.items() if each.version < part.version]:
            del incoming[number]
        incoming[part.part] = part
        if len(incoming) < part.parts:
            return False
        addresses = tuple(address for number in range(part.parts) for address in incoming[number].addresses)
        neighbours = tuple(each for number in range(part.parts) for each in incoming[number].arp_entries)
        self._now.sets[part.id] = AddressSet(part.version, addresses, neighbours)
        del self._incoming[part.id]
        return True

    def _drop_absent(self, present: Present, version: int) -> bool:
        if version < self._listed_at:
            return False
        self._listed, self._listed_at = present, version
        ports, sets = set(present.ports), set(present.sets)
        gone_ports = [name for name, each in self._now.ports.items() if name not in ports and each.version <= version]
        gone_sets = [name for name, each in self._now.sets.items() if name not in sets and each.version <= version]
        for port in gone_ports:
            del self._now.ports[port]
        for gone in gone_sets:
            del self._now.sets[gone]
        for incomplete in [name for name in self._incoming if name not in sets]:
            del self._incoming[incomplete]
        return bool(gone_ports or gone_sets)

    async def until_has(self, ports: Iterable[PortId], clock: Clock, within_s: float) -> list[PortId]:
        """Those of which nothing was told in time."""
        ends = clock.monotonic() + within_s
        while missing := [port for port in ports if port not in self._now.ports]:
            if clock.monotonic() >= ends:
                return missing
            await clock.sleep(LOOK_EVERY_S)
        return []

    # ---- numbers -----------------------------------------------------------------------------------------------------

    def numbers(self, names: Iterable[str]) -> dict[str, int]:
        """One of its own for each of these names, the same ever after; those of other names are free again."""
        wanted = sorted(set(names))
        kept = {name: self._now.numbers[name] for name in wanted if name in self._now.numbers}
        taken, candidate = set(kept.values()), FIRST_NUMBER
        for name in wanted:
            if name in kept:
                continue
            while candidate in taken:
                candidate += 1
            if candidate > NUMBER_MAX:
                _log.error("%s has no number: %d are taken", name, len(taken))
                continue
            kept[name] = candidate
            taken.add(candidate)
        if kept != self._now.numbers:
            self._now.numbers = kept
            try:
                self.save()
            except OSError as full:
                _log.error("numbers of ports cannot be kept: %s", full)
        return kept


def _well_formed(descriptions: Sequence[DescribedT]) -> list[DescribedT]:
    """Whoever sent them: what they say becomes rules of the kernel. What was known before holds."""
    good = [each for each in descriptions if is_well_formed(each)]
    if len(good) < len(descriptions):
        _log.error("%d descriptions of ports are malformed, and are not taken", len(descriptions) - len(good))
    return good
