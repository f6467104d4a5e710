"""Every refused host has a reason with numbers (N2): the explanation of a decision against an oracle, on random fleets."""

import random
import re

import pytest
from tests.helpers.scheduler_oracle import Fleet, Found, Host, a_fleet, an_ask, verdicts
from tests.helpers.world_builder import Cloud

from moorage.model.ids import ProviderId
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, NicRequirement
from moorage.scheduler.profile import FILTERS, Profile
from moorage.scheduler.rank import rank

FLEETS_PER_SEED = 150
ALL_OF_THEM = Profile(best=1000, placed=1000, misses=1000)
TOGETHER = "devices_together"
NAMES = [*(judge.__name__ for judge in FILTERS), TOGETHER]


def decided(fleet: Fleet, ask: Ask) -> tuple[Verdict, dict[str, Found]]:
    """The scheduler's verdict, and what it says of each refused host, in parts."""
    verdict = rank(ask, fleet.world(), ALL_OF_THEM)
    assert not verdict.ledger.others
    assert not verdict.ledger.left_out
    return verdict, {miss.host: (miss.filter, parts(miss.filter, miss.why)) for miss in verdict.ledger.misses}


def parts(judge: str, why: str) -> frozenset[str]:
    if judge == TOGETHER:
        return frozenset()  # its numbers are looked at below
    text = why.removeprefix("not wired to ")
    return frozenset(re.split(r", nor to |; ", text)) - {""}


@pytest.mark.parametrize("seed", range(8))
def test_every_refused_host_has_its_reason(seed: int) -> None:
    """The same hosts, the same first cause, the same numbers: of a thousand fleets, without one exception."""
    dice = random.Random(seed)
    for number in range(FLEETS_PER_SEED):
        fleet = a_fleet(dice)
        ask = an_ask(dice, fleet)
        where = f"seed {seed}, fleet {number}: {ask}"
        verdict, said = decided(fleet, ask)
        found = {host.name: list(verdicts(ask, fleet, host)) for host in fleet.hosts}
        expected = {name: causes[0] for name, causes in found.items() if causes}
        assert said.keys() == expected.keys(), where
        for host, cause in expected.items():
            assert said[host] == cause, f"{host}: {where}"
        willing = {choice.name for choice in verdict.best}
        assert willing == found.keys() - expected.keys(), where
        assert (verdict.ledger.considered, verdict.ledger.willing) == (len(fleet.hosts), len(willing)), where
        assert sum(verdict.counts().values()) == len(expected), where
        assert all(f" {amount}" in f" {miss.why}" for miss in verdict.ledger.misses if miss.filter == TOGETHER
                   for group in ask.groups for amount in group.resources.values()), where  # fmt: skip


BY_KIND = {"image_properties", "compute_capabilities", "unmade_requests"}
"""Held by `test_request_names.py`."""


def test_random_worlds_cover_every_cause() -> None:
    """The fleets are not too kind: each filter refuses some host, as the first, somewhere; and some host is always willing."""
    met: set[str] = set()
    willing = 0
    dice = random.Random(0)
    for _ in range(FLEETS_PER_SEED * 10):
        fleet = a_fleet(dice)
        verdict, said = decided(fleet, an_ask(dice, fleet))
        met |= {judge for judge, _ in said.values()}
        willing += bool(verdict.best)
        if willing > FLEETS_PER_SEED and len(met) == len(NAMES) - 2 - len(BY_KIND):
            break
    elsewhere = {"cell_allowed", "cell_enabled"} | BY_KIND
    assert set(NAMES) - met <= elsewhere, "asked of moves only; no fleet has a disabled cell, or hosts of several kinds"
    assert willing > FLEETS_PER_SEED


def test_the_oracle_detects_a_wrong_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that lets one host more pass, or says another number, would be noticed."""
    dice = random.Random(3)
    fleets = [(fleet, an_ask(dice, fleet)) for fleet in (a_fleet(dice) for _ in range(50))]

    def differences(spoil: "dict[str, Host]") -> int:
        count = 0
        for fleet, ask in fleets:
            _, said = decided(fleet, ask)
            for host in fleet.hosts:
                causes = list(verdicts(ask, fleet, spoil.get(host.name, host)))
                count += said.get(host.name) != (causes[0] if causes else None)
        return count

    assert differences({}) == 0
    other = fleets[0][0].hosts[0]
    assert differences({"h0": other}) > 0


def test_nics_of_one_network_are_judged_together() -> None:
    """One of them has its address already and so its segment; the other would have to take the same."""
    for free in ((1, 0), (2, 0), (1, 1), (0, 2)):
        cloud = Cloud().host("h1", wired=("s1", "s2")).segment("s1", free[0], 9).segment("s2", free[1], 9)
        nics = (
            NicRequirement("fixed", (ProviderId("s1"),)),
            NicRequirement("any", (ProviderId("s1"), ProviderId("s2"))),
        )
        verdict = rank(Ask(resources={"VCPU": 1}, nics=nics), cloud.world(), Profile())
        enough = free[0] > 0 and sum(free) >= 2
        assert bool(verdict.best) is enough
        assert verdict.counts() == ({} if enough else {"no free address on the network's segment": 1})
