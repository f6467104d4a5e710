"""Shows a progress bar on standard error for work of more than a second, only on a terminal."""

import sys
import time
from typing import TextIO

AFTER_S = 1.0
EVERY_S = 0.1
WIDTH = 30


class Progress:
    """The bar; `update` may be called at any rate, and `close` removes the bar."""

    def __init__(self, words: str, stream: TextIO | None = None) -> None:
        self._words, self._stream = words, stream or sys.stderr
        self._began = self._shown_at = time.monotonic()
        self._shown = False

    def update(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._began < AFTER_S or now - self._shown_at < EVERY_S or not self._stream.isatty():
            return
        self._shown, self._shown_at = True, now
        filled = WIDTH * done // max(total, 1)
        bar = "#" * filled + "." * (WIDTH - filled)
        self._stream.write(f"\r{self._words} [{bar}] {done} of {total} ")
        self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
