"""Guests that QEMU stopped because there was no space for what they wrote go on when there is space again.

QEMU stops a guest instead of telling it that its disk is full, so that nothing is lost, and nobody else would let it go on: for the
API the server is ACTIVE, with the power state PAUSED, and an `unpause` is refused, as in Nova.  A guest that its owner pauses meanwhile
stays so.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from moorage.drivers.libvirt.core import Core
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.stopped_guests import MIB, disks_text, full_disks
from moorage.model.errors import HostFailed
from moorage.model.ids import ServerId

FREE_BYTES = 64 * MIB
"""So much must be free: with less, a guest would soon stop again."""
LOOK_EVERY_S = 5.0

_log = logging.getLogger(__name__)


class FullDisks(Core):
    """The part of `LibvirtDriver` that is about guests that QEMU stopped."""

    _resuming: asyncio.Task[None] | None = None

    @property
    def waiting_for_space(self) -> tuple[ServerId, ...]:
        """Guests that stand still until there is space for what they write, as of the last look."""
        return self._stopped.standing

    def _begin_resuming(self) -> None:
        self._resuming = asyncio.create_task(self._keep_resuming(), name="full-disks")

    async def _end_resuming(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.gather(self._resuming, return_exceptions=True)
            self._resuming = None

    async def _keep_resuming(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            try:
                await self._resume_stopped()
            except HostFailed as failure:
                _log.info("it cannot be seen which guests stand still: %s", failure.private)

    async def _resume_stopped(self) -> None:
        """Look at all guests of this host, once."""
        found = await self._link.query(self._stopped_by_qemu)
        self._stopped.others_go_on({*found}, self._clock.monotonic())
        for server in found:
            lock = self._locks.get(server)
            if lock is not None and lock.locked():
                continue  # something else is done with it, and may take long
            try:
                async with self._alone(server):
                    await self._resume_if_possible(server)
            except HostFailed as failure:
                _log.error("%s cannot go on: %s", server, failure.private)

    async def _resume_if_possible(self, server: ServerId) -> None:
        record = self._records.find(server)
        if record is None or record.incoming or record.departed or record.leaving is not None:
            return
        disks = await self._ask(server, full_disks)
        if disks is None:
            return
        stopped, now = self._stopped.of(server), self._clock.monotonic()
        if not stopped.stands:
            stopped.stands = True
            words = "%s stands still, since it could not write to its disk (%s); it goes on when %d MiB are free"
            _log.error(words, server, disks_text(disks), FREE_BYTES // MIB)
        has_space = all(free is None or free >= FREE_BYTES for free in disks.values())
        if record.paused or not has_space or now < stopped.not_before:
            return
        stopped.not_before = now + stopped.pauses.next_s()
        await self._ask(server, lambda domain: domain.resume())
        _log.warning("%s goes on: there is space for what it writes", server)

    def _stopped_by_qemu(self, connection: Any) -> Sequence[ServerId]:
        libvirt = library()
        found: list[ServerId] = []
        flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_PAUSED
        for domain, statistics in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, flags):
            try:
                if statistics["state.reason"] == libvirt.VIR_DOMAIN_PAUSED_IOERROR and self._is_ours(domain):
                    found.append(ServerId(domain.UUIDString()))
            except libvirt.libvirtError as failure:
                if failure.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # else it went meanwhile
                    raise
        return found
