"""What this host is told of its ports is kept, and put into effect while guests run."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from moorage.drivers.libvirt.core import Core
from moorage.model.errors import Problem
from moorage.model.port_description import AddressSetPart, PortDescription, Present
from moorage.model.retry import Backoff

CHECK_EVERY_S = 10.0
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 30.0

_log = logging.getLogger(__name__)


class Describing(Core):
    """The part of `LibvirtDriver` that is about descriptions of ports (see drivers/port_descriptions.py)."""

    def describe_ports(
        self, ports: Sequence[PortDescription], sets: Sequence[AddressSetPart], present: Present | None, version: int
    ) -> None:
        if self._settings.port_filter and self._descriptions.take(ports, sets, present, version):
            self._redescribed.set()

    def described(self) -> str:
        return self._descriptions.digest if self._settings.port_filter else ""

    def _begin_describing(self) -> None:
        if self._settings.port_filter:
            self._describing = asyncio.create_task(self._follow_descriptions(), name="port-descriptions")

    async def _end_describing(self) -> None:
        if self._describing is not None:
            self._describing.cancel()
            await asyncio.gather(self._describing, return_exceptions=True)
            self._describing = None

    async def _follow_descriptions(self) -> None:
        """What changed is written down and put into effect; now and then it is looked whether that is still so."""
        pauses = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_EVERY_S):
                    await self._redescribed.wait()
            try:
                changed = self._redescribed.is_set()
                self._redescribed.clear()
                if changed:
                    self._descriptions.save()
                intact = await self._wires.is_intact()
                intact = await self._services.is_intact() and intact
                if changed or not intact:
                    await self._unplug_what_is_unused()
                pauses.reset()
            except Exception as failure:  # noqa: BLE001  whatever it is: who stopped here would leave filters as they are for ever
                why = failure.private if isinstance(failure, Problem) else repr(failure)
                _log.error("ports are not wired as they are described yet: %s", why)
                await self._clock.sleep(pauses.next_s())
                self._redescribed.set()
