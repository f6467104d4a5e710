"""Hosts whose next verb of a kind cuts them off from the bus at the moment at which it is done (`lost_answers.py`)."""

import asyncio
from dataclasses import dataclass, field

from moorage_testing.simulation.bus import Hub


@dataclass
class LostAnswers:
    """Which hosts are armed. Called by the hosts' drivers for every verb that was done."""

    armed: dict[str, tuple[str, asyncio.Event]] = field(default_factory=dict[str, tuple[str, asyncio.Event]])
    """Host → the verb, and what is set when it was done."""

    def done(self, hub: Hub, host: str, verb: str) -> None:
        wanted = self.armed.get(host)
        if wanted is not None and wanted[0] == verb and not wanted[1].is_set():
            hub.cut_off(host)
            wanted[1].set()

    def heal(self) -> None:
        self.armed.clear()
