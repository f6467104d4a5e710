"""Regular expressions of clients: which are accepted, which are refused, and that no search takes long."""

import time

import pytest

from moorage.model.errors import Invalid
from moorage.model.pattern import CHARACTERS_MAX, Pattern, like, refusal


@pytest.mark.parametrize(
    ("text", "literal", "whole"),
    [
        ("web", "web", None),
        ("^web$", None, "web"),
        (r"^web\-1$", None, "web-1"),
        (r"^\$$", None, "$"),
        (r"^a\d$", None, None),
        ("^a|b$", None, None),
        ("^$", None, ""),
        ("^a\0$", None, None),
    ],
)
def test_a_plain_text_pattern_is_recognized(text: str, literal: str | None, whole: str | None) -> None:
    assert (Pattern(text).literal, Pattern(text).exact) == (literal, whole)


@pytest.mark.parametrize(
    "text", ["[", "a**", r"(a)\1", "(?=a)", "(?<!a)b", "a{1001}", "(((a{99}){99}){99}){99}", "\ud800", "a" * 256]
)
def test_refused_patterns_have_a_reason(text: str) -> None:
    assert refusal(text)
    with pytest.raises(Invalid, match="is not a regular expression: "):
        Pattern(text)


WORST = [
    "^(a|a)*$",
    "^(a+)+$",
    "(a|aa)+$",
    "(.*)(.*)(.*)(.*)(.*)(.*)x$",
    "(a|b)*a(a|b){150}x",
    "(?:a?){200}a{40}x",
    ".*" * 127,
]


@pytest.mark.parametrize("text", WORST)
def test_no_search_explodes(text: str) -> None:
    """Two thousand names at the worst; with an engine that tries again each of these takes longer than anybody lives."""
    pattern, began = Pattern(text), time.process_time()
    for _ in range(2_000):
        pattern.found_in("a" * 254 + "!")
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("text", "found"),
    [("node", True), ("N_DE", True), ("n%1", True), ("1%n", False), ("%", True), ("", True), ("de-1.", False), ("(", False), ("n" * 9_999, False)],
)  # fmt: skip
def test_like_patterns(text: str, found: bool) -> None:
    assert like(text)("node-1") is found


@pytest.mark.parametrize(
    "text", ["%x" * 127, "%_" * 127, "_" * CHARACTERS_MAX, "\U0001f600" * CHARACTERS_MAX, "%a" * 9_999]
)
def test_like_patterns_match_in_linear_time(text: str) -> None:
    wanted, began = like(text), time.process_time()
    for _ in range(500):
        wanted("node-" + "x" * 200)
    assert time.process_time() - began < 20
