"""Every problem Moorage can have, by kind; retry, status and log level follow from the kind.

    Problem
    ├── Refusal                     the caller's to mend; never retried
    │   ├── Invalid                 400
    │   ├── Unauthenticated         401
    │   ├── Forbidden               403
    │   │   └── OverQuota           403, names the limit
    │   ├── NotFound                404
    │   ├── WrongMethod             405
    │   ├── NotAcceptable           406  (a microversion outside our range)
    │   ├── Conflict                409
    │   │   └── Stale               409  (a compare-and-swap lost)
    │   ├── Gone                    410
    │   ├── PreconditionFailed      412  (an If-Match lost)
    │   ├── TooLarge                413
    │   ├── WrongMediaType          415
    │   ├── TooManyRequests         429  (of one project, or from one address)
    │   └── NotBuilt                501  (nothing here can do it)
    ├── NoCapacity                  no host, address or bandwidth can serve the request
    ├── HostFailed                  one host could not do it, or is silent: another host may
    ├── Unavailable                 503, a service is out or too slow: a step tries again
    │   ├── CircuitOpen             503, it kept failing and is left alone for a moment: nothing was sent
    │   └── UnknownOutcome          a call that timed out: it may have worked, look before acting again
    │       └── BusOut              the message bus is out, so no host can be asked: waited for beyond a step's patience
    └── Internal                    500, ours to mend

`public` is a sentence that whoever asked may read and act on: it names no host, cell or provider, for owners of servers
read it in faults and explanations (`tests/pure/test_public_sentences.py`); `private` is for the operator's log and the
ledger only, and `named` is the public sentence with its names, for operators.  `code` is a stable word for machines and never changes once published.
Only `api/http_errors.py` knows status numbers of the public API; the numbers above are for orientation.
"""

from typing import Self

SENTENCE_MAX_CHARACTERS = 2_000
SENTENCE_END_CHARACTERS = 400
"""What is wrong with a value often stands behind it."""


def bounded(sentence: str) -> str:
    """The sentence; of a longer one its beginning and its end, because an error repeats what its caller sent."""
    if len(sentence) <= SENTENCE_MAX_CHARACTERS:
        return sentence
    head, tail = sentence[: SENTENCE_MAX_CHARACTERS - SENTENCE_END_CHARACTERS], sentence[-SENTENCE_END_CHARACTERS:]
    return f"{head} … ({len(sentence) - SENTENCE_MAX_CHARACTERS} characters more) … {tail}"


class Problem(Exception):
    """The root. `str(problem)` is the public sentence."""

    code = "problem"
    without: tuple[str, ...] = ()
    """Segments that had nothing left to give, or a cell that is out: the host is not to blame, and the next attempt goes without these."""

    final = False
    """No other host would fare better: the saga turns."""

    named = ""
    """The public sentence as operators read it, with the names that others are not told; empty: it is the same."""

    def __init__(self, public: str, *, private: str = "", code: str | None = None) -> None:
        self.public = bounded(public)
        super().__init__(self.public)
        self.private = private
        if code is not None:
            self.code = code

    def naming(self, named: str) -> Self:
        """Itself, with what operators read."""
        self.named = named
        return self

    def unnamed(self, public: str) -> Self:
        """Itself, in words without names; what it said until now is for operators."""
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
    """`code` says how: the agent's own word (`guest_failed`, `turn_is_past` …), or `host_silent`: no heartbeat for too long."""

    code = "host_failed"

    def __init__(self, public: str, *, private: str = "", code: str | None = None, left: bytes = b"") -> None:
        super().__init__(public, private=private, code=code)
        self.left = left
        """JSON: what the host left for the next one to take over, its ports (S0.5)."""


class Unavailable(Problem):
    code = "unavailable"
    retry_after_s = 0.0
    """How long the service asked us to wait before we ask again; 0: it did not say."""
    excused = False
    """No other way is left than what is out (the message bus, the cell that has the record): the time counts against no step's patience."""


class CircuitOpen(Unavailable):
    """Not asked, because it keeps failing (N19): tried again like any outage, at the time it says."""

    code = "circuit_open"

    def __init__(self, public: str, *, private: str = "", code: str | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(public, private=private, code=code)
        self.retry_after_s = retry_after_s


class UnknownOutcome(Unavailable):
    code = "unknown_outcome"


class BusOut(UnknownOutcome):
    """Says nothing about any host. What was sent before the bus was known to be out may have arrived."""

    code = "bus_out"
    excused = True


class Internal(Problem):
    code = "internal"
