"""Statements in the databases' own SQL: named parameters become the numbers that PostgreSQL uses, casts stay as they are."""

from moorage.sql import RawStatement


def test_names_become_numbers_in_their_order_and_casts_stay() -> None:
    words = RawStatement(postgresql="SELECT :b::text[], x()::text::bigint, :a, :b FROM t", writes=False)
    assert words.numbered == "SELECT $1::text[], x()::text::bigint, $2, $1 FROM t"
    assert words.values({"a": 1, "b": [2]}) == ([2], 1)
