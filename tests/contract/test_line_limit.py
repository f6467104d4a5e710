"""The log of the process that answers guests: no guest fills the disk of its host."""

import logging

from moorage.drivers.libvirt.line_limit import LineLimit


def line(at_s: float, text: str = "%s is no guest's address") -> logging.LogRecord:
    record = logging.LogRecord("log", logging.WARNING, __file__, 1, text, ("fe80::1",), None)
    record.created = at_s
    return record


def test_so_many_lines_of_a_minute_are_kept() -> None:
    limit = LineLimit(3)
    assert [limit.filter(line(60.0 + second)) for second in range(10)] == [True] * 3 + [False] * 7
    first = line(120.0)
    assert limit.filter(first)
    assert first.getMessage() == "fe80::1 is no guest's address (7 lines were left out)"
    later = line(180.0)
    assert limit.filter(later)
    assert later.getMessage() == "fe80::1 is no guest's address"
