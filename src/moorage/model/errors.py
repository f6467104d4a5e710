"""All errors of Moorage, by kind; retry, status and log level follow from the kind.

    Problem
    ├── Refusal                     the caller must correct the request; never retried
    │   ├── Invalid                 400
    │   ├── Unauthenticated         401
    │   ├── Forbidden               403
    │   │   └── OverQuota           403, names the limit
    │   ├── NotFound                404
    │   ├── WrongMethod             405
    │   ├── NotAcceptable           406  (a microversion outside our range)
    │   ├── Conflict                409
    │   │   ├── Stale               409  (a compare-and-swap lost)
    │   │   │   └── Overtaken       409  (a later operation or executor has written)
    │   │   └── Doubtful            409  (the stores contradict each other about a server: a person decides)
    │   ├── Gone                    410
    │   ├── PreconditionFailed      412  (an If-Match lost)
    │   ├── TooLarge                413
    │   ├── WrongMediaType          415
    │   ├── TooManyRequests         429  (of one project, or from one address)
    │   └── NotBuilt                501  (nothing here can do it)
    ├── NoCapacity                  no host, address or bandwidth can serve the request
    ├── HostFailed                  one host could not do it, or was silent before it was asked: another host may
    ├── Unavailable                 503, a service is out or too slow: a step tries again
    │   ├── CircuitOpen             503, the service kept failing and is not called for a moment: nothing was sent
    │   └── UnknownOutcome          a call that timed out: it may have worked, so read the state before acting again
    │       ├── BusOut              the message bus is out, so no host can be reached: a step waits for it beyond its own patience
    │       └── HostUnanswered      a host was sent a command, or may have been, and fell silent: it may have done it
    └── Internal                    500, an error in Moorage

`public` is a sentence that the caller may read and act on.  It names no host, cell or provider, because owners of servers read it in
faults and explanations (`tests/pure/test_public_messages.py`).  `private` is only for the operator's log and the decision record.
`named` is the public sentence with those names, for operators.  `code` is a stable word for machines and never changes once published.
`api/http_errors.py` decides the status numbers of the public API; the numbers above are for orientation.
"""

from typing import Self

SENTENCE_MAX_CHARACTERS = 2_000
SENTENCE_END_CHARACTERS = 400
"""How much of the end of a long sentence is kept: it often says what is wrong with the value before it."""


def bounded(sentence: str) -> str:
    """Return the sentence, of a long one its beginning and its end: an error may repeat what the caller sent."""
    if len(sentence) <= SENTENCE_MAX_CHARACTERS:
        return sentence
    head, tail = sentence[: SENTENCE_MAX_CHARACTERS - SENTENCE_END_CHARACTERS], sentence[-SENTENCE_END_CHARACTERS:]
    return f"{head} … ({len(sentence) - SENTENCE_MAX_CHARACTERS} characters more) … {tail}"


class Problem(Exception):
    """The base of all errors. `str(problem)` is the public sentence."""

    code = "problem"
    without: tuple[str, ...] = ()
    """Segments without free addresses, or a cell that is out: the host did not cause the failure, and the next attempt excludes these."""

    final = False
    """Whether other hosts would fail too: then the saga unwinds at once."""

    named = ""
    """The public sentence for operators, with the names that owners do not see; empty: it is the same."""

    def __init__(self, public: str, *, private: str = "", code: str | None = None) -> None:
        self.public = bounded(public)
        super().__init__(self.public)
        self.private = private
        if code is not None:
            self.code = code

    def naming(self, named: str) -> Self:
        """Set the sentence for operators, and return the problem itself."""
        self.named = named
        return self

    def unnamed(self, public: str) -> Self:
        """Replace the public sentence by one without names, keep the old one for operators, and return the problem itself."""
        self.named = self.named or self.public
        self.public, self.args = public, (public,)
        return self


class Refusal(Problem):
    code = "refused"


class Invalid(Refusal):
    code = "invalid"


class Unauthenticated(Refusal):
    code = "unauthenticated"


class Forbidden(Refusal):
    code = "forbidden"


class OverQuota(Forbidden):
    code = "over_quota"


class NotFound(Refusal):
    code = "not_found"


class WrongMethod(Refusal):
    code = "wrong_method"


class NotAcceptable(Refusal):
    code = "not_acceptable"


class Conflict(Refusal):
    code = "conflict"


class Stale(Conflict):
    code = "stale"


class Overtaken(Stale):
    """A later operation, or a later executor of the same one, has written: the writer's journal is behind."""


class Doubtful(Conflict):
    """The stores contradict each other about a server (RULES §26): a saga neither goes on nor unwinds until they agree."""

    code = "doubtful"


class Gone(Refusal):
    code = "gone"


class PreconditionFailed(Refusal):
    code = "precondition_failed"


class TooLarge(Refusal):
    code = "too_large"


class WrongMediaType(Refusal):
    code = "wrong_media_type"


class TooManyRequests(Refusal):
    code = "too_many_requests"

    def __init__(self, public: str, *, private: str = "", code: str | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(public, private=private, code=code)
        self.retry_after_s = retry_after_s


class NotBuilt(Refusal):
    code = "not_built"


class NoCapacity(Problem):
    code = "no_capacity"


class HostFailed(Problem):
    """A host failed. `code` says how: the agent's own code (`guest_failed`, `turn_is_past` …), or `host_silent`: no heartbeat
    for too long, and nothing was sent.
    """

    code = "host_failed"

    def __init__(self, public: str, *, private: str = "", code: str | None = None, left: bytes = b"") -> None:
        super().__init__(public, private=private, code=code)
        self.left = left
        """JSON: the ports that the host left and that the next host takes over (S0.5)."""


class Unavailable(Problem):
    code = "unavailable"
    retry_after_s = 0.0
    """How long the service asked us to wait before the next call; 0: it did not say."""
    excused = False
    """Whether the operation can only wait for what is out (the message bus, or the record's cell): this time does not count as patience."""


class CircuitOpen(Unavailable):
    """The service was not called, because it keeps failing (N19): retried like any outage, at the time that it names."""

    code = "circuit_open"

    def __init__(self, public: str, *, private: str = "", code: str | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(public, private=private, code=code)
        self.retry_after_s = retry_after_s


class UnknownOutcome(Unavailable):
    code = "unknown_outcome"


class BusOut(UnknownOutcome):
    """The bus is out; this says nothing about any host. Messages that were sent before this was known may have arrived."""

    code = "bus_out"
    excused = True


class HostUnanswered(UnknownOutcome):
    """The host was sent the command, or may have been by an earlier executor, and is silent: it may have done it, and may still (RULES §24).

    Before a point of no return nobody waits for it: the step fails, and what the host may have done is undone there or owed
    to it.  At a point of no return the step waits and asks again, beyond its own patience.
    """

    code = "host_unanswered"
    excused = True


class Internal(Problem):
    code = "internal"
