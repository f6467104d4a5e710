"""Faults of real processes of a trial set: how each begins, and how it is ended."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.main.local_cluster.cluster import TrialSet

START_AGAIN_S = 0.5
START_PATIENCE_S = 150.0


@dataclass(frozen=True)
class ProcessFault:
    """One fault of a round: `kind` on `target` after `after_s`, ended after `for_s`."""

    kind: str
    """`kill` (-9), `freeze` (SIGSTOP), or `evacuate`: an agent that is killed, and its host reported as off."""
    target: str
    after_s: float
    for_s: float


OUTAGES = (
    ProcessFault("kill", "api-1", 1.0, 2.0),
    ProcessFault("kill", "conductor-1", 1.0, 2.0),
    ProcessFault("freeze", "conductor-1", 1.0, 20.0),
    ProcessFault("kill", "agent-host1", 1.0, 2.0),
    ProcessFault("freeze", "agent-host1", 1.0, 60.0),
    ProcessFault("kill", "postgres", 1.0, 0.0),
    ProcessFault("freeze", "postgres", 1.0, 45.0),
    ProcessFault("kill", "nats", 1.0, 45.0),
    ProcessFault("freeze", "nats", 1.0, 45.0),
)
"""What `fault_rounds --outages` measures, one after the other."""


def role(target: str) -> str:
    """`conductor-1` → `conductor`."""
    return target.partition("-")[0]


def ways(trial: TrialSet, fault: ProcessFault) -> tuple[Callable[[], None], Callable[[], None]]:
    """How this fault begins and ends."""
    target = fault.target
    assert trial.postgres is not None
    assert trial.nats is not None
    if fault.kind == "freeze":
        pids = _pids(trial, target)
        return (lambda: _send(pids, signal.SIGSTOP)), (lambda: _send(pids, signal.SIGCONT))
    match target:
        case "postgres":
            return (lambda: None), trial.postgres.restart
        case "nats":
            return trial.nats.stop, trial.nats.start
        case _:
            return (lambda: trial.kill(target)), (lambda: _start_again(trial, target))


def _start_again(trial: TrialSet, target: str) -> None:
    """As a supervisor does: a process that finds its database out ends with a sentence, and is started once more."""
    deadline, words = time.monotonic() + START_PATIENCE_S, trial.arguments_of(target)
    while True:
        try:
            trial.run(target, *words)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(START_AGAIN_S)
        else:
            return


def _pids(trial: TrialSet, target: str) -> list[int]:
    assert trial.postgres is not None
    assert trial.nats is not None
    if target == "postgres":
        return [trial.postgres.process_id, *_children(trial.postgres.process_id)]
    return [trial.nats.process_id if target == "nats" else trial.processes[target].pid]


def _send(pids: Sequence[int], sign: signal.Signals) -> None:
    """A process that has ended meanwhile needs no signal."""
    for pid in pids:
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            continue


def _children(pid: int) -> list[int]:
    """The processes that this one started, from /proc."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in listed]
