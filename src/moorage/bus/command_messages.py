"""Messages between conductors and hosts about commands: the order, its result, and that the result was taken."""

import msgspec

from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId

EMPTY = msgspec.Raw(b"{}")


class ResultKey(msgspec.Struct, frozen=True, array_like=True):
    """Names one result at one host."""

    server: ServerId
    turn: FencingToken
    step: str


class Command(msgspec.Struct, frozen=True, tag="command"):
    """A conductor tells a host to do one thing to one server."""

    server: ServerId
    turn: FencingToken
    step: str
    """The saga's step; equal turn and step mean the same command again."""
    verb: str
    operation: OperationId
    deadline: float
    """Seconds since 1970, for hosts of a release that does not know `left_s`: after this nobody waits for the answer."""
    reply_to: ConductorId
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY)
    taken: tuple[ResultKey, ...] = ()
    request_id: str = ""
    left_s: float | None = None
    """So many seconds after it was sent nobody waits for the answer any more, and the host need not begin.  A duration, because
    the clocks of two machines may differ; None: the sender's release knows `deadline` alone."""
    until_done: bool = False
    """Nobody gives up before it is done: a failure is answered and not kept, so that the same command is tried anew."""
    knows_senders: bool = False
    """The sender hears what hosts say under their names (`bus/sender_checks.py`); False: its release does not."""
    trace: str = ""  # what the command is part of, as a `traceparent`; empty: nobody traces it


class Result(msgspec.Struct, frozen=True, tag="result"):
    """A host tells what became of a command.  Kept at the host until it was taken."""

    host: str
    cell: CellId
    server: ServerId
    turn: FencingToken
    step: str
    ok: bool
    code: str = ""
    """The kind of problem, a stable word."""
    public: str = ""
    private: str = ""
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY)
    """The answer; of a failed `start_guest`, the ports that are left (`Plumbed`)."""
    operation: OperationId = OperationId("")

    @property
    def key(self) -> ResultKey:
        return ResultKey(self.server, self.turn, self.step)


class ResultTaken(msgspec.Struct, frozen=True, tag="result_taken"):
    """To a host: these results are in somebody's journal, and these servers are gone for ever; forget them."""

    results: tuple[ResultKey, ...] = ()
    gone: tuple[ServerId, ...] = ()
