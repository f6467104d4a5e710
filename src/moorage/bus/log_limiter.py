"""What may happen with every message is logged now and then, with how often it happened: whoever sends rubbish fills no disk."""

import logging
import time
from dataclasses import dataclass

_log = logging.getLogger(__name__)

SAY_AGAIN_S = 30.0


@dataclass
class Seldom:
    """One kind of trouble of a process."""

    every_s: float = SAY_AGAIN_S
    count: int = 0
    """How often it has happened."""
    said_at: float = float("-inf")

    def due(self) -> bool:
        """It has happened once more: whether that is to be said."""
        self.count += 1
        now = time.monotonic()
        if now - self.said_at < self.every_s:
            return False
        self.said_at = now
        return True

    def warn(self, text: str, *values: object) -> None:
        """It has happened once more; said, if it is due."""
        if self.due():
            _log.warning(f"{text} (%d so far)", *values, self.count)


unreadable = Seldom()
"""Messages that this process could not read."""
