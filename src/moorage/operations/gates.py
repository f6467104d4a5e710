"""Gates: which behaviour the hosts' levels, the pin and our own credentials allow (S0.9 to S0.12; RULES §13).

Two things changed between releases. Each is on only when every process concerned supports it:

    early ports          ports are made before a host is chosen: every agent is at level 2 or more, and the conductors'
                         credentials for the network service work
    bind in conductor    ports arrive bound at the host: every agent is at level 3 besides

`decide` is a pure function of `GateFacts`. An operation calls it once, when it begins, and keeps the `Gates` in its
input: a later executor does not decide again. A gate that opens or closes affects only operations that begin
afterwards.

The levels are those of every host that the region knows, silent ones too: a silent old host may return at any moment.

**Guarantees.** Guaranteed bandwidth can be claimed only for ports that are known before a host is chosen (N5). While
`early_ports` is shut, a boot with such ports makes them early all the same, and goes only to hosts of level 2 or more,
which support that.

**Mixed.** A host of level 3 has no network client. So while a gate is shut, the conductor makes and binds the ports of
builds on such hosts, and of no others. If the conductor has no credentials either, the host is refused, with that
reason.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from moorage.model.ids import CellId
from moorage.model.world import World

BINDS_PORTS = 2
PORTS_ARRIVE_BOUND = 3
ANY_LEVEL = 127
BLOCKERS_SHOWN_MAX = 50


class Credentials(StrEnum):
    """What is known about our credentials for the network service."""

    WORKING = "working"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """No service answered that could decide it: an outage does not change how boots are done."""


class HostLevel(msgspec.Struct, frozen=True):
    """A host and the level of its agent."""

    host: str
    cell: CellId
    level: int


class ConductorCredentials(msgspec.Struct, frozen=True):
    """A conductor, and whether the network service accepts its credentials."""

    conductor: str
    state: Credentials
    why: str = ""


class GateFacts(msgspec.Struct, frozen=True):
    """Everything that decides the gates."""

    hosts: tuple[HostLevel, ...] = ()
    conductors: tuple[ConductorCredentials, ...] = ()
    pin: int | None = None
    """`[upgrade_levels] compute`: behave as if every agent had at most this level."""


class Gates(msgspec.Struct, frozen=True):
    """How an operation makes and binds ports, from its beginning to its end."""

    early_ports: bool = True
    bind_in_conductor: bool = True
    credentials: bool = True
    """Whether conductors can call the network service."""
    early_where_needed: bool = False
    """While `early_ports` is shut: a boot that needs it may make its ports early, on hosts that support that."""

    def made_early(self) -> "Gates":
        """The gates for a boot whose ports must be known before a host is chosen; unchanged where that is not allowed."""
        return msgspec.structs.replace(self, early_ports=self.early_ports or self.early_where_needed)

    @property
    def min_level(self) -> int:
        """Hosts of a lower level are refused during the operation."""
        return PORTS_ARRIVE_BOUND if self.bind_in_conductor else BINDS_PORTS if self.early_ports else 0

    @property
    def max_level(self) -> int:
        """Hosts of a higher level are refused: neither they nor the conductor could bind the ports."""
        return ANY_LEVEL if self.credentials else BINDS_PORTS


OPEN = Gates()
"""The gates when all hosts are of the current level."""


def decide(facts: GateFacts) -> Gates:
    """Return the behaviour of operations that begin now."""
    lowest = min((host.level for host in facts.hosts), default=PORTS_ARRIVE_BOUND)
    return decide_by(lowest, facts.pin, facts.conductors)


def decide_by(lowest: int, pin: int | None, conductors: Sequence[ConductorCredentials]) -> Gates:
    """Return the behaviour of operations that begin now, from the lowest level of all hosts."""
    level = lowest if pin is None else min(lowest, pin)
    credentials = all(each.state is not Credentials.REFUSED for each in conductors)
    early = credentials and level >= BINDS_PORTS
    needed = credentials and not early and (pin is None or pin >= BINDS_PORTS)
    return Gates(early, early and level >= PORTS_ARRIVE_BOUND, credentials, needed)


def hosts_of(world: World) -> tuple[HostLevel, ...]:
    """Every host of the world, with its level."""
    return tuple(
        HostLevel(world.names[slot], world.cell_names[world.cell[slot]], int(world.level[slot]))
        for slot in range(world.size)
        if world.present[slot]
    )


def lowest_level(world: World) -> int:
    """The level of the oldest agent; the current level when there is no host."""
    levels = world.level[world.present]
    return int(levels.min()) if levels.size else PORTS_ARRIVE_BOUND


# ---------------------------------------------------------------------------------------------------------- the report


class GateReport(msgspec.Struct, frozen=True):
    """One gate: whether it is open, and what keeps it shut."""

    name: Literal["early_ports", "bind_in_conductor"]
    open: bool
    behaviour: str
    needs_level: int
    blocked_by: tuple[HostLevel, ...] = ()
    """The first hosts whose agents are too old."""
    hosts_blocking: int = 0
    reasons: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """Which behaviour is on, and what keeps the other off (N14)."""

    gates: tuple[GateReport, ...]
    levels: dict[int, int]
    pin: int | None
    credentials: Credentials
    conductors: tuple[ConductorCredentials, ...]
    warnings: tuple[str, ...] = ()


BEHAVIOUR = {
    ("early_ports", True): "ports are made before a host is chosen",
    (
        "early_ports",
        False,
    ): "ports are made after a host was chosen, by the host itself; those of networks that guarantee "
    "something before, for hosts of level 2 and more",
    ("bind_in_conductor", True): "the conductor binds ports, and hosts are sent finished ones",
    ("bind_in_conductor", False): "hosts of level 1 and 2 bind ports; the conductor does so for hosts of level 3 only",
}


def report(facts: GateFacts) -> Report:
    """The report for `moorage status` and `/ext/gates`."""
    gates = decide(facts)
    states = [each.state for each in facts.conductors]
    worst = next((state for state in (Credentials.REFUSED, Credentials.UNKNOWN) if state in states), None)
    credentials = worst or (Credentials.WORKING if states else Credentials.UNKNOWN)
    return Report(
        gates=(
            _report("early_ports", gates.early_ports, BINDS_PORTS, facts),
            _report("bind_in_conductor", gates.bind_in_conductor, PORTS_ARRIVE_BOUND, facts),
        ),
        levels=dict(sorted(Counter(host.level for host in facts.hosts).items())),
        pin=facts.pin,
        credentials=credentials,
        conductors=facts.conductors,
        warnings=warnings(facts),
    )


def warnings(facts: GateFacts) -> tuple[str, ...]:
    """What the deployer should correct (S0.10), as sentences."""
    lines = [
        f"{each.conductor}: the network service does not accept its credentials ({each.why or 'refused'}): ports are made by "
        "the hosts, as before, and the next release refuses to start like this; see [service_user]"
        for each in facts.conductors
        if each.state is Credentials.REFUSED
    ]
    if facts.pin is not None and facts.pin < PORTS_ARRIVE_BOUND:
        lines.append(
            f"[upgrade_levels] compute holds the behaviour at level {facts.pin}; remove it when all is upgraded"
        )
    return tuple(lines)


def _report(
    name: Literal["early_ports", "bind_in_conductor"], is_open: bool, needs_level: int, facts: GateFacts
) -> GateReport:
    old = sorted(
        (host for host in facts.hosts if host.level < needs_level), key=lambda host: (host.level, host.cell, host.host)
    )
    reasons = []
    if old:
        reasons.append(f"{len(old)} of {len(facts.hosts)} hosts are below level {needs_level}")
    if facts.pin is not None and facts.pin < needs_level:
        reasons.append(f"pinned to level {facts.pin} by [upgrade_levels] compute")
    reasons += [
        f"{each.conductor} has no working credentials for the network service"
        for each in facts.conductors
        if each.state is Credentials.REFUSED
    ]
    shown = tuple(old[:BLOCKERS_SHOWN_MAX])
    return GateReport(name, is_open, BEHAVIOUR[name, is_open], needs_level, shown, len(old), tuple(reasons))
