"""What a cell's conductor remembers of each of its hosts: when it last reported, whether its full report is stored, its
agent.

All of it is in memory and cheap to update with each heartbeat. A missing report is requested until it is stored, with
growing pauses.
"""

import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moorage.bus.host_messages import Heartbeat, HostReport
from moorage.model.guest import PowerState
from moorage.model.guest_devices import GuestDevices
from moorage.model.host import NAMED_MAX, NO_TROUBLES, HostTroubles
from moorage.model.ids import ServerId

ASK_FIRST_S, ASK_MOST_S = 1.0, 30.0
SPREAD_S = 10.0
"""After an outage every host must report: a large cell asks them one after the other within this time."""
HOSTS_AT_ONCE, HOSTS_PER_SECOND = 100, 100.0
NEVER = float("-inf")
REFUSAL_NOTED_EVERY_US = 30_000_000


class DeviceDifference(NamedTuple):
    """One server whose guest has other devices than its record lists."""

    devices: GuestDevices
    """What the guest has."""
    seq: int
    """The last of the server's operations at that time."""
    looks: int = 1
    """How many reports in a row showed it."""


@dataclass
class KnownHost:
    """One host. Times are of the conductor's monotonic clock."""

    host: str
    agent: str = ""
    """The agent that may report for it; empty: unknown."""
    confirmed: bool = False
    """Whether the cell's database says the same."""
    heard: float = NEVER
    silent: bool = False
    awaited: bool = False
    """It is silent, and was up when a conductor last received the cell: it counts as up until it had as much time to
    report as any other host.
    """
    silent_since: float = NEVER
    """When it was found to be silent; operations on it go to other hosts then."""
    beat: int = -1
    guests: int = 0
    digest: str = ""
    """Of the last beat that was taken: how many guests, and what of their power states."""
    described: str = ""
    """Of the last beat: which descriptions of ports it has."""
    devices: str = ""
    """Of the last beat: digest of its guests' volumes and interfaces; empty: it says nothing of them."""
    devices_agreed: str | None = None
    """The digest that was last held against the records; None: none was."""
    devices_compared: float = NEVER
    """When that was."""
    devices_differ: int = 0
    """Comparisons of digests in a row that found a difference."""
    differing: Mapping[ServerId, DeviceDifference] = field(default_factory=dict[ServerId, DeviceDifference])
    """Guests whose devices are not those of their records, by its last reports."""
    takes_descriptions: bool = False
    not_wired: tuple[str, ...] = ()
    """By its last report (`HostReport`)."""
    reported: str = ""
    """The agent whose report is stored completely."""
    wanted: float | None = None
    """When to request the full report; None: it is stored."""
    doubts: int = 0
    """Counts the reasons to request one: a report that was sent before the last reason is not enough."""
    tries: int = 0
    compared: float = NEVER
    """When its guests were last compared with the records."""
    differs: int = 0
    """Comparisons in a row that found a difference."""
    absent: frozenset[ServerId] = frozenset()
    """Guests that the records show and the last report did not."""
    left_alone: frozenset[ServerId] = frozenset()
    """Its guests that no record knows."""
    doubtful: frozenset[ServerId] = frozenset()
    """Servers about which nothing was said in the last comparison, because a database went back."""
    reported_guests: Mapping[ServerId, PowerState] | None = None
    """Its guests by the last report, if that named all of them, with their power."""
    reports: int = 0
    """How many reports were processed."""
    rival: str = ""
    """Another agent that wants to report for it."""
    rival_at: float = NEVER
    challenged: float = NEVER
    """When the current agent was asked whether it lives."""
    refused: str = ""
    """The last agent that was refused."""
    refused_at: int = 0
    """When, µs of the wall clock."""
    noted: HostTroubles = NO_TROUBLES
    """The part of this that the cell's database has."""

    @property
    def counts_as_up(self) -> bool:
        """Whether the scheduler may use it."""
        return self.awaited or not self.silent

    @property
    def share(self) -> float:
        """A number between 0 and 1, the same for one name: it spreads requests to many hosts over time."""
        return zlib.crc32(self.host.encode()) % 1000 / 1000

    def want(self, now: float, after_s: float = 0.0) -> None:
        """Request the full report, now or after `after_s` seconds."""
        self.doubts += 1
        at = now + after_s
        if self.wanted is None:
            self.wanted, self.tries = at, 0

    def due(self, now: float) -> bool:
        return self.wanted is not None and now >= self.wanted

    def report_requested(self, now: float) -> None:
        """The report was requested; it is requested again later, unless it is stored by then."""
        self.tries += 1
        pause_s = min(ASK_FIRST_S * 2.0 ** min(self.tries - 1, 10), ASK_MOST_S)
        self.wanted = now + pause_s * (0.75 + 0.5 * self.share)

    def take(self, beat: Heartbeat) -> None:
        """Keep what a heartbeat says."""
        self.beat, self.guests, self.digest = beat.beat, beat.guests, beat.digest
        self.described, self.devices = beat.described, beat.devices

    def stored(self, report: HostReport, doubts: int) -> None:
        """A report was stored, sent when there were so many doubts."""
        self.reported = report.boot
        self.takes_descriptions, self.not_wired = report.takes_descriptions, report.not_wired
        if self.doubts == doubts:
            self.wanted, self.tries = None, 0

    def troubles(self) -> HostTroubles:
        """What an operator should see, as it is stored; a repeated refusal counts as new twice a minute."""
        kept, count = tuple(sorted(self.left_alone)[:NAMED_MAX]), len(self.left_alone)
        agent, at, before = self.refused, self.refused_at, self.noted
        if not agent or (agent == before.refused_agent and at - before.refused_at < REFUSAL_NOTED_EVERY_US):
            agent, at = before.refused_agent, before.refused_at
        return HostTroubles(kept, count, agent, at, self.not_wired)

    def begin(self, agent: str) -> None:
        """Another agent reports for it from now on; everything from the earlier one is dropped."""
        self.agent, self.confirmed = agent, False
        self.beat, self.guests, self.digest, self.reported = -1, 0, "", ""
        self.described, self.takes_descriptions = "", False
        self.devices, self.devices_agreed, self.differing = "", None, {}
        self.rival, self.refused = "", ""


@dataclass
class Beats:
    """Counts of a cell's hosts, for monitoring."""

    up: int = 0
    silent: int = 0
    down: int = 0
    """Forced down by an operator."""
    oldest_s: float = 0.0
    """The longest time since the last sign of life of a host that is up."""


@dataclass
class KnownHosts:
    """By host name."""

    hosts: dict[str, KnownHost] = field(default_factory=dict)

    def __getitem__(self, host: str) -> KnownHost:
        known = self.hosts.get(host)
        if known is None:
            known = self.hosts[host] = KnownHost(host)
        return known

    def __iter__(self) -> Iterator[KnownHost]:
        return iter(list(self.hosts.values()))

    def __len__(self) -> int:
        return len(self.hosts)

    def spread_s(self, known: KnownHost) -> float:
        """Seconds to wait before this host is asked, when all hosts are."""
        return known.share * min(SPREAD_S, max(0, len(self.hosts) - HOSTS_AT_ONCE) / HOSTS_PER_SECOND)

    def beats(self, forced_down: Collection[str], now: float) -> Beats:
        """How many hosts are alive, and the longest silence among them. `now`: monotonic, seconds."""
        beats = Beats()
        for known in self:
            if known.host in forced_down:
                beats.down += 1
            elif known.silent:
                beats.silent += 1
            else:
                beats.up += 1
                if known.heard != NEVER:
                    beats.oldest_s = max(beats.oldest_s, now - known.heard)
        return beats
