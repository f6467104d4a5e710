"""Every subject that messages travel under.  `*` stands for one word, `>` for the rest, as in NATS; the memory carrier does the same."""

from functools import lru_cache

from moorage.model.ids import CellId, ConductorId

ROOT = "moorage"


@lru_cache(maxsize=65_536)
def token(name: str) -> str:
    """A name as one word of a subject: host names have dots, and a dot divides subjects."""
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
    """Commands, and everything else said to one host."""
    return f"{ROOT}.cell.{token(cell)}.host.{token(host)}"


def from_host(cell: CellId, host: str, kind: str) -> str:
    """Everything that a host says goes out under its own name: the broker lets it publish there and nowhere else (`senders`)."""
    return f"{ROOT}.cell.{token(cell)}.from.{token(host)}.{kind}"


def result_from(cell: CellId, host: str, conductor: ConductorId) -> str:
    """A host answers the conductor that asked; its cell's conductor may listen too (`results_in_cell`), so one message does for both."""
    return from_host(cell, host, f"result.{token(conductor)}")


def results_for(conductor: ConductorId, cell: CellId | None = None) -> str:
    """From the hosts of one cell; None: of all."""
    return f"{ROOT}.cell.{_or_any(cell)}.from.*.result.{token(conductor)}"


def results_in_cell(cell: CellId) -> str:
    return f"{ROOT}.cell.{token(cell)}.from.*.result.*"


HEARTBEAT, REPORT, RETURNED = "heartbeat", "report", "returned"
"""Kinds of what hosts say unasked; with `RETURNED` (`AgentReturned`) one asks who belongs to it."""


def heartbeats(cell: CellId | None = None) -> str:
    """Of the hosts of one cell; None: of all."""
    return f"{ROOT}.cell.{_or_any(cell)}.from.*.{HEARTBEAT}"


ALL_HEARTBEATS = heartbeats()


def hosts_of(cell: CellId, kind: str) -> str:
    """What all hosts of a cell say of one kind."""
    return f"{ROOT}.cell.{token(cell)}.from.*.{kind}"


def sender(subject: str) -> tuple[str, str] | None:
    """Cell and host that a subject names as its sender, each as one `token`; None: it names nobody."""
    parts = subject.split(".", 5)
    if len(parts) < 6 or parts[0] != ROOT or parts[1] != "cell" or parts[3] != "from":
        return None
    return parts[2], parts[4]


def to_conductor(conductor: ConductorId) -> str:
    """`OperationHint` for its owner."""
    return f"{ROOT}.hint.conductor.{token(conductor)}"


def cell_hint(cell: CellId) -> str:
    """`ServerHint`: from a cell's conductor to the region's."""
    return f"{ROOT}.hint.cell.{token(cell)}"


def notification(topic: str, priority: str) -> str:
    """What is told to others, in oslo.messaging's envelope."""
    return f"{ROOT}.notification.{token(topic)}.{token(priority)}"


ALL_CELL_HINTS = f"{ROOT}.hint.cell.*"
EVENTS = f"{ROOT}.hint.event"
PICTURE = f"{ROOT}.hint.picture"


def matches(pattern: str, subject: str) -> bool:
    """Does a subscription to `pattern` hear `subject`?"""
    if pattern == subject:
        return True
    wanted, given = pattern.split("."), subject.split(".")
    for place, each in enumerate(wanted):
        if each == ">":
            return len(given) > place
        if place >= len(given) or each not in ("*", given[place]):
            return False
    return len(wanted) == len(given)
