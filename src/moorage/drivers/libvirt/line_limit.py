"""A log in which others can cause lines does not fill the disk."""

import logging

from typing_extensions import override

LINES_PER_MINUTE_MAX = 60


class LineLimit(logging.Filter):
    """Lets so many lines of a minute pass; the first one of the next says how many did not."""

    def __init__(self, most: int = LINES_PER_MINUTE_MAX) -> None:
        super().__init__()
        self._most, self._minute, self._lines = most, 0, 0

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        minute = int(record.created // 60)
        if minute != self._minute:
            left_out = max(0, self._lines - self._most)
            self._minute, self._lines = minute, 0
            if left_out:
                record.msg, record.args = f"{record.getMessage()} ({left_out} lines were left out)", ()
        self._lines += 1
        return self._lines <= self._most
