"""What a decision answers: the best hosts, who was refused and why, and how a claim went.

Nothing here looks at the picture again: numbers and names are copied when the decision is made.
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
    """One host that was refused, with the numbers of that moment."""

    host: str
    filter: str
    why: str
    also: tuple[str, ...] = ()
    """What else would have to change there."""


class DecisionRecord(msgspec.Struct, frozen=True):
    """What is kept of a decision, with the claim's line: at most 16 KiB of JSON."""

    considered: int
    willing: int
    counts: dict[str, int]
    """Cause → how many hosts."""
    misses: tuple[Rejection, ...] = ()
    """The nearest misses: where the least would have to change, each reason counting one, an amount the part of it that is missing."""
    others: dict[str, list[str]] = {}
    """Only when there was no host at all: filter → names of the remaining hosts, as far as the size allows."""
    left_out: int = 0
    """Refused hosts that are only counted."""
    codes: str = ""
    """Where there was no host at all and too many to name them: one cause per host, packed; see `pack_codes`."""
    coded: int = 0
    """How many hosts, from the first in the order of their names on, have one."""
    roll: str = ""
    """The digest of all their names: who has other hosts by now cannot read the codes."""
    weights: dict[str, dict[str, float]] = {}
    """Of the first of the best hosts, best first: what each weigher gave it."""
    decision: str = ""
    """By which `moorage schedule --replay` finds it; empty: it is not kept."""


WILLING = 0
"""The code of a host that nothing refused; the others are places in `counts`, from 1 on."""


def pack_codes(codes: bytes, room: int) -> tuple[str, int]:
    """As many of the codes, one byte for each host, as fit into so many characters; and how many those are."""
    count = len(codes)
    while count > 0:
        packed = base64.b85encode(zlib.compress(codes[:count])).decode()
        if len(packed) <= room:
            return packed, count
        count = min(count - 1, int(count * room / len(packed)))
    return "", 0


def cause_of_host(ledger: DecisionRecord, roll: Sequence[str], digest: str, host: str) -> str | None:
    """Why a host was refused, from the ledger's names or codes. None: it does not say; the hosts may be others by now.

    `roll` are the names of all hosts, in order, and `digest` is theirs.
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
    """The answer of `rank`: the best hosts, best first, and the account of the others."""

    best: tuple[Choice, ...]
    ledger: DecisionRecord

    def counts(self) -> dict[str, int]:
        """Cause → number of hosts; no names, so the owner may see it."""
        return dict(self.ledger.counts)

    def explain(self) -> str:
        """For administrators: causes, counts, nearest misses by name."""
        head = "; ".join(f"{count} × {cause}" for cause, count in self.ledger.counts.items())
        misses = "; ".join(f"{miss.host}: {miss.why}" for miss in self.ledger.misses)
        return " — ".join(part for part in (head, misses) if part) or "there are no hosts"

    def fault(self) -> str:
        """For the owner's fault: Nova's first words, then counts per cause, within 255 characters."""
        return fault_message(self.ledger.counts)


def fault_message(counts: Mapping[str, int]) -> str:
    """`No valid host was found. ` and as many of the causes, most frequent first, as fit."""
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
    """The same ledger, with names and misses left out (and counted) until its JSON is within the limit."""
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


class Row(msgspec.Struct, frozen=True):
    """One inventory after the claim touched it (or found it short): absolute values, newer versions win."""

    provider: ProviderId
    resource: str
    amount: int
    used: int
    capacity: int
    version: int


class Claimed(msgspec.Struct, frozen=True):
    """What a consumer now holds."""

    consumer: str
    choice: Choice
    rows: tuple[Row, ...]
    group: tuple[str, HostId | None, HostId] | None = None
    """(group, host left, host joined), so that the picture can follow."""
    functions: dict[str, VirtualFunction] = {}
    """Port → the virtual function that was chosen for it."""

    @property
    def host(self) -> HostId:
        return self.choice.host


class Shortage(msgspec.Struct, frozen=True):
    """Somebody was first: the rows that are short, or the group that has no place there."""

    choice: Choice
    rows: tuple[Row, ...] = ()
    gone: tuple[tuple[ProviderId, str], ...] = ()
    """(provider, class) that exist no more, or whose min, max or step forbid the amount."""
    group: str | None = None
    group_home: HostId | None = None
    stale: tuple[ProviderId, ...] = ()
    """Providers that were changed since the decision looked at them, or are gone: the decision is to be made again."""

    def why(self) -> str:
        """One sentence with numbers, for the operator."""
        if self.stale:
            return f"{self.choice.name} was changed by an administrator or a report since it was chosen"
        parts = [f"{r.resource}: {r.amount} asked, {r.capacity - r.used} of {r.capacity} free" for r in self.rows]
        parts += [f"{resource} is not offered any more" for _, resource in self.gone]
        if self.group is not None:
            parts.append("the server group has no place here")
        return f"{self.choice.name} was taken meanwhile: " + "; ".join(parts)
