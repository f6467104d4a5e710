"""Every kind of planted leak is found, named, and repaired if possible; and nothing is found in a correct region (N4)."""

import dataclasses
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from tests.helpers.drifted_ports import ImmediateDispatcher
from tests.helpers.leak_planting import a_port, drop_claim, record
from tests.helpers.planted_leaks import PLANTS
from tests.helpers.planted_record_leaks import WITH_GUARANTEES

from moorage.conductor.audit.audit_loop import BEGUN_AGAIN_S, GIVEN_UP, Audits
from moorage.conductor.audit.auditor import Auditor
from moorage.conductor.guest_reconciliation import Belonging
from moorage.conductor.reconcilers.orphan_images import GRACE_S
from moorage.model.audit import KINDS, AuditReport, AuditRequest, AuditStatus
from moorage.model.clock import SystemClock
from moorage.model.errors import Stale
from moorage.model.guest import PowerState
from moorage.model.guest_devices import GuestDevices, recorded_devices
from moorage.model.ids import ProviderId, ServerId
from moorage.model.image import Image
from moorage.model.network import Binding
from moorage.model.request_groups import ALLOCATION
from moorage.model.resources import Inventory
from moorage.placement.inventory import DeviceReport
from moorage.store.region import audits
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import HOSTS, SERVER, SmallRegion
from moorage_testing.region_guarantees import BANDWIDTH
from moorage_testing.region_states import attached
from moorage_testing.saga_proof import PROVED_OPERATION

ALSO = {
    "mapping_missing": {"quota_usage_wrong"},
    "guest_elsewhere": {"guest_missing"},
    "record_missing": {"guest_unknown"},
    "mapping_deleted_record_live": {"guest_orphaned"},
    "record_deleted_mapping_live": {"port_orphaned", "port_not_let_go", "quota_usage_wrong"},
    "record_in_two_cells": {"quota_usage_wrong"},
    "hidden_record_left": {"quota_usage_wrong"},
    "port_allocation_wrong_provider": {"port_allocation_missing"},
    "guest_volume_of_other": {"attachment_owner_unknown"},
    "guest_volume_replaced": {"attachment_missing", "attachment_orphaned"},
}
"""What such a leak brings with it."""

LEFT = {"guest_elsewhere": {"guest_missing": 1}, "guest_volume_of_other": {"attachment_owner_unknown": 1}}
"""What an audit leaves: it makes no guest, and the other server of a volume is planted at the volume service alone."""


class Guests:
    """Hosts in dicts that tell of their guests at once; from the second time on they obey what their cells say to it."""

    def __init__(self, small: SmallRegion) -> None:
        self.small = small
        self.asked = 0

    def seen(self) -> tuple[Mapping[str, Mapping[ServerId, PowerState]], Mapping[str, str]]:
        guests = self.small.hosts.guests
        return {host: {server: power for (at, server), power in guests.items() if at == host} for host, _ in HOSTS}, {}

    async def differing(self) -> Mapping[str, Mapping[ServerId, GuestDevices]]:
        """Only where a difference was planted: other plants change records alone."""
        if not self.small.hosts.tells_devices:
            return {}
        server = await record(self.small)
        has = self.small.hosts.devices_of(str(server.host), server.id)
        return {str(server.host): {server.id: has}} if has.names != recorded_devices(server).names else {}

    async def ask_again(self, hosts: Collection[str]) -> Collection[str]:
        self.asked += 1
        for host in hosts if self.asked > 1 else ():
            for cell in (cell for name, cell in HOSTS if name == host):
                judge = Belonging(cell, self.small.cells[cell], self.small.region, self.small.engine)
                told = await judge.judge(host, [server for at, server in self.small.hosts.guests if at == host])
                for wrong in told.wrong:
                    self.small.hosts.guests.pop((host, wrong.server), None)
        return hosts


@pytest.fixture
async def small(request: pytest.FixtureRequest) -> AsyncIterator[SmallRegion]:
    """A server with three cards, one of them on a routed network or all with guarantees; nobody holds it."""
    region = await SmallRegion.open()
    kind = request.node.callspec.params.get("kind", "") if hasattr(request.node, "callspec") else ""
    if kind in WITH_GUARANTEES:
        await attached(region, "made", guarantees=True)
    else:
        await attached(region, "routed")
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    region.context = dataclasses.replace(region.context, dispatcher=cast("Any", ImmediateDispatcher(region)))
    yield region
    await region.close()


def auditor(small: SmallRegion) -> Auditor:
    return Auditor(small.context, Guests(small), SystemClock(), again_after_s=0)


async def look(small: SmallRegion, **asked: Any) -> AuditReport:
    return await auditor(small).run(AuditRequest(**asked), "audit-1", "somebody")


async def test_an_audit_of_a_consistent_region_finds_nothing(small: SmallRegion) -> None:
    report = await look(small)
    assert report.findings == ()
    assert report.counts == {}
    assert report.not_looked_at == {}
    assert (report.looked_at["servers"], report.looked_at["ports"], report.looked_at["hosts"]) == (1, 3, 3)


async def test_a_recently_written_image_is_no_finding(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    await PLANTS["image_left_half_made"](small)
    every = small.images.every

    async def changed(filters: Mapping[str, str], *, at_most: int) -> list[Image]:
        found = await every(filters, at_most=at_most)
        return [msgspec.structs.replace(each, updated_at=at.isoformat()) for each in found]

    monkeypatch.setattr(small.images, "every", changed)
    for age_s, counts in ((GRACE_S / 2, {}), (GRACE_S * 2, {"image_left_half_made": 1})):
        at = datetime.now(UTC) - timedelta(seconds=age_s)
        assert (await look(small)).counts == counts


async def test_an_audit_whose_process_died_is_run_again_by_another_process(small: SmallRegion) -> None:
    """As many as are read at once were begun and not ended, and none of them keeps a newer one waiting."""
    await PLANTS["allocation_missing"](small)
    region, now_us = small.region, int(SystemClock().now() * 1_000_000)
    for number in range(12):
        await region.write(lambda tx, id=f"cut-{number:02}": audits.ask(tx, id, "somebody", AuditRequest(), now_us))
        await region.write(lambda tx, id=f"cut-{number:02}": audits.begin(tx, id, now_us))
    old_us = now_us - int(BEGUN_AGAIN_S * 1_000_000) - 1
    await region.write(lambda tx: audits.ask(tx, "ever", "somebody", AuditRequest(), old_us))
    await region.write(lambda tx: audits.begin(tx, "ever", old_us))
    await region.write(lambda tx: audits.ask(tx, "newer", "somebody", AuditRequest(), now_us))
    rounds = Audits(small.context, auditor(small), SystemClock(), every_s=0, repairs=False)
    ran = [(await rounds.run()).ran for _ in range(3)]
    assert ran == [9, 4, 0], "ten at a time; one of them is given up"
    told = {each.id: each for each in await region.read(lambda tx: audits.listed(tx, 20))}
    assert {told[id].report.found for id in ("cut-00", "cut-11", "newer")} == {1}
    assert (told["ever"].status, told["ever"].why) == (AuditStatus.FAILED, GIVEN_UP)
    newer = told["newer"].began_at or 0
    await region.write(lambda tx: audits.end(tx, "newer", newer, AuditReport(), now_us, "too late"))
    late = await region.read(lambda tx: audits.get(tx, "newer"))
    assert late is not None
    assert late.report.found == 1, "who was taken for dead says nothing any more"


async def test_a_process_that_lost_its_audit_repairs_and_ends_nothing(small: SmallRegion) -> None:
    """It lives, and only its lease was lost; the clocks of the two may say the same."""
    await PLANTS["allocation_missing"](small)
    region, now_us = small.region, int(SystemClock().now() * 1_000_000)
    await region.write(lambda tx: audits.ask(tx, "one", "somebody", AuditRequest(repair=True), now_us))
    first, second = [await region.write(lambda tx: audits.begin(tx, "one", now_us)) for _ in range(2)]
    assert first is not None
    assert second is not None
    with pytest.raises(Stale):
        await auditor(small).run(AuditRequest(repair=True), "one", "somebody", first)
    assert await region.read(lambda tx: audits.repairs_of(tx, "one")) == []
    await region.write(lambda tx: audits.end(tx, "one", first, AuditReport(), now_us, "lost"))
    report = await auditor(small).run(AuditRequest(repair=True), "one", "somebody", second)
    assert report.repaired == {"allocation_missing": 1}
    await region.write(lambda tx: audits.end(tx, "one", second, report, now_us))
    found = await region.read(lambda tx: audits.get(tx, "one"))
    assert found is not None
    assert (found.status, found.report.repaired) == (AuditStatus.DONE, report.repaired)


async def test_an_inactive_binding_of_a_server_that_did_not_move_is_shown_and_left(small: SmallRegion) -> None:
    port = a_port(small).id
    small.network.inactive[port, "host9"] = Binding(port, "host9", active=False)
    done = await look(small, repair=True)
    assert (done.counts, done.left) == ({"port_binding_left": 1}, {"port_binding_left": 1})
    assert small.network.inactive


async def another_device(small: SmallRegion, *, wire: str) -> str:
    """The server's host has a second bridge with bandwidth, on this wire; and the server's ports name no provider."""
    server = await record(small)
    id = ProviderId(f"{server.host}-second")
    bridge = DeviceReport(
        hypervisor=str(server.host),
        id=id,
        name=f"{server.host}:agent:second",
        parent=ProviderId(f"{server.host}-agent"),
        inventories={BANDWIDTH: Inventory(1_000)},
        traits=(wire,),
    )
    await small.engine.report_devices([bridge])
    await drop_claim(small, BANDWIDTH)
    await PLANTS["port_profile_wrong"](small)
    return id


@pytest.mark.parametrize("kind", ["port_profile_wrong"])
async def test_a_port_is_healed_by_the_traits_that_it_requires_where_a_host_has_several_devices(
    kind: str, small: SmallRegion
) -> None:
    """Neither claim nor binding name a provider: the physical network and the kind of port leave one."""
    second = await another_device(small, wire="CUSTOM_PHYSNET_OTHER")
    done = await look(small, repair=True)
    assert done.repaired.get(kind) == 1, done
    named = a_port(small).profile[ALLOCATION]
    assert named
    assert second not in str(named)
    for _ in range(2):
        await look(small, repair=True)
    assert (await look(small)).counts == {}


@pytest.mark.parametrize("kind", ["port_profile_wrong"])
async def test_who_cannot_be_healed_is_told_why(kind: str, small: SmallRegion) -> None:
    await another_device(small, wire="CUSTOM_PHYSNET_WIRE")
    done = await look(small, repair=True)
    assert done.left.get(kind) == 1
    lines = await small.region.read(lambda tx: audits.repairs_of(tx, "audit-1"))
    said = next(each.done for each in lines if each.kind == kind)
    assert "2 providers of its host have what port" in said
    assert "changed meanwhile" not in said


def test_every_kind_of_finding_is_planted() -> None:
    assert PLANTS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_planted_problems_are_found(kind: str, small: SmallRegion) -> None:
    await PLANTS[kind](small)
    report = await look(small)
    assert kind in report.counts, report
    assert report.counts.keys() <= {kind} | ALSO.get(kind, set())


@pytest.mark.parametrize("kind", sorted(kind for kind, known in KINDS.items() if known.repairable))
async def test_planted_problems_are_repaired(kind: str, small: SmallRegion) -> None:
    await PLANTS[kind](small)
    said = await look(small, repair=True, dry_run=True)
    assert said.repaired.get(kind), said
    assert (await look(small)).counts == said.counts, "a dry run mends nothing"
    done = await look(small, repair=True)
    assert done.repaired.get(kind) == done.counts[kind], done
    for _ in range(2):  # what it brought with it may have had to wait for it
        left = await look(small, repair=True)
    left = await look(small)
    assert left.counts == LEFT.get(kind, {})
    lines = await small.region.read(lambda tx: audits.repairs_of(tx, "audit-1"))
    mine = [each for each in lines if each.kind == kind]
    assert mine
    assert mine[0].by == "somebody"
    assert mine[0].was
    assert mine[0].done not in {"", "begun"}


@pytest.mark.parametrize("kind", sorted(kind for kind, known in KINDS.items() if not known.repairable))
async def test_findings_for_operators_are_not_repaired(kind: str, small: SmallRegion) -> None:
    await PLANTS[kind](small)
    done = await look(small, kinds=(kind,), repair=True)
    assert (done.repaired, done.left) == ({}, {kind: 1})
    assert (await look(small, kinds=(kind,))).counts == {kind: 1}
