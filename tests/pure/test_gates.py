"""Each gate over every small fleet: open exactly when all processes it concerns support it, and closed with the right names."""

from itertools import product

import msgspec
import pytest

from moorage.model.ids import CellId
from moorage.operations.gates import (
    BLOCKERS_SHOWN_MAX,
    OPEN,
    ConductorCredentials,
    Credentials,
    GateFacts,
    Gates,
    HostLevel,
    decide,
    report,
)

LEVELS = [levels for count in range(4) for levels in product((1, 2, 3), repeat=count)]
PINS = (None, 1, 2, 3)
STATES = [states for count in range(3) for states in product(Credentials, repeat=count)]


def facts(levels: tuple[int, ...], states: tuple[Credentials, ...], pin: int | None) -> GateFacts:
    hosts = tuple(HostLevel(f"host{n}", CellId(f"cell{n % 2}"), level) for n, level in enumerate(levels))
    return GateFacts(hosts, tuple(ConductorCredentials(f"c{n}", state) for n, state in enumerate(states)), pin)


@pytest.mark.parametrize("pin", PINS)
def test_gates_of_all_small_fleets(pin: int | None) -> None:
    for levels, states in product(LEVELS, STATES):
        gates = decide(facts(levels, states, pin))
        credentials = Credentials.REFUSED not in states
        early = credentials and all(level >= 2 for level in levels) and pin != 1
        bound = early and all(level == 3 for level in levels) and pin in (None, 3)
        needed = credentials and not early and pin != 1
        assert gates == Gates(early, bound, credentials, needed), (levels, states, pin)
        assert gates.made_early().early_ports == (credentials and pin != 1)
        assert gates.made_early().min_level == (3 if bound else 2 if credentials and pin != 1 else 0)
        assert gates.min_level == (3 if bound else 2 if early else 0)
        assert (gates.max_level >= 3) == credentials
        allowed = [level for level in levels if gates.min_level <= level <= gates.max_level]
        if credentials:
            assert allowed == list(levels), (
                "no host of the fleet itself is refused while the conductor can reach the network"
            )


def test_the_report_names_exactly_the_blockers() -> None:
    for levels, states, pin in product(LEVELS, STATES, PINS):
        asked = facts(levels, states, pin)
        told = report(asked)
        early, bound = told.gates
        assert (early.open, bound.open) == (decide(asked).early_ports, decide(asked).bind_in_conductor)
        assert {host.host for host in early.blocked_by} == {h.host for h in asked.hosts if h.level < 2}
        assert {host.host for host in bound.blocked_by} == {h.host for h in asked.hosts if h.level < 3}
        assert early.open == (not early.reasons)
        assert bound.open == (not bound.reasons)
        assert sum(told.levels.values()) == len(levels)
        assert bool(told.warnings) == (Credentials.REFUSED in states or pin in (1, 2))
        msgspec.json.encode(told)


def test_many_blocking_hosts_are_counted_and_some_are_named() -> None:
    early = report(facts((1,) * 80, (), None)).gates[0]
    assert (len(early.blocked_by), early.hosts_blocking) == (BLOCKERS_SHOWN_MAX, 80)


def test_an_operation_of_an_earlier_release_keeps_its_gates() -> None:
    """Its journal says nothing of gates: ports were made early and bound by the conductor."""
    assert msgspec.json.decode(b"{}", type=Gates) == OPEN == Gates(True, True, True)
