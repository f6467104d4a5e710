"""Hosts that wire ports by descriptions are sent them: what is newer at once, and everything when what a host has is not what it should have.

One question to the network service waits until any host is described otherwise; then that host's descriptions are asked for.  So what it costs
when nothing changes does not grow with the hosts.  What was lost on its way to a host is found by its heartbeats, which say what it has.
Several conductors of a cell may send the same: versions order it.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from moorage.bus import subjects
from moorage.bus.description_messages import PortDescriptions
from moorage.bus.messages import encode
from moorage.bus.transport import Bus
from moorage.clients.network import NetworkBackend
from moorage.conductor.known_hosts import KnownHost, KnownHosts
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.ids import CellId, PortId
from moorage.model.port_description import AddressSetPart, HostDescriptions, PortDescription, held_digest
from moorage.model.retry import Backoff, SeldomLog

EVERY_S = 1.0
"""How often heartbeats are looked through; no question is asked for that."""
WAIT_S = 20
"""How long the network service waits before it says that nothing changed."""
NOT_SERVED_S = 60.0
"""A network service that describes no ports is asked again after so long."""
SETTLES_WITHIN_S = 6.0
"""A heartbeat that comes sooner after a message may have been sent before the message came."""
RESEND_MOST_S = 60.0
AT_ONCE = 8
MESSAGE_MAX_BYTES = 400_000
"""The broker lets a megabyte through."""

_log = logging.getLogger(__name__)


@dataclass
class DescribedHost:
    """What one host was sent."""

    agent: str = ""
    """The `boot` of the agent that was sent it."""
    version: int = 0
    ports: dict[PortId, int] = field(default_factory=dict)
    sets: dict[str, int] = field(default_factory=dict)
    """Ids with the versions that were sent."""
    digest: str = held_digest({}, {})
    sent_at: float = float("-inf")
    again: Backoff = field(default_factory=lambda: Backoff(SETTLES_WITHIN_S, RESEND_MOST_S))
    resend_at: float = float("-inf")
    troubles: tuple[str, ...] = ()


class PortDescriber:
    """For the hosts of one cell. `start` and `stop` bound its one task."""

    def __init__(self, cell: CellId, hosts: KnownHosts, network: NetworkBackend, bus: Bus, clock: Clock) -> None:
        self._cell, self._hosts, self._network = cell, hosts, network
        self._bus, self._clock = bus, clock
        self._described: dict[str, DescribedHost] = {}
        self._not_served_until = float("-inf")
        self._each_until = float("-inf")
        """Until then each host is asked for in each round: the network service does not say which ones changed."""
        self._version = 0
        """The newest version of which the hosts are known."""
        self._news: set[str] = set()
        self._one_round = asyncio.Lock()
        self._seldom = SeldomLog(_log, clock.monotonic, every_s=60.0)
        self._life: tuple[asyncio.Task[None], ...] = ()

    def start(self) -> None:
        self._life = (
            asyncio.create_task(self._run(), name=f"port-descriptions-{self._cell}"),
            asyncio.create_task(self._watch(), name=f"port-changes-{self._cell}"),
        )

    async def stop(self) -> None:
        for each in self._life:
            each.cancel()
        await asyncio.gather(*self._life, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(EVERY_S)
            await self.round()

    async def _watch(self) -> None:
        while True:
            if await self.await_changes(WAIT_S):
                await self.round()
            else:
                await self._clock.sleep(EVERY_S)

    async def await_changes(self, wait_s: int) -> bool:
        """Ask which hosts are described otherwise than by the last answer. Raises nothing.

        False: nobody was asked, or did not say, or did not wait, as a service that stops: who asks again at once would ask all the time.
        """
        now = self._clock.monotonic()
        if not self._takers() or now < max(self._not_served_until, self._each_until):
            return False
        try:
            found = await self._network.described_hosts(self._version, wait_s)
        except Problem as problem:
            self._seldom.warning("out", "nobody says which ports changed: %s %s", problem, problem.private)
            return False
        except Exception as failure:  # noqa: BLE001  whatever it is: who stopped here would leave filters as they are for ever
            self._seldom.warning("broken", "nobody can say which ports changed: %r", failure)
            return False
        if found is None:
            self._each_until = self._clock.monotonic() + NOT_SERVED_S
            return False
        if found.version < self._version:  # it was put back to an older state
            self._news |= {known.host for known in self._takers()}
        self._version = found.version
        self._news |= set(found.hosts)
        return bool(found.hosts) or self._clock.monotonic() - now >= wait_s / 2

    def _takers(self) -> list[KnownHost]:
        return [known for known in self._hosts if known.takes_descriptions and not known.silent]

    async def round(self) -> None:
        """Each host that takes descriptions has what it should, or is sent it. Raises nothing: the next round tries again."""
        async with self._one_round:
            await self._round()

    async def _round(self) -> None:
        takers, now = self._takers(), self._clock.monotonic()
        names = {known.host for known in takers}
        for gone in self._described.keys() - names:
            del self._described[gone]
        self._news &= names
        if not takers or now < self._not_served_until:
            return
        for known in takers:
            self._log_troubles(known)
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(known: KnownHost) -> None:
            async with slots:
                await self._describe_or_log(known)

        every = now < self._each_until
        await asyncio.gather(*(one(each) for each in takers if every or self._is_due(each)))

    def _log_troubles(self, known: KnownHost) -> None:
        """Once."""
        before = self._described.setdefault(known.host, DescribedHost())
        if known.not_wired != before.troubles:
            before.troubles = known.not_wired
            for each in known.not_wired:
                _log.warning("host %s does not wire as described: %s", known.host, each)

    def _is_due(self, known: KnownHost) -> bool:
        before = self._described[known.host]
        return known.host in self._news or before.agent != known.agent or self._differs(known, before)

    async def _describe_or_log(self, known: KnownHost) -> None:
        news = known.host in self._news
        self._news.discard(known.host)  # what comes while it is asked for is news again
        try:
            await self.describe(known)
            return
        except Problem as problem:
            self._seldom.warning(
                "out", "ports of host %s are not described yet: %s %s", known.host, problem, problem.private
            )
        except Exception as failure:  # noqa: BLE001  whatever it is: who stopped here would leave filters as they are for ever
            self._seldom.warning("broken", "ports of host %s cannot be described: %r", known.host, failure)
        if news:
            self._news.add(known.host)

    async def describe(self, known: KnownHost) -> None:
        """One host. Raises Problem when the network service or the bus is out."""
        before = self._described.setdefault(known.host, DescribedHost())
        anew = before.agent != known.agent or self._differs(known, before)
        found = await self._network.port_descriptions(known.host, 0 if anew else before.version)
        now = self._clock.monotonic()
        if found is None:
            self._not_served_until = now + NOT_SERVED_S
            return
        ports = {each: before.ports.get(each, 0) for each in found.present.ports}
        ports |= {each.port: each.version for each in found.ports}
        sets = {each: before.sets.get(each, 0) for each in found.present.sets}
        sets |= {each.id: each.version for each in found.sets}
        if not anew and (ports, sets) == (before.ports, before.sets):
            return
        if anew and before.agent == known.agent and held_digest(ports, sets) == known.described:
            before.digest, before.ports, before.sets, before.version = known.described, ports, sets, found.version
            return
        before.resend_at = now + (before.again.next_s() if anew else SETTLES_WITHIN_S)
        for message in messages_for(known.host, found):
            await self._bus.publish(subjects.to_host(self._cell, known.host), encode(message))
        before.agent, before.version, before.ports, before.sets = known.agent, found.version, ports, sets
        before.digest, before.sent_at = held_digest(ports, sets), self._clock.monotonic()

    def _differs(self, known: KnownHost, before: DescribedHost) -> bool:
        """By a heartbeat that was sent after the last message could have come."""
        if known.described == before.digest:
            before.again.reset()
            return False
        now = self._clock.monotonic()
        return known.heard > before.sent_at + SETTLES_WITHIN_S and now >= before.resend_at


def messages_for(host: str, found: HostDescriptions) -> Iterator[PortDescriptions]:
    """Sets first, for rules name them; the last message says what there is at all. Each is far smaller than the broker's limit."""
    ports: list[PortDescription] = []
    sets: list[AddressSetPart] = []
    size = 0
    every: list[PortDescription | AddressSetPart] = [*found.sets, *found.ports]
    for each in every:
        length = len(msgspec.json.encode(each))
        if size and size + length > MESSAGE_MAX_BYTES:
            yield PortDescriptions(host, found.version, tuple(ports), tuple(sets))
            ports, sets, size = [], [], 0
        size += length
        if isinstance(each, PortDescription):
            ports.append(each)
        else:
            sets.append(each)
    yield PortDescriptions(host, found.version, tuple(ports), tuple(sets), found.present)
