"""Plants leaks in records, claims, quota and tables that are purged."""

import time
from functools import partial

import msgspec
import sqlalchemy as sa

from moorage.model.console import ConsoleSocket, ConsoleToken
from moorage.model.ids import OperationId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import TaskState, VmState
from moorage.sql import Tx
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence, fences
from moorage.store.region import console_tokens, hidden_records, inbox, quotas, user_quotas
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.claim_statements import MIGRATION
from moorage.store.region.placement.tables import allocations, consumers, inventories
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion, a_server
from moorage_testing.region_guarantees import BANDWIDTH
from tests.helpers.leak_planting import (
    LONG_AGO,
    OTHER,
    change,
    change_claim,
    claim_for,
    drop_claim,
    elsewhere,
    here,
    in_region,
    long_ago_but_not_long,
    plants,
    record,
    sum_up,
)

WITH_GUARANTEES = frozenset(
    {"port_allocation_missing", "port_allocation_wrong", "port_allocation_wrong_provider", "port_profile_wrong"}
)


# ------------------------------------------------------------------------------------------------ records


@plants("mapping_missing")
async def _forgotten_by_the_region(small: SmallRegion) -> None:
    await small.region.write(lambda tx: tx.run(region_servers.servers.delete()))


@plants("mapping_wrong_cell")
async def _mapped_elsewhere(small: SmallRegion) -> None:
    other = elsewhere(await here(small))
    await in_region(small, region_servers.servers.update().values(cell=other))


@plants("record_in_two_cells")
async def _twice(small: SmallRegion) -> None:
    row = await record(small)
    other = elsewhere(await here(small))
    old = Fence(OperationId("x"), 0, 1, 1)
    await small.cells[other].write(partial(cell_servers.record, server=row, fence=old))


@plants("hidden_record_left")
async def _sealed_and_not_hidden(small: SmallRegion) -> None:
    row = await record(small)
    other = elsewhere(await here(small))
    fence = Fence(OperationId("x"), 1, 0, 1)
    await small.cells[other].write(
        lambda tx: (cell_servers.record(tx, row, fence), record_transfer.seal(tx, SERVER, fence))
    )


@plants("hidden_record_missing")
async def _hidden_and_not_there(small: SmallRegion) -> None:
    other = elsewhere(await here(small))
    await small.region.write(lambda tx: hidden_records.open_row(tx, SERVER, other))


@plants("record_missing")
async def _record_lost(small: SmallRegion) -> None:
    await small.cells[await here(small)].write(lambda tx: tx.run(cell_servers.servers.delete()))


@plants("server_doubtful")
async def _went_back(small: SmallRegion) -> None:
    """The cell's database is from before an operation that has ended; claim and guest are where the record says."""
    await in_region(small, region_servers.servers.update().values(op_seq=4, recorded_seq=4))


@plants("record_deleted_mapping_live")
async def _deleted_in_the_cell(small: SmallRegion) -> None:
    now = int(time.time() * 1e6)
    await small.cells[await here(small)].write(lambda tx: cell_identities.mark_deleted(tx, [SERVER], now))


@plants("mapping_deleted_record_live")
async def _deleted_in_the_region(small: SmallRegion) -> None:
    await in_region(small, region_servers.servers.update().values(deleted_at=int(time.time() * 1e6)))


@plants("build_request_left")
async def _leftover_order(small: SmallRegion) -> None:
    order = msgspec.json.encode(await record(small)).decode()
    await in_region(small, region_servers.servers.update().values(doc=order, vm_state="active"))


@plants("task_state_left")
async def _task_shown(small: SmallRegion) -> None:
    """In a record of which the region does not know that it shows the operation's end: else the server is doubtful."""
    await change(small, task_state=TaskState.REBOOTING)
    await in_region(small, region_servers.servers.update().values(recorded_seq=0))


@plants("building_without_operation")
async def _never_built(small: SmallRegion) -> None:
    order = a_server(id=OTHER)

    def work(tx: Tx) -> None:
        region_servers.insert(tx, [order])
        tx.run(region_servers.servers.update().where(region_servers.servers.c.id == OTHER).values(operation=None))
        quotas.reserve(tx, PROJECT, {"instances": 1, "cores": 1, "ram": 64})

    await small.region.write(work)


@plants("slot_left")
async def _held_by_nothing(small: SmallRegion) -> None:
    await in_region(small, region_servers.servers.update().values(operation="never-was"))


@plants("operation_without_server")
async def _open_without_owner(small: SmallRegion) -> None:
    values = dict.fromkeys(("project", "user", "owner", "asked", "journal"), "x")
    numbers = dict.fromkeys(("epoch", "head", "seq", "created_at", "updated_at"), 1)
    row = {"id": "op-left", "saga": "boot/1", "server": OTHER, "status": "open", **values, **numbers}
    await in_region(small, region_operations.operations.insert().values(row))


@plants("migration_left_open")
async def _move_open(small: SmallRegion) -> None:
    migration = a_migration(1, MigrationType.RESIZE, MigrationStatus.MIGRATING, server=SERVER)
    await small.cells[await here(small)].write(partial(cell_migrations.put, migration=migration))


@plants("deleted_record_old")
async def _long_deleted(small: SmallRegion) -> None:
    gone = a_server(id=OTHER, deleted_at=LONG_AGO, vm_state=VmState.DELETED)

    def work(tx: Tx) -> None:
        region_servers.insert(tx, [gone])
        tx.run(
            region_servers.servers.update().where(region_servers.servers.c.id == OTHER).values(operation=None, doc=None)
        )

    await small.region.write(work)


@plants("fence_left")
async def _fence(small: SmallRegion) -> None:
    cell = small.cells[await here(small)]
    await cell.write(lambda tx: tx.run(fences.insert().values(server=OTHER, rank=1, line=1)))


# ------------------------------------------------------------------------------------------------ claims


@plants("allocation_missing")
async def _holds_nothing(small: SmallRegion) -> None:
    await in_region(small, sa.delete(allocations).where(allocations.c["class"].in_(["VCPU", "MEMORY_MB", "DISK_GB"])))
    await sum_up(small)


@plants("allocation_amounts_wrong")
async def _too_much(small: SmallRegion) -> None:
    await change_claim(small, "VCPU", used=3)


@plants("allocation_wrong_host")
async def _on_another_host_too(small: SmallRegion) -> None:
    server = await record(small)
    other = next(host for host in small.engine.world().slots if host != server.provider)
    await in_region(small, allocations.insert().values(consumer=SERVER, provider=other, **{"class": "VCPU"}, used=1))
    await sum_up(small)


@plants("allocation_orphaned")
async def _claim_of_a_deleted(small: SmallRegion) -> None:
    await long_ago_but_not_long(small)
    await claim_for(small, OTHER)


@plants("allocation_owner_wrong")
async def _anothers(small: SmallRegion) -> None:
    await in_region(small, consumers.update().values(project="somebody", user_id="else"))


@plants("port_allocation_missing")
async def _bandwidth_not_claimed(small: SmallRegion) -> None:
    await drop_claim(small, BANDWIDTH)


@plants("port_allocation_wrong")
async def _less_bandwidth_claimed(small: SmallRegion) -> None:
    await change_claim(small, BANDWIDTH, used=7)


@plants("port_allocation_wrong_provider")
async def _bandwidth_of_another(small: SmallRegion) -> None:
    server = await record(small)
    await change_claim(small, BANDWIDTH, provider="host2-bridge" if server.host != "host2" else "host1-bridge")


@plants("address_claim_missing")
async def _address_not_claimed(small: SmallRegion) -> None:
    await drop_claim(small, "IPV4_ADDRESS")


@plants("address_claim_orphaned")
async def _addresses_too_many(small: SmallRegion) -> None:
    await change_claim(small, "IPV4_ADDRESS", used=5)


@plants("migration_allocation_orphaned")
async def _ended_move_holds(small: SmallRegion) -> None:
    migration = a_migration(1, MigrationType.RESIZE, MigrationStatus.CONFIRMED, server=SERVER)
    await small.cells[await here(small)].write(partial(cell_migrations.put, migration=migration))
    await claim_for(small, migration.uuid, type=MIGRATION)


@plants("migration_allocation_unknown")
async def _unknown_move_holds(small: SmallRegion) -> None:
    await claim_for(small, "10000000-0000-4000-8000-0000000000aa", type=MIGRATION)


@plants("usage_drifted")
async def _counter(small: SmallRegion) -> None:
    await in_region(small, sa.update(inventories).where(inventories.c["class"] == "DISK_GB").values(used=17))


# ------------------------------------------------------------------------------------------------ counted, and kept for a time


@plants("quota_usage_wrong")
async def _quota(small: SmallRegion) -> None:
    await small.region.write(lambda tx: quotas.recount(tx, PROJECT, {"instances": 4, "cores": 9, "ram": 640}))


@plants("quota_user_usage_wrong")
async def _users_quota(small: SmallRegion) -> None:
    await small.region.write(
        lambda tx: user_quotas.recount(tx, PROJECT, "user-1", {"instances": 4, "cores": 9, "ram": 640})
    )


@plants("console_tokens_expired")
async def _token(small: SmallRegion) -> None:
    token = ConsoleToken("h", SERVER, "novnc", "host1", ConsoleSocket("127.0.0.1", 1, None, None), LONG_AGO, LONG_AGO)
    await small.region.write(lambda tx: console_tokens.add(tx, token, 10))


@plants("events_left")
async def _event(small: SmallRegion) -> None:
    row = {"server": SERVER, "name": "network-vif-plugged", "tag": "t", "status": "completed", "seen_at": LONG_AGO}
    await in_region(small, inbox.inbox.insert().values(row))
