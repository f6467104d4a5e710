"""Servers of networks that ended by themselves are started again."""

import asyncio
import logging

from moorage.drivers.libvirt.core import Core
from moorage.model.errors import HostFailed

LOOK_EVERY_S = 5.0

_log = logging.getLogger(__name__)


class Serving(Core):
    """The part of `LibvirtDriver` that is about processes beside the agent."""

    _serving: asyncio.Task[None] | None = None

    def _begin_serving(self) -> None:
        self._serving = asyncio.create_task(self._keep_serving(), name="networks")

    async def _end_serving(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
            self._serving = None

    async def _keep_serving(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            try:
                async with self._wiring:  # one that is just being started is not lost
                    if self._services.is_lost() or self._wires.has_lost_servers():
                        _log.warning("a server of networks ended, and is started again")
                        await self._serve_networks()
                    await self._wires.repeat_announcements(self._clock)
            except HostFailed as failure:
                _log.error("networks cannot be served: %s", failure.private)
