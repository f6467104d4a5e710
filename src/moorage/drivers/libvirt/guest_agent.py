"""What QEMU's guest agent does in a guest: it sets passwords, and makes file systems still while they are copied.

A guest that is still cannot write, so it must never stay so.  What makes it still is written down first; a process of its own (thawing.py)
thaws it when its time is over, also when the agent of the host was killed meanwhile, and the next start of that agent sees to it again.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from moorage.drivers.libvirt import daemons
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.core import Core
from moorage.drivers.libvirt.guest_devices import has_agent
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId

ANSWERS_WITHIN_S = 15
"""Limit of one answer of an agent in a guest."""
CALL_S = 3.0 * ANSWERS_WITHIN_S
"""Of a call of libvirt: it synchronizes with the agent before it asks."""
THAWING = "moorage.drivers.libvirt.thawing"
STARTS_WITHIN_S = 60.0
"""It needs a tenth of a second; a machine that is busy with guests may let it wait."""
NO_FILE = Path("/nonexistent")


class GuestAgent(Core):
    """The part of `LibvirtDriver` for the agent in a guest."""

    async def set_admin_password(self, server: ServerId, password: str) -> None:
        """Set the password of the user that the image names (`os_admin_user`), or of the system's usual administrator.

        Raises HostFailed (`no_guest_agent`) when the guest has no agent, or it does not answer, and `guest_failed` when it
        refuses.
        """
        async with self._alone(server):
            record = await self._with_agent(server)
            properties = record.spec.image_properties
            usual = "Administrator" if properties.get("os_type") == "windows" else "root"
            user = properties.get("os_admin_user") or usual
            await self._ask(server, lambda domain: _set_password(domain, user, password), CALL_S)

    async def freeze_guest(self, server: ServerId, why: str, for_s: float) -> PowerState:
        """Make the guest's file systems still for this purpose, for at most `for_s` seconds; a repeat is success.

        Raises HostFailed: `guest_not_running`, `no_guest_agent`, `not_frozen` when it was thawed for this purpose already,
        `already_frozen` for another one, `guest_busy` while it leaves the host, `quiesce_failed` when its agent does not do it.
        """
        async with self._alone(server):
            record = await self._with_agent(server)
            if record.leaving is not None:  # who arrives there knows nothing of it
                raise HostFailed("the guest is being sent elsewhere", private=record.leaving_by, code="guest_busy")
            if record.thawed_for == why:  # a late command does not freeze it again
                raise HostFailed("the guest was let go already", code="not_frozen")
            if record.frozen_for == why:
                return PowerState.RUNNING
            if self._is_still(record):
                raise HostFailed("the guest is quiesced already", private=record.frozen_for, code="already_frozen")
            record.frozen_for, record.frozen_until, record.thawed_for = why, self._clock.now() + for_s, ""
            self._records.keep(record)
            try:
                await self._thaw_later(record)
                await self._ask(server, _freeze, CALL_S)
            except HostFailed as failure:
                await self._thaw_if_possible(record)
                raise HostFailed(
                    "the guest cannot be quiesced", private=failure.private, code="quiesce_failed"
                ) from failure
            return PowerState.RUNNING

    async def thaw_guest(self, server: ServerId, why: str) -> PowerState:
        """Let a guest write again; a repeat is success.

        Raises HostFailed: `not_frozen` when it was not still for this purpose until now.
        """
        async with self._alone(server):
            record = self._records.of(server)
            if record.thawed_for != why:
                if record.frozen_for != why or not self._is_still(record):
                    raise HostFailed("the guest was not still until now", private=record.frozen_for, code="not_frozen")
                await self._ask(server, _thaw, CALL_S)
                if not self._is_still(record):  # its time ran out meanwhile
                    raise HostFailed("the guest was not still until now", private=why, code="not_frozen")
                await self._thawed(record, why)
            return await self._power(server)

    async def _with_agent(self, server: ServerId) -> GuestRecord:
        """Raises HostFailed: `guest_not_running`, `no_guest_agent`."""
        record = self._records.of(server)
        if await self._active(server) is not PowerState.RUNNING:
            raise HostFailed("the guest is not running", private="it is paused", code="guest_not_running")
        if not has_agent(record.spec):
            raise HostFailed("QEMU guest agent is not enabled", private=server, code="no_guest_agent")
        return record

    async def _thawed(self, record: GuestRecord, why: str) -> None:
        """Write down that it writes again, and end the process that would have seen to it."""
        record.frozen_for, record.frozen_until, record.thawed_for = "", 0.0, why
        self._records.keep(record)
        await self._end_thawing(record)

    async def _thaw_if_possible(self, record: GuestRecord) -> None:
        """After a failure: whether it is still is not known. Where this fails too, the process of its own goes on trying."""
        try:
            await self._ask(record.spec.server, _thaw, CALL_S)
        except HostFailed:
            record.frozen_until = self._clock.now()
            self._records.keep(record)
            await self._thaw_later(record)
        else:
            await self._thawed(record, "")

    async def _thaw_what_is_still(self) -> None:
        """At the agent's start: of those that were made still before, each in its time."""
        for record in self._records.every().values():
            await self._thaw_if_still(record)

    async def _thaw_if_still(self, record: GuestRecord) -> None:
        """Of a guest that goes on: who should have thawed it could not, for it stood."""
        if record.frozen_for:
            await self._thaw_later(record)

    async def _thaw_later(self, record: GuestRecord) -> None:
        """Begin the process that thaws this guest when its time is over; it ends when the guest's record names no such purpose."""
        server, file = record.spec.server, self._record_of(record)
        await self._end_thawing(record)
        left_s = max(0.0, record.frozen_until - self._clock.now())
        words = (self._settings.uri, server, record.frozen_for, f"{left_s:.1f}", str(file))
        await run(sys.executable, "-m", THAWING, *words, limit_s=STARTS_WITHIN_S, code="quiesce_failed")

    async def _end_thawing(self, record: GuestRecord) -> None:
        """Also that which an earlier agent began."""
        pid = await asyncio.to_thread(daemons.pid_of, NO_FILE, str(self._record_of(record)))
        if pid is not None:
            await daemons.end(pid)

    def _record_of(self, record: GuestRecord) -> Path:
        return self._records.directory(record.spec.server) / "guest.json"


def _freeze(domain: Any) -> None:
    domain.agentSetResponseTimeout(ANSWERS_WITHIN_S, 0)
    domain.fsFreeze(None, 0)


def _thaw(domain: Any) -> None:
    domain.agentSetResponseTimeout(ANSWERS_WITHIN_S, 0)
    domain.fsThaw(None, 0)


def _set_password(domain: Any, user: str, password: str) -> None:
    libvirt = library()
    domain.agentSetResponseTimeout(ANSWERS_WITHIN_S, 0)
    try:
        domain.setUserPassword(user, password, 0)
    except libvirt.libvirtError as failure:
        if failure.get_error_code() == libvirt.VIR_ERR_AGENT_UNRESPONSIVE:
            raise HostFailed(
                "the guest's agent does not answer", private=str(failure), code="no_guest_agent"
            ) from failure
        raise
