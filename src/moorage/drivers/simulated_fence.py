"""The fence plug-in of simulated hosts: a host's machine is off when the dial `fenced` says so."""

import asyncio
import logging
from pathlib import Path

import msgspec

from moorage.drivers.fault_injection import FaultSettings, read_dials

_log = logging.getLogger(__name__)


class SimulatedFence:
    """Reads the dials in the hosts' directories, which must be on this machine."""

    name = "simulated"
    off_within_s = 0.0

    def __init__(self, context: Path) -> None:
        self._context = context

    async def is_off(self, host: str) -> bool:
        """What cannot be read is not sure."""
        file = self._context / host / "dials.json"
        if file.parent.parent != self._context:
            return False
        try:
            return (await asyncio.to_thread(read_dials, file, FaultSettings())).fenced
        except (OSError, msgspec.MsgspecError) as failure:
            _log.warning("the simulated fence cannot read %s: %r", file, failure)
            return False

    def can_switch_off(self, host: str) -> bool:
        """A dial is turned by people."""
        return False

    async def switch_off(self, host: str) -> bool:
        return False
