"""All subjects of messages.  `*` matches one token, `>` the rest, as in NATS; the transport in memory does the same."""

from functools import lru_cache

from moorage.model.ids import CellId, ConductorId

ROOT = "moorage"


@lru_cache(maxsize=65_536)
def token(name: str) -> str:
    """Encode a name as one token of a subject: host names have dots, and dots separate tokens."""
    if name.isalnum() and name.isascii():
        return name
    return "".join(
        letter
        if letter.isascii() and (letter.isalnum() or letter in "-_")
        else "".join(f"%{byte:02X}" for byte in letter.encode())
        for letter in name
    )


def _or_any(cell: CellId | None) -> str:
    return "*" if cell is None else token(cell)


def to_host(cell: CellId, host: str) -> str:
    """Return the subject of commands and all other messages to one host."""
    return f"{ROOT}.cell.{token(cell)}.host.{token(host)}"


def ask_host(cell: CellId, host: str, verb: str) -> str:
    """Return the subject of one kind of question to a host.  It names the verb, so that the broker decides who may ask what."""
    return f"{ROOT}.cell.{token(cell)}.ask.{token(host)}.{token(verb)}"


def questions_to(cell: CellId, host: str) -> str:
    """Return the pattern of all questions to a host."""
    return f"{ROOT}.cell.{token(cell)}.ask.{token(host)}.*"


def from_host(cell: CellId, host: str, kind: str) -> str:
    """Return the subject of a host's messages, which contains its name: the broker lets it publish only there (`sender_checks`)."""
    return f"{ROOT}.cell.{token(cell)}.from.{token(host)}.{kind}"


def result_from(cell: CellId, host: str, conductor: ConductorId) -> str:
    """Return the subject of a host's results for a conductor; the cell's conductor may subscribe too (`results_in_cell`)."""
    return from_host(cell, host, f"result.{token(conductor)}")


def results_for(conductor: ConductorId, cell: CellId | None = None) -> str:
    """Return the pattern of results for a conductor from the hosts of one cell; None: of all cells."""
    return f"{ROOT}.cell.{_or_any(cell)}.from.*.result.{token(conductor)}"


def results_in_cell(cell: CellId) -> str:
    return f"{ROOT}.cell.{token(cell)}.from.*.result.*"


HEARTBEAT, REPORT, RETURNED = "heartbeat", "report", "returned"
"""Kinds of messages that hosts send by themselves; with `RETURNED` (`AgentReturned`) a host asks which servers belong on it."""


def heartbeats(cell: CellId | None = None) -> str:
    """Return the pattern of heartbeats of one cell's hosts; None: of all hosts."""
    return f"{ROOT}.cell.{_or_any(cell)}.from.*.{HEARTBEAT}"


ALL_HEARTBEATS = heartbeats()


def hosts_of(cell: CellId, kind: str) -> str:
    """Return the pattern of all messages of one kind from a cell's hosts."""
    return f"{ROOT}.cell.{token(cell)}.from.*.{kind}"


def sender(subject: str) -> tuple[str, str] | None:
    """Return the cell and host that a subject names as its sender, each as one `token`; None: it names none."""
    parts = subject.split(".", 5)
    if len(parts) < 6 or parts[0] != ROOT or parts[1] != "cell" or parts[3] != "from":
        return None
    return parts[2], parts[4]


def to_conductor(conductor: ConductorId) -> str:
    """Return the subject of `OperationHint` for an operation's owner."""
    return f"{ROOT}.hint.conductor.{token(conductor)}"


def cell_hint(cell: CellId) -> str:
    """Return the subject of `ServerHint`, from a cell's conductor to the region's."""
    return f"{ROOT}.hint.cell.{token(cell)}"


def notification(topic: str, priority: str) -> str:
    """Return the subject of notifications, which are in oslo.messaging's envelope."""
    return f"{ROOT}.notification.{token(topic)}.{token(priority)}"


ALL_CELL_HINTS = f"{ROOT}.hint.cell.*"
EVENTS = f"{ROOT}.hint.event"
PICTURE = f"{ROOT}.hint.picture"


def family(pattern: str) -> str | None:
    """Return what subjects of the pattern have before their last token, if only that may be anything; None: other parts may be, too."""
    before, _, last = pattern.rpartition(".")
    return before if last == "*" and "*" not in before else None


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subscription to `pattern` receives messages of `subject`."""
    if pattern == subject:
        return True
    wanted, given = pattern.split("."), subject.split(".")
    for place, each in enumerate(wanted):
        if each == ">":
            return len(given) > place
        if place >= len(given) or each not in ("*", given[place]):
            return False
    return len(wanted) == len(given)
