"""`moorage schedule --replay` and `--weights`: recorded decisions for people, as tables, JSON and a picture."""

import argparse
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from moorage import __version__
from moorage.cli.cloud import table
from moorage.cli.progress import Progress
from moorage.main.config import Config, read_config
from moorage.main.decision_files import directories_of
from moorage.main.replay import ReplayedDecision, ReplayReport, replay_all, replay_one, shadow
from moorage.main.shadow_plot import svg_of
from moorage.model.decision_log import DecisionId
from moorage.model.errors import Invalid
from moorage.model.ids import ProviderId
from moorage.model.verdict import Verdict
from moorage.model.world import Choice
from moorage.model.world_snapshot import WorldSnapshot, photo_of
from moorage.scheduler.profile import Profile
from moorage.scheduler.shadow_report import ShadowReport

ALL = "all"
SEGMENTS_LISTED = 20


def add_options(options: argparse.ArgumentParser) -> None:
    """Those of recorded decisions."""
    options.add_argument(
        "--replay", metavar="ID", help="make this decision again (`moorage explain SERVER` shows ids); `all`: every one that is kept"
    )  # fmt: skip
    options.add_argument(
        "--weights", type=Path, metavar="FILE", help="decide by the [scheduler] of this TOML file instead, and say what would have differed"
    )  # fmt: skip
    options.add_argument(
        "--decisions", type=Path, action="append", default=[], metavar="DIR",
        help="a conductor's data directory, or a copy of its `decisions`; may be given for each (default: --data-dir)",
    )  # fmt: skip
    options.add_argument(
        "--since", type=_moment, default=0.0, metavar="TIME", help="with --weights: from then on (ISO 8601, UTC)"
    )
    options.add_argument(
        "--until", type=_moment, default=float("inf"), metavar="TIME", help="with --weights: up to then"
    )
    options.add_argument("--plot", type=Path, metavar="SVG", help="with --weights: draw it into this file")
    options.add_argument("--json", action="store_true", help="with --replay or --weights: print JSON")


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write it as 2026-11-27T08:00") from wrong
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def replay_recorded(arguments: argparse.Namespace, config: Config) -> int:
    """0; 1 when an answer is not the one that was given. Raises Invalid and NotFound."""
    directories = directories_of(config, arguments.decisions)
    other: Profile | None = None
    if arguments.weights is not None:
        other = Profile().weighing(read_config(arguments.weights).scheduler.multipliers)
    if arguments.replay in {None, ALL} and other is not None:
        return _shadow(arguments, directories, other)
    if arguments.plot is not None:
        raise Invalid("--plot draws what other weights make of many decisions: say --weights FILE, without an id")
    if arguments.replay == ALL:
        return _replay_all(arguments, directories)
    decision = str(arguments.replay)
    replayed = replay_one(directories, decision)
    again = None if other is None else replay_one(directories, decision, other)
    photo = photo_of(replayed.world)
    if arguments.export is not None:
        arguments.export.write_bytes(written_pretty(photo))
        arguments.ask.write_bytes(written_pretty(replayed.ask))
    if arguments.json:
        print(json.dumps(_decision_json(replayed, again), indent=2))
    else:
        print("\n".join(_decision_lines(replayed, again, photo, str(arguments.weights))))
    return 0 if replayed.same else 1


# ------------------------------------------------------------------------------------------------- one decision


def _decision_lines(
    replayed: ReplayedDecision, again: ReplayedDecision | None, photo: WorldSnapshot, file: str
) -> list[str]:
    decided = replayed.decided
    lines = [
        f"decision {_id(replayed)}, {decided.purpose} of {decided.consumer} at {_time(decided.at)}",
        f"operation {decided.operation}, attempt {decided.attempt}",
        "the same answer as then" if replayed.same else _differs(replayed),
        *describe(replayed.verdict, photo),
    ]
    return lines if again is None else [*lines, "", f"with {file}:", *describe(again.verdict, photo)]


def _differs(replayed: ReplayedDecision) -> str:
    place, slots = replayed.decided.place, replayed.world.slots
    then = (
        "no host" if place is None else replayed.world.names[slots[place.host]] if place.host in slots else place.host
    )
    by = (
        ""
        if replayed.header.release == __version__
        else f" (decided by release {replayed.header.release}, this is {__version__})"
    )
    return f"ANOTHER ANSWER than then, which was {then}{by}"


def _id(replayed: ReplayedDecision) -> str:
    return str(DecisionId(replayed.header.recorder, replayed.header.segment, replayed.decided.number))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _decision_json(replayed: ReplayedDecision, again: ReplayedDecision | None) -> dict[str, Any]:
    decided = replayed.decided
    shown: dict[str, Any] = {
        "decision": _id(replayed),
        "at": _time(decided.at),
        "consumer": decided.consumer,
        "operation": decided.operation,
        "attempt": decided.attempt,
        "purpose": decided.purpose,
        "release": replayed.header.release,
        "multipliers": replayed.header.multipliers,
        "same": replayed.same,
        "ask": msgspec.to_builtins(replayed.ask),
        "verdict": msgspec.to_builtins(replayed.verdict),
    }
    return shown if again is None else {**shown, "with_other_weights": msgspec.to_builtins(again.verdict)}


def describe(verdict: Verdict, photo: WorldSnapshot) -> list[str]:
    """The verdict for people: who is best, in order, and why the others were refused."""
    names = {each.id: each.name for each in photo.segments}
    devices = {each.id: each.name for host in photo.hosts for each in host.devices}
    lines = [f"{verdict.ledger.willing} of {verdict.ledger.considered} hosts would do"]
    for place, choice in enumerate(verdict.best, start=1):
        segments = ", ".join(names[each] for each in choice.segments if each is not None)
        lines.append(
            f"  {place:3}. {choice.name} ({choice.cell})"
            + (f", addresses from {segments}" if segments else "")
            + (f", {_given(choice, devices)}" if choice.providers else "")
        )
    for host, weights in verdict.ledger.weights.items():
        lines.append(f"  {host}: " + ", ".join(f"{name} {points:g}" for name, points in weights.items()))
    if verdict.ledger.counts:
        lines.append("refused: " + verdict.explain())
    return lines


def _given(choice: Choice, devices: dict[ProviderId, str]) -> str:
    """Each group with the provider that serves it; the host itself has no name among the devices."""
    return ", ".join(f"{group} of {devices.get(each, choice.name)}" for group, each in choice.providers.items())


def written_pretty(struct: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(struct), indent=2) + b"\n"


# -------------------------------------------------------------------------------------------------- many of them


def _replay_all(arguments: argparse.Namespace, directories: list[Path]) -> int:
    bar = Progress("files")
    report = replay_all(directories, bar.update)
    bar.close()
    print(json.dumps(msgspec.to_builtins(report), indent=2) if arguments.json else "\n".join(_replay_lines(report)))
    return 0 if report.same == report.decisions else 1


def _replay_lines(report: ReplayReport) -> list[str]:
    lines = [f"{report.same:,} of {report.decisions:,} decisions have the same answer ({report.files} files)"]
    lines += [f"  another answer: {each}" for each in report.differing]
    lines += [f"{report.lost} records were not written: a disk was full or too slow"] if report.lost else []
    return lines + [f"passed over: {each}" for each in report.problems]


def _shadow(arguments: argparse.Namespace, directories: list[Path], profile: Profile) -> int:
    bar = Progress("files")
    report, problems = shadow(directories, profile, arguments.since, arguments.until, bar.update)
    bar.close()
    if not report.decisions:
        unread = f"; passed over: {problems[0]}" if problems else ""
        raise Invalid(f"no decision was recorded in that time: see --decisions, --since and --until{unread}")
    if arguments.plot is not None:
        arguments.plot.write_text(svg_of(report, arguments.weights.name))
    if arguments.json:
        print(json.dumps({**msgspec.to_builtins(report), "problems": problems}, indent=2))
    else:
        print("\n".join(_shadow_lines(report, arguments.weights.name)))
        for each in problems:
            print(f"passed over: {each}", file=sys.stderr)
    return 0


@dataclass(frozen=True)
class _Row:
    """One number, then and in the shadow."""

    title: str
    then: float
    shadow: float

    def cells(self) -> list[str]:
        return [self.title, f"{self.then:g}", f"{self.shadow:g}", f"{self.shadow - self.then:+g}"]


def _shadow_lines(report: ShadowReport, file: str) -> list[str]:
    rows = [
        _Row("servers placed", *report.placed),
        _Row("hosts that were chosen", *report.hosts_used),
        _Row("most on one host", *report.most_on_one),
        _Row("spread of memory (%)", *(round(100 * each, 2) for each in report.spread)),
    ]
    heads = ["as decided", f"with {file}", "difference"]
    lines = [
        f"{report.decisions:,} decisions, {report.placements:,} placements: {report.elsewhere:,} elsewhere, "
        f"{report.gained:,} placed that had no host, {report.missed:,} without a host that had one",
        "",
        table([each.cells() for each in rows], ["", *heads]),
    ]
    if report.segments:
        fewest = sorted(report.segments, key=lambda each: min(each.left) / max(1, each.total))
        left = [
            [
                each.name,
                str(each.total),
                *map(str, each.left),
                f"{each.left[1] - each.left[0]:+}",
                *map(str, each.least),
            ]
            for each in fewest[:SEGMENTS_LISTED]
        ]
        least = ["fewest as decided", f"fewest with {file}"]
        lines += ["", "free addresses", table(left, ["segment", "of", *heads, *least])]
    if (more := len(report.segments) - SEGMENTS_LISTED) > 0:
        lines.append(f"and {more} more segments (--json has all)")
    return lines
