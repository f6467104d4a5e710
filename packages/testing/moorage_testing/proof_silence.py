"""Proving a saga with answers that are lost: each command to a host is obeyed once without its answer, and the host is
silent for a while, or until the saga is over (RULES §24, §25).

Then the host is home, pays what it owes, and the whole world is compared, as in `saga_proof`.  Also where another executor
adopts the saga while the host is silent.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from typing_extensions import override

from moorage.model.ids import OperationId
from moorage.saga import Saga
from moorage_testing.case_run import CaseRun, ProofOutcome
from moorage_testing.fault_points import FaultTrigger
from moorage_testing.saga_proof import PROVED_OPERATION, ProofFailed

SILENT_FOR = (1, 6, None)
"""Calls to the silent host until it is heard again; None: it is silent until the saga has ended."""
COMMANDS_MAX = 60
LEFT = {
    "power/1": {
        "powers": "the power of a guest is observed: the action ends in Error, and the round `power_states` sees the rest"
    },
    "rescue/1": {"rescued": "the server is in ERROR, and a hard reboot brings its own disk"},
    "unrescue/1": {"rescued": "the server is in ERROR, and a hard reboot brings its own disk"},
}
"""What of an operation may be otherwise afterwards, and why."""


async def prove_unanswered(
    saga: Saga[Any, Any],
    asked: Struct,
    new_world: Callable[[], Awaitable[Any]],
    *,
    operation: OperationId = PROVED_OPERATION,
) -> int:
    """Lose each answer once. Returns how many cases there were. Raises ProofFailed when one leaves something behind."""

    async def act() -> CaseRun[Any]:
        return CaseRun(saga, operation, asked, await new_world(), (), repeat=False)

    plain = await act()
    empty, before = await _held(plain), _hosts(plain).commands
    if await plain.execute() != ProofOutcome():
        raise ProofFailed(f"{saga.name}: executed without a fault, it does not end well")
    whole, commands = await _held(plain), _hosts(plain).commands - before
    if not 0 <= commands <= COMMANDS_MAX:
        raise ProofFailed(f"{saga.name}: {commands} commands to hosts")
    cases = 0
    for number in range(1, commands + 1):
        for silent_for in SILENT_FOR:
            for adopted in (False, True):
                one = await act()
                hosts = _hosts(one)
                hosts.loses, hosts.silent_for = hosts.commands + number, silent_for
                label = f"{saga.name}: answer {number} of {commands} lost, silent for {silent_for}, adopted {adopted}"
                outcome = await (_killed_when_silent(one) if adopted else one.execute())
                await _judge(one, outcome, label, empty, whole)
                cases += 1
    return cases


def _hosts(one: CaseRun[Any]) -> Any:
    """The hosts of its world."""
    world: Any = one.world
    return world.hosts


async def _killed_when_silent(one: CaseRun[Any]) -> ProofOutcome:
    """The executor dies at the first point after the answer was lost; the next one executes the saga."""

    class Trigger(FaultTrigger):
        @override
        async def point(self, name: str, interruptible: bool = False) -> None:
            if _hosts(one).fell_silent and self.triggered_at is None:
                self.at, self.springs = len(self.seen), "kill"
            await super().point(name, interruptible)

    outcome = await one.execute(Trigger())
    if not outcome.killed:
        return outcome
    one.adopt()
    return await one.execute()


async def _judge(
    one: CaseRun[Any], outcome: ProofOutcome, label: str, empty: dict[str, Any], whole: dict[str, Any]
) -> None:
    if not _hosts(one).fell_silent:
        raise ProofFailed(f"{label}: no answer was lost")
    if outcome.stuck:  # it waits for the host, and is executed again until that is home
        _hosts(one).silent.clear()
        one.adopt()
        outcome = await one.execute()
    if outcome.killed or outcome.fenced or outcome.stuck:
        raise ProofFailed(f"{label}: it neither ended nor unwound: {outcome}")
    held, meant = await _held(one), whole if outcome.unwound is None else empty
    if differs := {name: (held.get(name), meant.get(name)) for name in {*held, *meant} if held[name] != meant[name]}:
        raise ProofFailed(f"{label}: it ended in {outcome}; holds, and should hold: {differs}")


async def _held(one: CaseRun[Any]) -> dict[str, Any]:
    """With the power of guests, which the proofs of single failures leave to the hosts' reports, and without what was
    said: of a guest whose host is silent nobody says that it was shut down.
    """
    held = await one.held()
    held = {**held, "powers": sorted(each.name for each in _hosts(one).guests.values())}
    return {name: value for name, value in held.items() if name not in {"said", *LEFT.get(one.saga.name, {})}}
