"""Recorded decisions are replayed with the same answer, whatever happened to the fleet between them (N11)."""

import asyncio
import os
import random
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.helpers.changing_fleet import ChangingFleet

from moorage.main.replay import replay_all, replay_one
from moorage.model.decision_log import Decided, DecisionId, Place, Subject, digest_of, encoded_ask
from moorage.model.errors import Invalid, NotFound
from moorage.model.verdict import Verdict
from moorage.model.world import Ask
from moorage.placement.decisions import recorder as recorder_module
from moorage.placement.decisions.recorded_life import RecordedFile
from moorage.placement.decisions.recorder import DecisionRecorder, RecorderLimits
from moorage.placement.decisions.segment_file import files_in
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage_testing.waiting import PATIENCE_S, until

MULTIPLIERS = {"ram": -2.0, "cpu": 1.5}
PROFILE = Profile().weighing(MULTIPLIERS)
PLENTY = RecorderLimits(64 << 20, 86_400.0)
FLEETS = 10


@pytest.fixture(autouse=True)
def records_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for others to come with them."""
    monkeypatch.setattr(recorder_module, "GATHERED_FOR_S", 0.0)


def ignored(done: int, total: int) -> None:
    """Nobody looks at the progress."""


def a_recorder(directory: Path, limits: RecorderLimits = PLENTY) -> DecisionRecorder:
    return DecisionRecorder(directory, multipliers=MULTIPLIERS, limits=limits)


def decided(recorder: DecisionRecorder, fleet: ChangingFleet, number: int) -> tuple[str, Ask, Verdict]:
    """One decision on the fleet as it is, and its claim."""
    ask = fleet.ask()
    verdict = rank(ask, fleet.picture.world(), PROFILE)
    found = recorder.decided(fleet.picture, ask, verdict, Subject(f"server{number}", f"operation{number}", 1, "boot"))
    if verdict.best:
        choice = verdict.best[fleet.random.randrange(len(verdict.best))]
        fleet.hold(ask, choice, +1)
        fleet.hold(ask, choice, -1)
        fleet.take(ask, choice)
        recorder.taken(f"server{number}", Place.of(choice))
    if fleet.random.random() < 0.2:
        recorder.released(f"server{fleet.random.randrange(number + 1)}")
    return found, ask, verdict


def record(
    directory: Path, count: int, seed: int = 1, limits: RecorderLimits = PLENTY
) -> dict[str, tuple[Ask, Verdict]]:
    """So many decisions of a process, and the answers that they had."""
    recorder, fleet = a_recorder(directory, limits), ChangingFleet(seed)
    found: dict[str, tuple[Ask, Verdict]] = {}
    for number in range(count):
        for _ in range(fleet.random.randrange(3)):
            fleet.change()
        id, ask, verdict = decided(recorder, fleet, number)
        found[id] = ask, verdict
    asyncio.run(recorder.close())
    assert len(found) == count
    return found


def all_replayed(directory: Path, count: int) -> None:
    for fleet in range(FLEETS):
        record(directory, count // FLEETS, seed=fleet)
    report = replay_all([directory], ignored)
    assert (report.decisions, report.same, report.differing, report.lost) == (count, count, (), 0)
    assert not report.problems


def test_a_thousand_of_a_thousand(tmp_path: Path) -> None:
    all_replayed(tmp_path, 1_000)


@pytest.mark.slow
def test_ten_thousand_of_ten_thousand(tmp_path: Path) -> None:
    all_replayed(tmp_path, 10_000)


def test_a_replayed_decision_is_identical_and_found_by_id(tmp_path: Path) -> None:
    found = record(tmp_path, 60, seed=4)
    some = random.Random(1).sample(sorted(found), 12)
    for id in some:
        ask, verdict = found[id]
        again = replay_one([tmp_path / "absent", tmp_path], id)
        assert (again.ask, again.verdict, again.same) == (ask, verdict, True)
    assert any(verdict.best for _, verdict in found.values())
    assert any(not verdict.best for _, verdict in found.values())


def test_a_changed_answer_is_detected(tmp_path: Path) -> None:
    """As a release would give whose filters judge otherwise: here the recorded weights are not those that were decided by."""
    recorder, fleet = DecisionRecorder(tmp_path, multipliers={}, limits=PLENTY), ChangingFleet(3)
    for number in range(40):
        decided(recorder, fleet, number)
    asyncio.run(recorder.close())
    report = replay_all([tmp_path], ignored)
    assert report.decisions == 40
    assert 0 < len(report.differing) == 40 - report.same
    assert not replay_one([tmp_path], report.differing[0]).same


def test_a_column_changed_without_notice_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache counts its changes, so that not all columns are compared each time; one that it forgot is not forgotten for ever."""
    monkeypatch.setattr(recorder_module, "COMPARED_AGAIN_EVERY", 5)
    recorder, fleet = a_recorder(tmp_path), ChangingFleet(2)
    decided(recorder, fleet, 0)
    fleet.picture.columns.masks["enabled"][: fleet.picture.columns.size] = False
    for number in range(1, 12):
        decided(recorder, fleet, number)
    asyncio.run(recorder.close())
    report = replay_all([tmp_path], ignored)
    assert report.same >= 12 - 5


def test_a_killed_processs_file_is_read_to_its_end(tmp_path: Path) -> None:
    found = record(tmp_path, 30)
    [path] = files_in([tmp_path])
    data = path.read_bytes()
    for end in range(0, len(data), 977):
        path.write_bytes(data[:end])
        report = replay_all([tmp_path], ignored)
        assert report.same == report.decisions <= len(found)
        assert report.problems or end == len(data)
    path.write_bytes(data[:-1])
    assert "ends within a record" in replay_all([tmp_path], ignored).problems[0]


@pytest.mark.parametrize("seed", range(2))
def test_corrupted_records_are_skipped_and_never_give_a_wrong_answer(tmp_path: Path, seed: int) -> None:
    draw, found = random.Random(seed), record(tmp_path, 40, seed=seed)
    [path] = files_in([tmp_path])
    data = path.read_bytes()
    for _ in range(30):
        spoiled = bytearray(data)
        for _ in range(draw.choice([1, 1, 3])):
            spoiled[draw.randrange(len(spoiled))] ^= draw.randrange(1, 256)
        if draw.random() < 0.3:
            start = draw.randrange(len(spoiled))
            del spoiled[start : start + draw.randrange(1, 200)]
        path.write_bytes(spoiled)
        report = replay_all([tmp_path], ignored)
        assert report.same == report.decisions <= len(found)
        assert report.problems, "a change that nobody noticed"
        id = draw.choice(sorted(found))
        again = kept_answer(tmp_path, id)
        assert again is None or again == found[id][1]


def kept_answer(directory: Path, id: str) -> Verdict | None:
    """None: it is said that the decision is not kept."""
    try:
        return replay_one([directory], id).verdict
    except NotFound:
        return None


def test_files_have_a_common_size_limit_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    limits = RecorderLimits(60_000, 86_400.0)
    last = ""
    for life in range(3):
        recorder, fleet = a_recorder(tmp_path, limits), ChangingFleet(life)
        for number in range(150):
            fleet.change()
            last, _, _ = decided(recorder, fleet, number)
            if number % 30 == 0:
                until_written(recorder)
        asyncio.run(recorder.close())
        size = sum(path.stat().st_size for path in files_in([tmp_path]))
        assert size <= limits.bytes_max + 20_000, "more than the limit, and one frame"
    assert len(files_in([tmp_path])) > 2
    report = replay_all([tmp_path], ignored)
    assert report.same == report.decisions
    assert 0 < report.decisions < 450
    assert replay_one([tmp_path], last).same


def until_written(recorder: DecisionRecorder) -> None:
    asyncio.run(until(lambda: recorder._writer.handled == recorder._writer.accepted))


def test_too_old_files_are_deleted_with_the_next(tmp_path: Path) -> None:
    before = record(tmp_path, 5)
    [old] = files_in([tmp_path])
    os.utime(old, (1_000_000, 1_000_000))
    record(tmp_path, 5, seed=2)
    assert old not in files_in([tmp_path])
    with pytest.raises(NotFound, match="older than what is kept"):
        replay_one([tmp_path], next(iter(before)))


def test_files_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    record(tmp_path / "data" / "decisions", 3)
    [path] = files_in([tmp_path / "data" / "decisions"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_disk_that_fails_costs_records_and_no_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes after it can be read: the next file begins with all columns."""
    monkeypatch.setattr(recorder_module, "AGAIN_AFTER_S", 0.0)
    recorder, fleet = a_recorder(tmp_path / "decisions"), ChangingFleet(1)
    (tmp_path / "decisions").write_text("no directory")
    for number in range(3):
        decided(recorder, fleet, number)
        until_written(recorder)
    (tmp_path / "decisions").unlink()
    for number in range(3, 30):
        decided(recorder, fleet, number)
        until_written(recorder)
    asyncio.run(recorder.close())
    report = replay_all([tmp_path / "decisions"], ignored)
    assert recorder.stored >= report.same == report.decisions >= 20
    assert recorder.lost == report.lost >= 3


def test_a_slow_writer_drops_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted, and no decision waits; what comes later can be read."""
    recorder, fleet, go_on = a_recorder(tmp_path), ChangingFleet(1), threading.Event()
    writer = recorder._writer
    write = writer._write

    def late(waiting: list[Any]) -> None:
        assert go_on.wait(PATIENCE_S)
        write(waiting)

    monkeypatch.setattr(writer, "_write", late)
    monkeypatch.setattr(recorder_module, "QUEUE_MAX", 10)
    for number in range(50):
        decided(recorder, fleet, number)
    assert writer.lost > 0
    go_on.set()
    until_written(recorder)
    for number in range(50, 80):
        fleet.change()
        decided(recorder, fleet, number)
        until_written(recorder)
    asyncio.run(recorder.close())
    report = replay_all([tmp_path], ignored)
    assert 30 <= report.same == report.decisions < 80
    assert recorder.lost == report.lost >= 80 - report.decisions
    assert recorder.stored >= report.decisions


@pytest.mark.parametrize(
    "text", ["", "x", "0123456789ab-1", "0123456789ab-1-x", "../../etc/passwd", "0123456789ab-1-2-3"]
)
def test_an_invalid_id_is_refused_with_the_reason(tmp_path: Path, text: str) -> None:
    with pytest.raises(Invalid, match="is no decision"):
        replay_one([tmp_path], text)


def test_an_ask_is_stored_completely_and_older_releases_are_read() -> None:
    fleet = ChangingFleet(5)
    for _ in range(200):
        ask = fleet.ask()
        assert msgspec.msgpack.decode(encoded_ask(ask), type=Ask) == ask
    assert msgspec.msgpack.decode(msgspec.msgpack.encode({"resources": {"VCPU": 1}}), type=Ask) == Ask(
        resources={"VCPU": 1}
    )


def test_every_part_of_an_answer_is_in_its_digest() -> None:
    fleet = ChangingFleet(1)
    verdicts = [rank(fleet.ask(), fleet.picture.world(), PROFILE) for _ in range(50)]
    for verdict in verdicts:
        ledger = verdict.ledger
        others = [
            msgspec.structs.replace(verdict, best=verdict.best[1:]) if verdict.best else None,
            msgspec.structs.replace(verdict, ledger=msgspec.structs.replace(ledger, willing=ledger.willing + 1)),
            msgspec.structs.replace(verdict, ledger=msgspec.structs.replace(ledger, counts={**ledger.counts, "x": 1})),
            msgspec.structs.replace(verdict, ledger=msgspec.structs.replace(ledger, weights={"h": {"ram": 0.5}})),
        ]
        assert all(digest_of(other) != digest_of(verdict) for other in others if other is not None)
        named = msgspec.structs.replace(
            verdict, ledger=msgspec.structs.replace(ledger, decision=str(DecisionId("a", 1, 1)))
        )
        assert digest_of(named) == digest_of(verdict)


def test_decisions_are_few_bytes(tmp_path: Path) -> None:
    """Besides the columns with which a file begins."""
    record(tmp_path, 200, seed=9)
    [path] = files_in([tmp_path])
    full = next(each for each in RecordedFile(path) if isinstance(each, Decided))
    assert full.changes.full
    assert path.stat().st_size / 200 < 1_000
