"""What the audit does not repair, because a service may have shown less than there is (RULES §22)."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from tests.helpers.drifted_ports import ImmediateDispatcher
from tests.helpers.leak_planting import a_port, change, change_claim, change_port, in_region, record
from tests.helpers.planted_leaks import PLANTS
from tests.sagas.test_audit_finds import Guests

from moorage.conductor.audit.auditor import TOO_MANY_LOST, Auditor
from moorage.conductor.audit.claim_checks import HIDDEN
from moorage.conductor.reconcilers import port_drift
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.model.audit import OF_ALLOCATIONS, OF_PORTS_ALLOCATIONS, AuditReport, AuditRequest
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.network import FixedIp, Port, SubnetFacts
from moorage.model.request_groups import ALLOCATION
from moorage.model.server import Moved, VmState
from moorage.model.volume import Attachment
from moorage.operations.steps.ports import guarantees_of
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Key
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_guarantees import BANDWIDTH
from moorage_testing.region_states import attached
from moorage_testing.region_volumes import VOLUME
from moorage_testing.saga_proof import PROVED_OPERATION


async def opened(*, guarantees: bool) -> SmallRegion:
    small = await SmallRegion.open()
    await attached(small, "made" if guarantees else "routed", guarantees=guarantees)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    small.context = dataclasses.replace(small.context, dispatcher=cast("Any", ImmediateDispatcher(small)))
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
    return await Auditor(small.context, Guests(small), SystemClock(), again_after_s=0).run(
        AuditRequest(**asked), "a", "b"
    )


async def held(small: SmallRegion) -> dict[Key, int]:
    return dict(await small.region.read(lambda tx: claim_statements.held(tx, SERVER)))


# ------------------------------------------------------------------------------------------------ ports that are missing


@pytest.mark.parametrize("kinds", [(), ("port_missing",), ("port_addresses_differ",)], ids=["all", "missing", "differ"])
async def test_findings_of_many_missing_ports_are_dropped(
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


async def test_findings_of_few_missing_ports_are_repaired(routed: SmallRegion) -> None:
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


async def test_providers_of_another_host_in_a_binding_are_not_claimed(guaranteed: SmallRegion) -> None:
    before = await held(guaranteed)
    names_another_host(guaranteed, str((await record(guaranteed)).host))
    found = await look(guaranteed)
    assert found.counts == {"port_profile_wrong": 1}
    await change_claim(guaranteed, "VCPU", used=3)
    done = await look(guaranteed, kinds=("allocation_amounts_wrong", "port_allocation_missing"), repair=True)
    assert done.repaired == {"allocation_amounts_wrong": 1}
    assert await held(guaranteed) == before, "the bandwidth that is in use stays claimed where it is"


async def test_a_port_bound_to_another_host_is_bound_to_the_claimed_providers(
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


async def test_a_port_is_not_bound_when_no_provider_can_serve_its_guarantee(guaranteed: SmallRegion) -> None:
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
async def test_addresses_of_hidden_subnets_stay_claimed(
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


# ------------------------------------------------------------------------------------------------ operations that begin meanwhile


@pytest.mark.parametrize("changes", [{"operation": "resize"}, {"op_seq": 99}], ids=["begun", "ended"])
async def test_a_port_is_not_bound_when_an_operation_began_after_the_second_read(
    changes: dict[str, Any], routed: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    await PLANTS["port_unbound"](routed)
    every, begun = routed.network.ports_of, 0

    async def ports_of(server: str, token: str | None = None) -> tuple[Port, ...]:
        nonlocal begun
        begun += 1
        if begun > 1:  # the second look has asked, and now the repair does
            await in_region(routed, region_servers.servers.update().values(**changes))
        return await every(server, token)

    monkeypatch.setattr(routed.network, "ports_of", ports_of)
    done = await look(routed, kinds=("port_unbound",), repair=True)
    assert (begun, done.repaired, done.left) == (2, {}, {"port_unbound": 1})
    assert a_port(routed).host == ""


async def test_bindings_that_a_revert_needs_are_kept(routed: SmallRegion) -> None:
    await PLANTS["port_binding_left"](routed)
    server = await record(routed)
    moved = Moved(at=1, migration="m", vm_state=VmState.ACTIVE, flavor=server.flavor, host="host9")
    await change(routed, moved=moved)
    done = await look(routed, kinds=("port_binding_left",), repair=True)
    assert done.repaired == {}
    assert (a_port(routed).id, "host9") in routed.network.inactive


# ------------------------------------------------------------------------------------------------ volumes of several servers


@pytest.mark.parametrize("servers", [1, 2])
async def test_a_detaching_volume_with_several_attachments_is_no_finding(servers: int, routed: SmallRegion) -> None:
    await PLANTS["volume_detaching_left"](routed)
    if servers == 2:
        routed.volumes.attachments["theirs"] = Attachment(
            id="theirs", volume=VOLUME, server="another", status="attached"
        )
    assert len((await routed.volumes.show(VOLUME)).attachments) == servers
    done = await OrphanAttachments(routed.context).run()
    status = (await routed.volumes.show(VOLUME)).status
    assert (done.mended, status) == ((1, "in-use") if servers == 1 else (0, "detaching"))
    await PLANTS["volume_detaching_left"](routed)
    report = await look(routed, kinds=("volume_detaching_left",), repair=True)
    assert report.repaired == ({"volume_detaching_left": 1} if servers == 1 else {})
    assert report.counts == report.repaired


# ------------------------------------------------------------------------------------------------ claims of ports


async def test_claims_of_ports_are_kept_when_only_other_kinds_are_healed(guaranteed: SmallRegion) -> None:
    before = await held(guaranteed)
    await change_claim(guaranteed, BANDWIDTH, used=7)
    await change_claim(guaranteed, "VCPU", used=3)
    many = await held(guaranteed)
    kinds = tuple(kind for kind in OF_ALLOCATIONS if kind not in OF_PORTS_ALLOCATIONS)
    assert (await look(guaranteed, kinds=kinds, repair=True)).repaired == {"allocation_amounts_wrong": 1}
    assert await held(guaranteed) == {
        key: amount if key[1] == BANDWIDTH else before[key] for key, amount in many.items()
    }
    done = await look(guaranteed, kinds=OF_ALLOCATIONS, repair=True)
    assert sum(done.repaired.values()) == done.found > 0
    assert await held(guaranteed) == before


@pytest.mark.parametrize("out", [False, True], ids=["skipped", "out"])
async def test_addresses_are_kept_when_only_other_claims_can_be_healed(
    out: bool, routed: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await held(routed)
    await change_claim(routed, "IPV4_ADDRESS", used=5)
    await change_claim(routed, "VCPU", used=3)
    many = await held(routed)

    async def nothing(*args: object) -> Any:
        raise Unavailable("The network service is out.")

    if out:
        for name in ("ports_of", "held_by_ports", "subnets"):
            monkeypatch.setattr(routed.network, name, nothing)
    kinds = tuple(kind for kind in OF_ALLOCATIONS if out or kind not in OF_PORTS_ALLOCATIONS)
    done = await look(routed, kinds=kinds, repair=True)
    assert (done.repaired, "network" in done.not_looked_at) == ({"allocation_amounts_wrong": 1}, out)
    assert done.left == ({"address_claim_orphaned": 1} if out else {})
    assert await held(routed) == {
        key: amount if key[1] == "IPV4_ADDRESS" else before[key] for key, amount in many.items()
    }
