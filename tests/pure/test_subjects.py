"""Subjects: names become single words, and patterns mean what NATS means by them."""

import pytest

from moorage.bus import subjects
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


def test_host_names_are_one_word_and_stay_different() -> None:
    names = ["n1.example.org", "n1-example-org", "n1%2Eexample", "n1 *", ">", "nœud", "n1"]
    words = [subjects.word(name) for name in names]
    assert len(set(words)) == len(names)
    assert not any(set(word) & set(".*> ") for word in words)


def test_one_result_is_heard_by_the_asker_and_by_its_cell() -> None:
    subject = subjects.result_for(CellId("c1"), ConductorId("k"))
    assert subjects.matches(subjects.results_for(ConductorId("k")), subject)
    assert subjects.matches(subjects.results_in_cell(CellId("c1")), subject)
    assert not subjects.matches(subjects.results_in_cell(CellId("c2")), subject)
    assert subjects.matches(subjects.ALL_HEARTBEATS, subjects.heartbeat(CellId("c1")))
