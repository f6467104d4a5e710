"""Explains why a server is where it is, or nowhere: the decision records of its operations, from their journals (N2).

An administrator sees hosts and numbers. The owner sees causes and counts: no names of hosts, cells or providers, and
nothing about other projects.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from moorage.model.network import Port
from moorage.model.operation import Operation
from moorage.model.server import Readdressed
from moorage.model.verdict import DecisionRecord, cause_of_host
from moorage.operations.boot.boot import Claim
from moorage.operations.steps import segment_change
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.timeline import timeline
from moorage.saga import Line, decode_lines
from moorage.saga.journal import Cause, Failed, StepResult, Unwinding

CARDS_STEP, CLAIM_STEP = "read_ports", "claim_host"
BOUND_STEPS = ("activate_bindings", "bind_ports")
"""Steps of moves that may assign other addresses; their results are the ports after the step."""
REVERT, CONFIRM = "revert_resize", "confirm_resize"
WORDS = {"resize": "move"}
"""A clearer name for operations."""
CAUSE_PRIVATE_CHARACTERS_MAX = 2000

_claims = msgspec.json.Decoder(Claim)
_cards = msgspec.json.Decoder(Cards)
_ports = msgspec.json.Decoder(tuple[Port, ...])
_ledgers = msgspec.json.Decoder(DecisionRecord)


class About(NamedTuple):
    """A host in question, and the list of all hosts as it is now (`World.roll`)."""

    host: str
    roll: Sequence[str]
    digest: str


class View(NamedTuple):
    """What the explanation may show."""

    whole: bool
    about: About | None


def explained(operations: Sequence[Operation], *, whole: bool, about: About | None = None) -> dict[str, Any]:
    """Explain one server's operations, oldest first; `whole` is for administrators.

    `about`: each decision also says why this host was refused, as far as that is stored.
    """
    view = View(whole, about)
    shown = [_operation(each, view) for each in sorted(operations, key=lambda o: (o.created_at, o.seq))]
    return {"summary": _summary(shown), "operations": shown}


def _operation(operation: Operation, view: View) -> dict[str, Any]:
    lines = decode_lines(operation.journal)
    fields: dict[str, Any] = {
        "id": operation.id,
        "name": operation.name,
        "status": operation.status.value,
        "created_at": operation.created_at,
        "ended_at": operation.ended_at,
        "waiting": operation.waiting_named if view.whole else operation.waiting,
        "fault": operation.fault,
        "attempts": _attempts(lines, view),
        "steps": timeline(lines),
    }
    ending = next((line for line in reversed(lines) if isinstance(line, Unwinding)), None)
    if ending is not None:
        fields["ended"] = {"reason": ending.reason, **_cause(ending.cause, view)}
    return fields


def _attempts(lines: Sequence[Line], view: View) -> list[dict[str, Any]]:
    attempts: dict[int, dict[str, Any]] = {}
    cards: Cards | None = None
    claim: Claim | None = None
    for line in lines:
        if isinstance(line, StepResult) and line.step == CARDS_STEP and claim is None:
            cards = _cards.decode(line.value)
        elif isinstance(line, StepResult) and line.step == CLAIM_STEP:
            claim = _claims.decode(line.value)
            attempts[line.attempt] = _attempt(line.attempt, claim, view)
        elif isinstance(line, StepResult) and line.step in BOUND_STEPS and cards is not None and claim is not None:
            if claim.subnets:
                changes = segment_change.readdressed(cards, claim.subnets, _ports.decode(line.value))
                left = [_readdressed(each, view) for each in changes if each.old]
                attempts[line.attempt] |= {"readdressed": left} if left else {}
        elif isinstance(line, Failed):
            attempts.setdefault(line.cause.attempt, {"attempt": line.cause.attempt})["failed"] = _cause(
                line.cause, view
            )
        elif (
            isinstance(line, Unwinding)
            and line.reason == "failed"
            and line.cause.step != CLAIM_STEP
            and line.cause.attempt
        ):
            attempts.setdefault(line.cause.attempt, {"attempt": line.cause.attempt}).setdefault(
                "failed", _cause(line.cause, view)
            )
    return [attempts[key] for key in sorted(attempts)]


def _attempt(number: int, claim: Claim, view: View) -> dict[str, Any]:
    fields: dict[str, Any] = {"attempt": number, **_ledger(claim.ledger, view), "claims_lost": len(claim.lost)}
    if view.whole:
        fields |= {
            "host": claim.name,
            "node": claim.node,
            "cell": claim.cell,
            "availability_zone": claim.availability_zone,
            "lost": list(claim.lost),
            "providers": [
                {
                    "group": each.group,
                    "port": each.port or None,
                    "provider": each.provider,
                    "name": each.name,
                    "resources": each.resources,
                }
                for each in claim.given
            ],
        }
    return fields


def _readdressed(change: Readdressed, view: View) -> dict[str, Any]:
    """A port that left its segment: its old and new addresses."""
    fields: dict[str, Any] = {
        "port": change.port,
        "old": [each.address for each in change.old],
        "new": [each.address for each in change.new],
    }
    if view.whole:
        fields |= {"old_segment": change.old_segment, "new_segment": change.new_segment}
    return fields


def _ledger(ledger: DecisionRecord, view: View) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "considered": ledger.considered,
        "willing": ledger.willing,
        "refused": dict(ledger.counts),
    }
    if view.whole:
        fields["refused_hosts"] = [
            {"host": miss.host, "filter": miss.filter, "reason": miss.why, "also": list(miss.also)}
            for miss in ledger.misses
        ]
        fields["others"] = ledger.others
        fields["left_out"] = ledger.left_out
        fields["coded"] = ledger.coded
        fields["weights"] = ledger.weights
        if ledger.decision:
            fields["decision"] = ledger.decision
        if view.about is not None:
            fields["asked_about"] = {
                "host": view.about.host,
                "reason": cause_of_host(ledger, *view.about[1:], view.about.host),
            }
    return fields


def describe_decision(ledger: DecisionRecord, *, whole: bool) -> dict[str, Any]:
    """Explain one decision: `whole` is for administrators."""
    return _ledger(ledger, View(whole, None))


def _cause(cause: Cause, view: View) -> dict[str, Any]:
    fields: dict[str, Any] = {"step": cause.step, "code": cause.code, "message": cause.public}
    for piece in reversed(cause.private.splitlines()):
        ledger = _ledger_in(piece)
        if ledger is not None:
            fields |= _ledger(ledger, view)
            break
    else:
        if view.whole and cause.private:
            fields["details"] = cause.private[-CAUSE_PRIVATE_CHARACTERS_MAX:]
    return fields


def _ledger_in(piece: str) -> DecisionRecord | None:
    at = piece.find('{"considered"')
    if at < 0:
        return None
    try:
        return _ledgers.decode(piece[at:])
    except msgspec.MsgspecError:
        return None  # the journal has it truncated: the counts are in the message


def _summary(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """One sentence about the latest placement: the boot's, or that of a later move, unless the move was undone."""
    placed: list[Mapping[str, Any]] = []
    back = False
    for each in rows:
        done = each["status"] == "done"
        if each["name"] == "boot":
            placed, back = [each], False
        elif each["name"] == REVERT and done and len(placed) > 1:
            placed.pop()
            back = True
        elif each["name"] == CONFIRM and done:
            placed = placed[-1:]
        elif done and each["attempts"]:
            placed.append(each)
            back = False
    return _placement(placed[-1], back=back) if placed else None


def _placement(operation: Mapping[str, Any], *, back: bool) -> str:
    attempts, name = operation["attempts"], operation["name"]
    if operation["status"] == "done" and attempts:
        last = attempts[-1]
        where = f" on {last['host']}" if "host" in last else ""
        tries = f" after {len(attempts)} attempts" if len(attempts) > 1 else ""
        by = "" if name == "boot" else f" by its {WORDS.get(name, name)}"
        since = ", and there again since its move was reverted" if back else ""
        return f"placed{where}{by}{tries}: {last['willing']} of {last['considered']} hosts would have done{since}"
    if operation["fault"]:
        return str(operation["fault"])
    if operation["status"] == "open" and operation["waiting"]:
        return str(operation["waiting"])
    return f"the {name} is {operation['status']}"
