"""What the audit does not mend, because what it was told may be less than there is (RULES §22)."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from audit_plants import PLANTS, a_port, change_claim, change_port, record
from test_audit_finds import Guests
from test_port_drift import ToldAtOnce

from moorage.conductor.audit.auditor import TOO_MANY_LOST, Auditor
from moorage.conductor.audit.claims import HIDDEN
from moorage.conductor.reconcilers import port_drift
from moorage.model.audit import AuditAsked, AuditReport
from moorage.model.clock import SystemClock
from moorage.model.network import FixedIp, SubnetFacts
from moorage.model.request_groups import ALLOCATION
from moorage.operations.steps.ports import guarantees_of
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claims
from moorage.store.region.placement.claims import Key
from moorage.testing.sagas import PROVED_OPERATION
from moorage.testing.small_region import SERVER, SmallRegion
from moorage.testing.small_stories import attached


async def opened(*, guarantees: bool) -> SmallRegion:
    small = await SmallRegion.open()
    await attached(small, "made" if guarantees else "routed", guarantees=guarantees)
    await small.region.write(lambda tx: region_servers.let_go(tx, SERVER, PROVED_OPERATION))
    small.rooms = dataclasses.replace(small.rooms, tellers=cast("Any", ToldAtOnce(small)))
    return small


@pytest.fixture
async def routed() -> AsyncIterator[SmallRegion]:
    """A server with three cards, one of them on a routed network; nobody holds it."""
    small = await opened(guarantees=False)
    yield small
    await small.close()


@pytest.fixture
async def guaranteed() -> AsyncIterator[SmallRegion]:
    """A server whose cards have guarantees; nobody holds it."""
    small = await opened(guarantees=True)
    yield small
    await small.close()


async def look(small: SmallRegion, **asked: Any) -> AuditReport:
    return await Auditor(small.rooms, Guests(small), SystemClock(), again_after_s=0).run(AuditAsked(**asked), "a", "b")


async def held(small: SmallRegion) -> dict[Key, int]:
    return dict(await small.region.read(lambda tx: claims.held(tx, SERVER)))


# ------------------------------------------------------------------------------------------------ ports that are missing


@pytest.mark.parametrize("kinds", [(), ("port_missing",), ("port_addresses_differ",)], ids=["all", "missing", "differ"])
async def test_many_ports_missing_at_once_are_not_believed(
    kinds: tuple[str, ...], routed: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_drift, "LOST_AT_ONCE_MAX", 0)
    lost = a_port(routed)
    del routed.network.ports[lost.id]
    change_port(routed, fixed_ips=(FixedIp("subnet-1", "10.0.0.222"),))
    before = await record(routed)
    done = await look(routed, kinds=kinds, repair=True)
    assert await record(routed) == before, "no card is unplugged"
    assert done.repaired == {}
    assert done.left == done.counts
    assert done.counts
    if "port_missing" in (kinds or {"port_missing"}):
        assert {each.repair for each in done.findings if each.kind == "port_missing"} == {TOO_MANY_LOST}
        assert "network" in done.not_looked_at


async def test_a_few_ports_that_are_missing_are_believed(routed: SmallRegion) -> None:
    await PLANTS["port_missing"](routed)
    done = await look(routed, kinds=("port_missing",), repair=True)
    assert (done.repaired, done.not_looked_at) == ({"port_missing": 1}, {})


# ------------------------------------------------------------------------------------------------ providers of another host


def names_another_host(small: SmallRegion, here: str, **changes: Any) -> None:
    """The binding of a port names providers of another host."""
    other = "host2" if here != "host2" else "host3"
    port = a_port(small)
    named = {group: provider.replace(here, other) for group, provider in port.profile[ALLOCATION].items()}
    assert named != port.profile[ALLOCATION]
    change_port(small, profile={**port.profile, ALLOCATION: named}, **({"host": other} if changes else {}))


async def test_a_binding_that_names_providers_of_another_host_is_not_claimed(guaranteed: SmallRegion) -> None:
    before = await held(guaranteed)
    names_another_host(guaranteed, str((await record(guaranteed)).host))
    found = await look(guaranteed)
    assert found.counts == {"port_profile_wrong": 1}
    await change_claim(guaranteed, "VCPU", used=3)
    done = await look(guaranteed, kinds=("allocation_amounts_wrong",), repair=True)
    assert done.repaired == {"allocation_amounts_wrong": 1}
    assert await held(guaranteed) == before, "the bandwidth that is in use stays claimed where it is"


async def test_a_port_that_is_bound_elsewhere_comes_back_to_the_providers_that_are_claimed(
    guaranteed: SmallRegion,
) -> None:
    before, was = await held(guaranteed), a_port(guaranteed)
    names_another_host(guaranteed, was.host, host=True)
    done = await look(guaranteed, kinds=("port_bound_elsewhere",), repair=True)
    assert done.repaired == {"port_bound_elsewhere": 1}
    now = guaranteed.network.ports[was.id]
    assert (now.host, now.profile) == (was.host, was.profile)
    assert guarantees_of(now) == guarantees_of(was)
    assert (await look(guaranteed)).counts == {}
    assert await held(guaranteed) == before


async def test_a_port_is_not_bound_where_nobody_could_give_what_it_is_guaranteed(guaranteed: SmallRegion) -> None:
    port = a_port(guaranteed)
    names_another_host(guaranteed, port.host, host=True)
    strange = {"request_groups": [{"id": "g", "resources": {"CUSTOM_NOBODY": 1}, "required": []}], "same_subtree": []}
    change_port(guaranteed, resource_request=strange)
    bound = a_port(guaranteed).host
    done = await look(guaranteed, kinds=("port_bound_elsewhere",), repair=True)
    assert (done.repaired, done.left) == ({}, {"port_bound_elsewhere": 1})
    assert a_port(guaranteed).host == bound != port.host


# ------------------------------------------------------------------------------------------------ subnets that are not shown


def hide_segments(small: SmallRegion, monkeypatch: pytest.MonkeyPatch, *, listed: bool) -> None:
    """Our account lost its role: subnets are not listed, or without their segments."""
    every = small.network.subnets

    async def shown(network: str | None = None) -> tuple[SubnetFacts, ...]:
        return tuple(
            msgspec.structs.replace(each, segment=None)
            for each in await every(network)
            if listed or each.segment is None
        )

    monkeypatch.setattr(small.network, "subnets", shown)


@pytest.mark.parametrize("listed", [True, False], ids=["without_segment", "not_listed"])
async def test_addresses_of_subnets_that_are_not_shown_stay_claimed(
    listed: bool, routed: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await held(routed)
    hide_segments(routed, monkeypatch, listed=listed)
    done = await look(routed, repair=True)
    assert {each.repair for each in done.findings} <= {HIDDEN}
    assert {each.kind for each in done.findings} <= {"port_addresses_differ"}
    assert done.repaired == {}
    assert await held(routed) == before
    await change_claim(routed, "IPV4_ADDRESS", used=5)
    await change_claim(routed, "VCPU", used=3)
    many = await held(routed)
    done = await look(routed, repair=True)
    assert done.repaired == {"allocation_amounts_wrong": 1}
    assert [each.repair for each in done.findings if each.kind == "address_claim_orphaned"] == [HIDDEN]
    assert await held(routed) == {
        key: amount if key[1] == "IPV4_ADDRESS" else before[key] for key, amount in many.items()
    }
