"""The census and the records of one server in two cells."""

import pytest

from moorage_testing.leak_audit_moves import CellRecord, wrong_seconds

SHOWN, LEFT = CellRecord("s", "b", sealed=False), CellRecord("s", "a", sealed=True)


def test_a_sealed_hidden_record_is_correct() -> None:
    assert wrong_seconds([SHOWN], {"s": "b"}, ()) == []
    assert wrong_seconds([SHOWN, LEFT], {"s": "b"}, {("s", "a")}) == []


@pytest.mark.parametrize(
    ("records", "hidden", "said"),
    [
        ([SHOWN, LEFT], [], "not hidden"),
        ([SHOWN, CellRecord("s", "a", sealed=False)], [("s", "a")], "not hidden"),
        ([CellRecord("s", "b", sealed=True)], [], "is sealed or hidden"),
        ([SHOWN], [("s", "b")], "is sealed or hidden"),
        ([SHOWN], [("s", "a")], "there is none"),
    ],
)
def test_wrong_records_are_reported(records: list[CellRecord], hidden: list[tuple[str, str]], said: str) -> None:
    (wrong,) = wrong_seconds(records, {"s": "b"}, hidden)
    assert said in wrong
