"""Limits log lines about messages: a trouble is logged now and then with its count, so that bad messages cannot fill the disk."""

import logging
import time
from dataclasses import dataclass

_log = logging.getLogger(__name__)

SAY_AGAIN_S = 30.0


@dataclass
class Seldom:
    """Counts one kind of trouble in a process, and limits its log lines."""

    every_s: float = SAY_AGAIN_S
    count: int = 0
    """How often it has happened."""
    logged_at: float = float("-inf")

    def due(self) -> bool:
        """Count it once more; tell whether it should be logged now."""
        self.count += 1
        now = time.monotonic()
        if now - self.logged_at < self.every_s:
            return False
        self.logged_at = now
        return True

    def warn(self, text: str, *values: object) -> None:
        """Count it once more, and log it if that is due."""
        if self.due():
            _log.warning(f"{text} (%d so far)", *values, self.count)


unreadable = Seldom()
"""Messages that this process could not read."""
