"""Decisions that conductors recorded, made again: by their own weights, which gives the same answers, or by others'."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from moorage.model.decision_log import Decided, DecisionId, Event, Header, digest_of
from moorage.model.errors import Invalid, NotFound
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, World
from moorage.placement.decisions.recorded_life import RecordedFile
from moorage.placement.decisions.segment_file import file_of, files_in
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.shadow import Shadow
from moorage.scheduler.shadow_report import Collector, ShadowReport

DIFFERING_LISTED_MAX = 100

Advance = Callable[[int, int], None]
"""Files read, of how many."""


class ReplayedDecision(NamedTuple):
    """One decision, and the answer that it gets now."""

    header: Header
    decided: Decided
    ask: Ask
    world: World
    verdict: Verdict

    @property
    def same(self) -> bool:
        return digest_of(self.verdict) == self.decided.digest


class ReplayReport(msgspec.Struct, frozen=True):
    """All decisions of some directories, made again."""

    files: int
    decisions: int
    same: int
    differing: tuple[str, ...]
    """Ids; of more than a hundred the first."""
    lost: int
    """Records that were not written, because a disk was full or too slow."""
    problems: tuple[str, ...]
    """What could not be read."""


def profile_of(header: Header) -> Profile:
    """As the process that decided was configured."""
    return Profile().weighing(header.multipliers)


def replay_one(directories: Sequence[Path], text: str, profile: Profile | None = None) -> ReplayedDecision:
    """The decision of this id, made again. Raises Invalid, and NotFound when it is not kept or cannot be read any more."""
    decision = DecisionId.of(text)
    paths = [path for each in directories if (path := file_of(each, decision)).exists()]
    if not paths:
        raise NotFound(
            f"decision {text} is in none of {', '.join(map(str, directories))}: "
            "it is older than what is kept, or another conductor's (name its data directory with --decisions)"
        )
    recorded = RecordedFile(paths[0])
    for event in recorded:
        if isinstance(event, Decided) and event.number == decision.number:
            ask, world = _situation(recorded, event)
            chosen = profile or profile_of(recorded.header)
            return ReplayedDecision(recorded.header, event, ask, world, rank(ask, world, chosen))
    raise NotFound(f"decision {text} is not kept: {recorded.problem or f'{paths[0]} does not have it'}")


def replay_all(directories: Sequence[Path], advance: Advance) -> ReplayReport:
    """Every decision. Raises Invalid."""
    decisions = same = lost = 0
    differing: list[str] = []
    problems: list[str] = []
    paths = files_in(directories)
    for done, path in enumerate(paths):
        advance(done, len(paths))
        recorded = RecordedFile(path)
        profile: Profile | None = None
        for event in recorded:
            if not isinstance(event, Decided):
                continue
            if profile is None:
                profile = profile_of(recorded.header)
            decisions += 1
            ask, world = _situation(recorded, event)
            if digest_of(rank(ask, world, profile)) == event.digest:
                same += 1
            elif len(differing) < DIFFERING_LISTED_MAX:
                header = recorded.header
                differing.append(str(DecisionId(header.recorder, header.segment, event.number)))
        if recorded.reader.header is not None:
            lost += recorded.header.lost
        if recorded.problem:
            problems.append(recorded.problem)
    return ReplayReport(len(paths), decisions, same, tuple(differing), lost, tuple(problems))


class Moment(NamedTuple):
    """An event, and the file it is read from, which stands there until the next is asked for."""

    recorder: str
    recorded: RecordedFile
    event: Event


def shadow(
    directories: Sequence[Path], profile: Profile, since: float, until: float, advance: Advance
) -> tuple[ShadowReport, list[str]]:
    """What this profile would have made of the decisions between two moments; and what could not be read. Raises Invalid."""
    problems: list[str] = []
    lives = [
        (recorder, list(files))
        for recorder, files in groupby(files_in(directories), key=lambda path: path.name.partition("-")[0])
    ]
    total, done = sum(len(files) for _, files in lives), [0]
    decider, collector = Shadow(partial(rank, profile=profile)), Collector()

    def read() -> None:
        advance(done[0], total)
        done[0] += 1

    streams = [_moments(recorder, files, problems, read, decider.forget) for recorder, files in lives]
    waiting: list[Event] = []  # what came after the last decision changes no number of it
    for moment in heapq.merge(*streams, key=lambda each: each.event.at):
        event = moment.event
        if not since <= event.at <= until:
            continue
        if not isinstance(event, Decided):
            waiting.append(event)
            continue
        for each in waiting:
            decider.follow(each)
        waiting.clear()
        ask, world = _situation(moment.recorded, event)
        outcome = decider.decide(moment.recorder, event, ask, world)
        collector.add(outcome, ask, world, decider.world_of(moment.recorder))
    return collector.report(), problems


def _moments(
    recorder: str, files: Iterable[Path], problems: list[str], read: Callable[[], None], over: Callable[[str], None]
) -> Iterator[Moment]:
    """Of one life of a process, file after file."""
    for path in files:
        read()
        recorded = RecordedFile(path)
        for event in recorded:
            yield Moment(recorder, recorded, event)
        if recorded.problem:
            problems.append(recorded.problem)
    over(recorder)


def _situation(recorded: RecordedFile, event: Decided) -> tuple[Ask, World]:
    try:
        return recorded.situation(event)
    except ValueError as unknown:
        raise Invalid(f"a decision cannot be read by this release: {unknown}") from unknown
