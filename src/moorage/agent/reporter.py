"""Sends a host's own messages: heartbeats, a report when something changed, and now and then a question which turns it may forget."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from moorage.agent.journal import AgentJournal
from moorage.agent.port_descriptions import described_by
from moorage.agent.report import LEVEL, changes, described, listed_devices, report, turns_listed
from moorage.agent.report_subjects import Outgoing
from moorage.bus.host_messages import MAX_LISTED, AgentReturned, Heartbeat
from moorage.drivers.driver import DeviceReporter, Driver
from moorage.model.guest import PowerState, digest
from moorage.model.guest_devices import GuestDevices, devices_digest
from moorage.model.ids import CellId, ServerId

MAX_UNTAKEN_SAID = 50
TOMBSTONES_MAX = 1_000
"""Number of turns of servers without a guest from which on the cell is asked which of them are deleted for ever."""
TOMBSTONES_ASKED_MAX = 500
"""Limit of servers in one question."""


class AgentIdentity(NamedTuple):
    """One life of one host's agent."""

    host: str
    cell: CellId
    boot: str
    """Names the life."""
    level: int


class Reporter:
    """Reports what one life of a host's agent has to say."""

    def __init__(
        self,
        me: AgentIdentity,
        outgoing: Outgoing,
        driver: Driver,
        journal: AgentJournal,
        *,
        beats_per_look: int,
    ) -> None:
        self._host, self._cell, self._boot, self._level = me
        self._outgoing = outgoing
        self._driver = driver
        self._journal = journal
        self._beats_per_look = beats_per_look
        self._number = 0
        self._reported: Mapping[ServerId, PowerState] = {}
        self._digest = digest({})
        self._description = b""
        self._devices: Mapping[ServerId, GuestDevices] | None = None
        self._devices_digest = ""
        self._last_listed = ""
        """The last guest whose devices the last report named, where one report does not hold all of them."""
        self.takes_questions: Callable[[], bool] = bool
        """Whether the host hears questions where API and console processes may ask."""
        self._last_tombstone = ServerId("")
        """The last tombstone of the last question; the next question begins after it."""

    async def beat(self) -> None:
        """Send a heartbeat with the changes since the last one; every few heartbeats, check whether the host itself has changed."""
        number, self._number = self._number, self._number + 1
        if number % self._beats_per_look == 0:
            now = described(await self._driver.describe())
            if now != self._description:
                await self.report()
                self._description = now
            await self._ask_what_to_forget()
            await self._journal.flush()
        states = await self._driver.guests()
        differ: dict[ServerId, PowerState] = {}
        if states is not self._reported:
            differ = changes(self._reported, states)
            self._reported = states
            if differ:
                self._digest = digest(states)
        message = Heartbeat(
            self._host,
            self._cell,
            self._boot,
            number,
            len(states),
            self._digest,
            differ if len(differ) <= MAX_LISTED else {},
            self._journal.untaken(MAX_UNTAKEN_SAID),
            described=described_by(self._driver),
            devices=await self._digest_of_devices(),
            takes_questions=self.takes_questions(),
        )
        await self._outgoing.publish(message)

    async def _digest_of_devices(self) -> str:
        """Empty: hosts that see to ports themselves say nothing of them, nor does a driver that cannot tell."""
        if self._level < LEVEL or not isinstance(self._driver, DeviceReporter):
            return ""
        now = await self._driver.known_devices()
        if now is not self._devices:
            self._devices, self._devices_digest = now, devices_digest(now)
        return self._devices_digest

    async def leave(self) -> None:
        """Send the last heartbeat, so that another agent can take over the host at once."""
        message = Heartbeat(
            self._host, self._cell, self._boot, self._number, len(self._reported), self._digest, leaving=True
        )
        await self._outgoing.publish(message)

    async def report(self) -> None:
        description, guests = await self._driver.describe(), await self._driver.guests()
        whole = report(
            self._host, self._cell, self._boot, description, guests, self._level, self._journal.earlier_lives
        )
        whole = msgspec.structs.replace(whole, turns=turns_listed(self._journal.turns(), guests))
        if (known := await self._digest_of_devices()) and isinstance(self._driver, DeviceReporter):
            listed = listed_devices(await self._driver.guest_devices(), self._last_listed)
            self._last_listed = next(reversed(listed), "")
            whole = msgspec.structs.replace(whole, devices=listed, devices_digest=known)
        await self._outgoing.publish(whole)

    async def _ask_what_to_forget(self) -> None:
        """Ask which turns can be forgotten: each destroy leaves a turn, and a host that is never restarted would keep all of them."""
        tombstones = sorted(self._journal.turns().keys() - (await self._driver.guests()).keys())
        if len(tombstones) <= TOMBSTONES_MAX:
            return
        batch = ([each for each in tombstones if each > self._last_tombstone] or tombstones)[:TOMBSTONES_ASKED_MAX]
        self._last_tombstone = batch[-1]
        question = AgentReturned(self._host, self._cell, self._boot, tuple(batch), home=True, agent=self._boot)
        await self._outgoing.publish(question)
