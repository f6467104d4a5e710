"""The result of a scheduling decision: the best hosts, why the others were rejected, and how a claim ended.

These values do not refer to the world: numbers and names are copied when the decision is made.
"""

import base64
import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import VirtualFunction
from moorage.model.world import Choice

LEDGER_BYTES_MAX = 16 * 1024
FAULT_CHARACTERS_MAX = 255
FAULT_START = "No valid host was found. "


class Rejection(msgspec.Struct, frozen=True):
    """One host that was rejected, with the numbers of that moment."""

    host: str
    filter: str
    why: str
    also: tuple[str, ...] = ()
    """The other reasons for the rejection."""


class DecisionRecord(msgspec.Struct, frozen=True):
    """The record of a decision, stored with the claim's record: at most 16 KiB of JSON."""

    considered: int
    willing: int
    counts: dict[str, int]
    """Cause → how many hosts."""
    misses: tuple[Rejection, ...] = ()
    """The nearest misses: the hosts that miss the least. Each reason counts one, an amount counts its missing part."""
    others: dict[str, list[str]] = {}
    """Only when there was no host at all: filter → names of the remaining hosts, as far as the size allows."""
    left_out: int = 0
    """Rejected hosts that are only counted."""
    codes: str = ""
    """Where there was no host at all and too many to name them: one cause per host, packed; see `pack_codes`."""
    coded: int = 0
    """How many hosts have a code, from the first in the order of names."""
    roll: str = ""
    """The digest of all hosts' names: with other hosts, the codes cannot be read."""
    weights: dict[str, dict[str, float]] = {}
    """Of the first of the best hosts, best first: what each weigher gave it."""
    decision: str = ""
    """By which `moorage schedule --replay` finds it; empty: it is not kept."""


WILLING = 0
"""The code of a host that passed; other codes are positions in `counts`, from 1 on."""


def pack_codes(codes: bytes, room: int) -> tuple[str, int]:
    """Pack codes, one byte for each host, into at most `room` characters. Returns the text, and how many codes it has."""
    count = len(codes)
    while count > 0:
        packed = base64.b85encode(zlib.compress(codes[:count])).decode()
        if len(packed) <= room:
            return packed, count
        count = min(count - 1, int(count * room / len(packed)))
    return "", 0


def cause_of_host(ledger: DecisionRecord, roll: Sequence[str], digest: str, host: str) -> str | None:
    """Return why a host was rejected, from the ledger's names or codes; None: it is not recorded, or the hosts are others by now.

    `roll`: the names of all hosts, in order; `digest`: the digest of these names.
    """
    for miss in ledger.misses:
        if miss.host == host:
            return "; ".join((miss.why, *miss.also))
    for judge, hosts in ledger.others.items():
        if host in hosts:
            return f"refused by {judge}"
    at = bisect_left(roll, host)
    if not ledger.codes or digest != ledger.roll or at >= min(len(roll), ledger.coded) or roll[at] != host:
        return None
    unpacker = zlib.decompressobj()
    code = unpacker.decompress(base64.b85decode(ledger.codes), at + 1)[at]
    return None if code == WILLING else list(ledger.counts)[code - 1]


class Verdict(msgspec.Struct, frozen=True):
    """The result of `rank`: the best hosts, best first, and the record of the others."""

    best: tuple[Choice, ...]
    ledger: DecisionRecord

    def counts(self) -> dict[str, int]:
        """Return cause → number of hosts; without names, so the owner may see it."""
        return dict(self.ledger.counts)

    def explain(self) -> str:
        """Return the text for administrators: causes, counts, and nearest misses by name."""
        head = "; ".join(f"{count} × {cause}" for cause, count in self.ledger.counts.items())
        misses = "; ".join(f"{miss.host}: {miss.why}" for miss in self.ledger.misses)
        return " — ".join(part for part in (head, misses) if part) or "there are no hosts"

    def fault(self) -> str:
        """Return the message of the owner's fault: Nova's first words, then counts for each cause, within 255 characters."""
        return fault_message(self.ledger.counts)


def fault_message(counts: Mapping[str, int]) -> str:
    """Return `No valid host was found. ` and as many causes as fit, the most frequent first."""
    if not counts:
        return FAULT_START + "There are no hosts."
    text = FAULT_START
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    for place, (cause, count) in enumerate(ordered):
        part = f"{'; ' if place else ''}{count} host{'s' if count != 1 else ''}: {cause}"
        if len(text) + len(part) + len("; …") > FAULT_CHARACTERS_MAX:
            return (text + ("; …" if place else part))[:FAULT_CHARACTERS_MAX]
        text += part
    return text


def fitted(ledger: DecisionRecord, limit: int = LEDGER_BYTES_MAX) -> DecisionRecord:
    """Return the ledger without some names and misses (which are counted), so that its JSON is within the limit."""
    encode = msgspec.json.encode
    others = {name: list(hosts) for name, hosts in ledger.others.items()}
    misses, left_out = ledger.misses, ledger.left_out
    while len(encode(now := msgspec.structs.replace(ledger, misses=misses, others=others, left_out=left_out))) > limit:
        if others:
            longest = max(others, key=lambda name: len(others[name]))
            kept = others[longest][: len(others[longest]) // 2]
            left_out += len(others[longest]) - len(kept)
            others = {**others, longest: kept} if kept else {k: v for k, v in others.items() if k != longest}
        elif misses:
            left_out += len(misses) - len(misses) // 2
            misses = misses[: len(misses) // 2]
        else:
            return now
    return now


class InventoryState(msgspec.Struct, frozen=True):
    """One inventory after a claim changed it, or found it short: absolute values; the newer version wins."""

    provider: ProviderId
    resource: str
    amount: int
    used: int
    capacity: int
    version: int


class Claimed(msgspec.Struct, frozen=True):
    """The result of a claim: what the consumer holds now."""

    consumer: str
    choice: Choice
    rows: tuple[InventoryState, ...]
    group: tuple[str, HostId | None, HostId] | None = None
    """(group, host left, host joined), for the provider cache."""
    functions: dict[str, VirtualFunction] = {}
    """Port → the virtual function that was chosen for it."""

    @property
    def host(self) -> HostId:
        return self.choice.host


class Shortage(msgspec.Struct, frozen=True):
    """A lost claim: the rows that are short, or the group that has no place there."""

    choice: Choice
    rows: tuple[InventoryState, ...] = ()
    gone: tuple[tuple[ProviderId, str], ...] = ()
    """(provider, class) that no longer exist, or whose min, max or step forbid the amount."""
    group: str | None = None
    group_home: HostId | None = None
    stale: tuple[ProviderId, ...] = ()
    """Providers that changed since the decision, or are gone: the decision must be made again."""

    def why(self) -> str:
        """Return one sentence with numbers, for the operator."""
        if self.stale:
            return f"{self.choice.name} was changed by an administrator or a report since it was chosen"
        parts = [f"{r.resource}: {r.amount} asked, {r.capacity - r.used} of {r.capacity} free" for r in self.rows]
        parts += [f"{resource} is not offered any more" for _, resource in self.gone]
        if self.group is not None:
            parts.append("the server group has no place here")
        return f"{self.choice.name} was taken meanwhile: " + "; ".join(parts)
