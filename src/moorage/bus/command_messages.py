"""Messages between conductors and hosts about commands: the command, its result, and the acknowledgement of the result."""

import msgspec

from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId
from moorage.model.image_ticket import ImageTicket

EMPTY = msgspec.Raw(b"{}")


class ResultKey(msgspec.Struct, frozen=True, array_like=True):
    """Names one result at one host."""

    server: ServerId
    turn: FencingToken
    step: str


class Command(msgspec.Struct, frozen=True, tag="command"):
    """A conductor orders a host to do one thing with one server."""

    server: ServerId
    turn: FencingToken
    step: str
    """The saga's step; a command with the same turn and step is a repeat."""
    verb: str
    operation: OperationId
    deadline: float
    """Seconds since 1970, for hosts of a release that does not know `left_s`: after this no caller waits for the answer."""
    reply_to: ConductorId
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY)
    taken: tuple[ResultKey, ...] = ()
    request_id: str = ""
    left_s: float | None = None
    """Seconds after which no caller waits for the answer any more, so the host need not begin.  A duration, because
    the clocks of two machines may differ; None: the sender's release only knows `deadline`."""
    until_done: bool = False
    """Whether the caller repeats the command until it works: then the host answers a failure and does not keep it, and tries again."""
    knows_senders: bool = False
    """Whether the sender receives messages under hosts' own names (`bus/sender_checks.py`); False: its release does not."""
    tickets: tuple[ImageTicket, ...] = ()
    """For the images' data that it needs; made anew each time it is sent.  Empty: it needs none, or its host has an account."""
    trace: str = ""  # what the command is part of, as a `traceparent`; empty: nobody traces it


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The result of a command, from a host.  The host keeps it until it is acknowledged."""

    host: str
    cell: CellId
    server: ServerId
    turn: FencingToken
    step: str
    ok: bool
    code: str = ""
    """The kind of problem, as a stable code."""
    public: str = ""
    private: str = ""
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY)
    """The answer; if `start_guest` failed, the remaining ports (`Plumbed`)."""
    operation: OperationId = OperationId("")

    @property
    def key(self) -> ResultKey:
        return ResultKey(self.server, self.turn, self.step)


class ResultTaken(msgspec.Struct, frozen=True, tag="result_taken"):
    """To a host: these results are recorded in a journal, and these servers are deleted for ever; drop them."""

    results: tuple[ResultKey, ...] = ()
    gone: tuple[ServerId, ...] = ()
