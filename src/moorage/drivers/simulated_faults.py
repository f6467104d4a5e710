"""What goes wrong on a simulated host: the dials that tests and `dials.json` set, and the failures around each verb."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from moorage.drivers.fault_injection import FaultCounter, FaultSettings, read_dials
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed

_log = logging.getLogger(__name__)


class SimulatedFaults:
    """Of one host."""

    def __init__(self, file: Path, clock: Clock, dials: FaultSettings) -> None:
        """`file`: the `dials.json` that lies over `dials`; it need not exist."""
        self.own = dials
        self.knob = FaultCounter(dials)
        self.hanging: Counter[str] = Counter()
        """How many of each verb hang now."""
        self._file = file
        self._clock = clock
        self._stamp: tuple[int, int] | None = None

    def turn(self, dials: FaultSettings) -> None:
        """The process sets other dials; they count from the next `read`."""
        self.own, self._stamp = dials, None

    def read(self) -> bool:
        """Take the dials as they are now; whether they may have changed. The file is only read when it has."""
        try:
            status = os.stat(self._file)
            stamp = (status.st_mtime_ns, status.st_size)
        except FileNotFoundError:
            stamp = (0, 0)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.knob = FaultCounter(read_dials(self._file, self.own))
        except msgspec.MsgspecError as error:
            _log.error("%s is not a file of dials, they stay as they were: %s", self._file, error)
        return True

    @asynccontextmanager
    async def around(self, verb: str) -> AsyncIterator[FaultCounter]:
        """Around each verb: the delay, and the failure before or after its effect. Raises HostFailed when the dials say so."""
        knob = self.knob
        dial = knob.of(verb)
        if dial is None:
            yield knob
            return
        if delay_s := knob.delay_s(dial):
            await self._clock.sleep(delay_s)
        fails = knob.fails(verb, dial)
        problem = HostFailed(dial.says, private=f"a dial of {verb}", code=dial.code)
        if fails and dial.hang == "before":
            await self._hang(verb)
        if fails and not dial.hang and dial.fail_when == "before":
            raise problem
        yield knob
        if fails and dial.hang == "after":
            await self._hang(verb)
        if fails and not dial.hang:
            raise problem

    async def _hang(self, verb: str) -> None:
        """Until somebody gives up."""
        self.hanging[verb] += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging[verb] -= 1
