"""Subjects: names become single tokens, and patterns mean what they mean in NATS."""

import pytest

from moorage.bus import legacy_subjects, subjects
from moorage.model.ids import CellId, ConductorId


@pytest.mark.parametrize(
    ("pattern", "subject", "heard"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b", "a.c", False),
        (">", "a", True),
    ],
)
def test_patterns(pattern: str, subject: str, heard: bool) -> None:
    assert subjects.matches(pattern, subject) is heard


def test_host_names_become_distinct_subject_tokens() -> None:
    names = ["n1.example.org", "n1-example-org", "n1%2Eexample", "n1 *", ">", "nœud", "n1"]
    words = [subjects.token(name) for name in names]
    assert len(set(words)) == len(names)
    assert not any(set(word) & set(".*> ") for word in words)


def test_a_result_reaches_the_caller_and_its_cell() -> None:
    subject = subjects.result_from(CellId("c1"), "n1.example.org", ConductorId("k"))
    assert subjects.matches(subjects.results_for(ConductorId("k")), subject)
    assert subjects.matches(subjects.results_in_cell(CellId("c1")), subject)
    assert not subjects.matches(subjects.results_in_cell(CellId("c2")), subject)
    beat = subjects.from_host(CellId("c1"), "n1.example.org", subjects.HEARTBEAT)
    assert subjects.matches(subjects.ALL_HEARTBEATS, beat)
    assert subjects.matches(subjects.hosts_of(CellId("c1"), subjects.HEARTBEAT), beat)
    assert not subjects.matches(subjects.hosts_of(CellId("c1"), subjects.REPORT), beat)


def test_a_subject_names_its_sender_or_none() -> None:
    cell, host = CellId("c.1"), "n1.example.org"
    for subject in (
        subjects.from_host(cell, host, subjects.REPORT),
        subjects.result_from(cell, host, ConductorId("k")),
    ):
        assert subjects.sender(subject) == (subjects.token(cell), subjects.token(host))
    for subject in (
        legacy_subjects.of_cell(cell, subjects.HEARTBEAT),
        legacy_subjects.result_for(cell, ConductorId("k")),
        subjects.to_host(cell, host),
        "moorage.cell.c1.from.n1",
        "other.cell.c1.from.n1.report",
    ):
        assert subjects.sender(subject) is None
