"""What an audit makes of a doubtful server whose claim and guest are on one host (RULES §26): nothing that it has may be lost by it."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.helpers.leak_planting import change, change_claim, here, in_region, record
from tests.sagas.test_audit_finds import auditor

from moorage.conductor.audit.doubt_checks import BY_HAND, KIND
from moorage.model.audit import AuditReport, AuditRequest
from moorage.model.guest import PowerState
from moorage.model.host import Host
from moorage.model.ids import HostId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import Moved, Shelved, TaskState, VmState
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations
from moorage.store.region import servers as region_servers
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_states import attached
from moorage_testing.saga_proof import PROVED_OPERATION

MOVE = a_migration().uuid


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    """One server, that nobody holds."""
    region = await SmallRegion.open()
    await attached(region, "routed")
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    now = await record(region)
    home = Host(0, HostId(str(now.provider)), "", str(now.host), str(now.host), await here(region))
    await region.cells[home.cell].write(lambda tx: cell_hosts.report(tx, home, 1))
    yield region
    await region.close()


async def settled(small: SmallRegion, **older: Any) -> AuditReport:
    """The record is older, and says this; an audit repairs it."""
    await change(small, **older)
    await in_region(small, region_servers.servers.update().values(op_seq=4, recorded_seq=4))
    return await auditor(small).run(AuditRequest(kinds=(KIND,), repair=True), "audit-1", "somebody")


def power(small: SmallRegion, state: PowerState) -> None:
    [guest] = small.hosts.guests
    small.hosts.guests[guest] = state


OLDER: dict[str, dict[str, Any]] = {
    "stopped": {"vm_state": VmState.STOPPED},
    "shelved": {"vm_state": VmState.SHELVED, "shelved": Shelved(at=1)},
    "offloaded": {"vm_state": VmState.SHELVED_OFFLOADED, "shelved": Shelved(at=1), "host": None, "provider": None},
    "deleted, and to be restored": {"vm_state": VmState.SOFT_DELETED, "soft_deleted_at": 1},
    "being moved": {"task_state": TaskState.RESIZE_MIGRATING},
}


@pytest.mark.parametrize("older", OLDER)
@pytest.mark.parametrize(
    ("guest", "state"),
    [
        (PowerState.RUNNING, VmState.ACTIVE),
        (PowerState.SHUTDOWN, VmState.STOPPED),
        (PowerState.PAUSED, VmState.PAUSED),
    ],
)
async def test_a_server_on_a_host_is_in_its_guests_state(
    small: SmallRegion, older: str, guest: PowerState, state: VmState
) -> None:
    """One that stayed shelved or deleted would be offloaded or reclaimed next, and one that stayed off would be switched off."""
    host = (await record(small)).host
    power(small, guest)
    done = await settled(small, **OLDER[older])
    assert done.repaired == {KIND: 1}, done
    now = await record(small)
    assert (now.vm_state, now.host, now.task_state, now.shelved, now.soft_deleted_at) == (state, host, None, None, None)
    assert now.provider is not None
    assert list(small.hosts.guests) == [(host, SERVER)]


async def test_a_claim_for_another_flavor_is_left_to_a_person(small: SmallRegion) -> None:
    """It was resized since; its claim would be made smaller while the guest is as large as it is."""
    await change_claim(small, "VCPU", used=2)
    done = await settled(small)
    assert (done.repaired, done.left) == ({}, {KIND: 1})
    assert BY_HAND in done.findings[0].repair


async def moved_from(small: SmallRegion, host: str, **differs: Any) -> Moved:
    """Its move from that host waits, as its cell remembers it."""
    now, cell = await record(small), await here(small)
    move = a_migration(type=MigrationType.MIGRATION, status=MigrationStatus.FINISHED)
    await small.cells[cell].write(lambda tx: migrations.put(tx, move))
    flavor = msgspec.structs.replace(now.flavor, name="before", **differs)
    return Moved(at=1, migration=MOVE, vm_state=VmState.ACTIVE, flavor=flavor, host=host)


async def status(small: SmallRegion) -> MigrationStatus:
    found = await small.cells[await here(small)].read(lambda tx: migrations.get(tx, MOVE))
    assert found is not None
    return found.status


async def test_a_move_that_was_confirmed_since_has_ended(small: SmallRegion) -> None:
    host = (await record(small)).host
    moved = await moved_from(small, "host3" if host != "host3" else "host1", vcpus=4)
    done = await settled(small, vm_state=VmState.RESIZED, moved=moved)
    assert done.repaired == {KIND: 1}, done
    now = await record(small)
    assert (now.vm_state, now.moved, now.host, now.flavor.vcpus) == (VmState.ACTIVE, None, host, 1)
    assert await status(small) is MigrationStatus.CONFIRMED


async def test_a_move_that_was_reverted_since_has_ended(small: SmallRegion) -> None:
    """The claim, the guest and the flavor are those from before the move."""
    host, flavor = (await record(small)).host, (await record(small)).flavor
    moved = await moved_from(small, str(host))
    larger = msgspec.structs.replace(flavor, name="after", vcpus=4)
    other = "host3" if host != "host3" else "host1"
    done = await settled(small, vm_state=VmState.RESIZED, moved=moved, flavor=larger, host=other)
    assert done.repaired == {KIND: 1}, done
    now = await record(small)
    assert (now.vm_state, now.moved, now.host, now.flavor.name) == (VmState.ACTIVE, None, host, "before")
    assert await status(small) is MigrationStatus.REVERTED


async def test_a_resize_on_one_host_whose_claim_fits_both_flavors_is_left_to_a_person(small: SmallRegion) -> None:
    moved = await moved_from(small, str((await record(small)).host))
    done = await settled(small, vm_state=VmState.RESIZED, moved=moved)
    assert (done.repaired, done.left) == ({}, {KIND: 1})
    assert await status(small) is MigrationStatus.FINISHED


async def test_a_server_that_is_still_built_by_its_record_is_left_to_a_person(small: SmallRegion) -> None:
    done = await settled(small, vm_state=VmState.BUILDING)
    assert (done.repaired, done.left) == ({}, {KIND: 1})
