"""Records of placement decisions: the input of each, a digest of its answer, and what became of the claim.

They are written to files by the process that decides (`placement/decisions`) and read again by `moorage schedule --replay`.
"""

import hashlib
import re
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from typing_extensions import override

from moorage.model.column_changes import ColumnChanges
from moorage.model.errors import Invalid
from moorage.model.ids import HostId, ProviderId
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice, Group

Purpose: TypeAlias = Literal["boot", "move", "unshelve", "attach"]
DIGEST_BYTES = 16
_ID = re.compile(r"([0-9a-f]{12})-([0-9]{1,9})-([0-9]{1,9})")
_DEFAULTS = {
    each.name: each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
    for each in msgspec.structs.fields(Ask)
}
_encode = msgspec.msgpack.Encoder().encode


class DecisionId(NamedTuple):
    """What `moorage explain` shows: the recorder (one life of a process), its file, and the place in the file."""

    recorder: str
    segment: int
    number: int

    @override
    def __str__(self) -> str:
        return f"{self.recorder}-{self.segment}-{self.number}"

    @classmethod
    def of(cls, text: str) -> "DecisionId":
        """Raises Invalid when it is none."""
        if (match := _ID.fullmatch(text)) is None:
            raise Invalid(f"{text!r} is no decision: `moorage explain SERVER` shows the decisions of a server")
        return cls(match[1], int(match[2]), int(match[3]))


class Subject(NamedTuple):
    """What a decision is for."""

    consumer: str
    operation: str
    attempt: int
    purpose: Purpose
    migration: str = ""
    """Of a move: the consumer that holds the source from the claim on."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A choice, as far as amounts go."""

    host: HostId
    segments: tuple[ProviderId | None, ...] = ()
    providers: dict[str, ProviderId] = {}

    @classmethod
    def of(cls, choice: Choice) -> "Place":
        return cls(choice.host, choice.segments, choice.providers)


class Members(msgspec.Struct, frozen=True, array_like=True):
    """The server group that was asked for."""

    hosts: dict[HostId, int]
    home: HostId | None

    @classmethod
    def of(cls, group: Group) -> "Members":
        return cls(dict(group.hosts), group.home)


class Header(msgspec.Struct, frozen=True, array_like=True, tag="header"):
    """The first record of a file."""

    recorder: str
    segment: int
    release: str
    multipliers: dict[str, float]
    """Of the weighers, as the process was configured."""
    lost: int = 0
    """Records that were not written before this file: the disk was full or too slow."""


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """One decision."""

    number: int
    at: float
    """Seconds since the epoch."""
    consumer: str
    operation: str
    attempt: int
    purpose: Purpose
    migration: str
    ask: msgspec.Raw
    changes: ColumnChanges
    """Of the columns, since the decision before; the first of a file has all of them."""
    digest: bytes
    """Of the answer."""
    place: Place | None
    """The best host, as far as amounts go; None: there was none."""
    group: Members | None = None
    pending: tuple[tuple[ProviderId, str, int], ...] = ()
    """What claims under way held, where the ask has groups."""

    def request(self) -> Ask:
        """What was asked for. Raises msgspec.MsgspecError for what this release does not read."""
        return msgspec.msgpack.decode(self.ask, type=Ask)


class ClaimTaken(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    """The claim was committed: at the decision's best host, or, where that was taken meanwhile, elsewhere."""

    at: float
    consumer: str
    place: Place


class ClaimReleased(msgspec.Struct, frozen=True, array_like=True, tag="released"):
    """A consumer gave back what it held, or all but its addresses."""

    at: float
    consumer: str
    addresses_stay: bool = False


class MoveReverted(msgspec.Struct, frozen=True, array_like=True, tag="reverted"):
    """What the migration held is the server's again."""

    at: float
    consumer: str
    migration: str


Event: TypeAlias = Decided | ClaimTaken | ClaimReleased | MoveReverted
Record: TypeAlias = Header | Event


def encoded_ask(ask: Ask) -> msgspec.Raw:
    """Only what is not as by default: a field that comes later has its default in what was written before."""
    given = {name: value for name, default in _DEFAULTS.items() if (value := getattr(ask, name)) != default}
    return msgspec.Raw(_encode(given))


def digest_of(verdict: Verdict) -> bytes:
    """Equal for equal answers: the hosts in their order, where each takes what, and why the others were refused."""
    ledger = verdict.ledger
    best: list[Any] = [(each.host, each.name, each.cell, each.segments, each.providers) for each in verdict.best]
    account = (ledger.considered, ledger.willing, ledger.counts, ledger.misses, ledger.others, ledger.left_out)
    more = (ledger.codes, ledger.coded, ledger.roll, ledger.weights)
    return hashlib.blake2b(_encode((best, account, more)), digest_size=DIGEST_BYTES).digest()
