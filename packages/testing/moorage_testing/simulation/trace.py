"""What happened, in order: a hash over everything, and the lines that people read."""

import hashlib
from collections import Counter

from moorage_testing.simulation.loop import PROCESS, VirtualLoop

LINES_MAX = 20_000


class Trace:
    """`note` for people and the hash; `seen` for the hash alone."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        """How often each kind of thing happened: what a run is measured by."""

    def seen(self, kind: str, what: str) -> None:
        """Something small: a message, a transaction."""
        self.counts[kind] += 1
        self._hash.update(f"{self._loop.now:.9f} {PROCESS.get()} {kind} {what}\n".encode())

    def note(self, kind: str, what: str) -> None:
        """Something that people want to read of."""
        self.seen(kind, what)
        if len(self.lines) < LINES_MAX:
            self.lines.append(f"{self._loop.now - 1_000.0:10.3f} {kind:9} {what}")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
