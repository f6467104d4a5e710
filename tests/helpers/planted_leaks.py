"""Leaks, planted in a small region: one function for each kind, which leaves behind what a bug, a crash or a person might."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.console import ConsoleSocket, ConsoleToken
from moorage.model.ids import CellId, OperationId, ProviderId, ServerId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import Binding, FixedIp, Port, mint_mac
from moorage.model.request_groups import ALLOCATION
from moorage.model.server import ApiPowerState, BlockDevice, Server, Shelved, TaskState, VmState
from moorage.model.volume import Attachment, VolumeSnapshot
from moorage.operations.steps import servers as records
from moorage.operations.steps.snapshot_image import MADE_FOR
from moorage.sql import Tx
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import record_transfer
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence, fences
from moorage.store.region import console_tokens, hidden_records, inbox, quotas, user_quotas, volume_intents
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import MIGRATION, Owner
from moorage.store.region.placement.tables import allocations, consumers, inventories
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import CELLS, PROJECT, SERVER, SmallRegion, a_server
from moorage_testing.region_guarantees import BANDWIDTH
from moorage_testing.region_volumes import VOLUME

OTHER = ServerId("0d0c0b0a-0000-4000-8000-0000000000ff")
LONG_AGO = 1_000_000
Plant = Callable[[SmallRegion], Awaitable[None]]
PLANTS: dict[str, Plant] = {}
WITH_GUARANTEES = frozenset(
    {"port_allocation_missing", "port_allocation_wrong", "port_allocation_wrong_provider", "port_profile_wrong"}
)


def plants(*kinds: str) -> Callable[[Plant], Plant]:
    def keep(plant: Plant) -> Plant:
        for kind in kinds:
            PLANTS[kind] = plant
        return plant

    return keep


async def record(small: SmallRegion, server: ServerId = SERVER) -> Server:
    found = (await records.find(small.context, server)).server
    assert found is not None
    return found


async def change(small: SmallRegion, **changes: Any) -> None:
    """The record says something else from now on."""
    row = await record(small)
    assert row.cell is not None
    at = Fence(OperationId("x"), row.op_epoch // cell_servers.EPOCHS_PER_OPERATION, 900_000, row.op_line)
    await small.cells[row.cell].write(lambda tx: cell_servers.write(tx, msgspec.structs.replace(row, **changes), at))


async def here(small: SmallRegion) -> CellId:
    found = (await record(small)).cell
    assert found is not None
    return found


def elsewhere(cell: CellId) -> CellId:
    return next(each for each in CELLS if each != cell)


async def in_region(small: SmallRegion, statement: Any) -> None:
    await small.region.write(lambda tx: tx.run(statement))


async def change_claim(small: SmallRegion, resource: str, **values: Any) -> None:
    a = allocations.c
    await in_region(small, sa.update(allocations).where(a.consumer == SERVER, a["class"] == resource).values(values))
    await sum_up(small)


async def drop_claim(small: SmallRegion, resource: str) -> None:
    a = allocations.c
    await in_region(small, sa.delete(allocations).where(a.consumer == SERVER, a["class"] == resource))
    await sum_up(small)


async def sum_up(small: SmallRegion) -> None:
    """Counters say what the allocations say, so that nothing else is planted."""
    a, i = allocations.c, inventories.c
    held = sa.select(sa.func.coalesce(sa.func.sum(a.used), 0)).where(a.provider == i.provider, a["class"] == i["class"])
    await in_region(small, sa.update(inventories).values(used=held.scalar_subquery()))


async def claim_for(small: SmallRegion, consumer: str, **owner: Any) -> None:
    provider = str((await record(small)).provider)
    named = Owner(consumer, PROJECT, "user-1", operation="boot", **owner)
    await small.region.write(lambda tx: claim_statements.write(tx, named, {(ProviderId(provider), "VCPU"): 1}, 1))
    await sum_up(small)


def a_port(small: SmallRegion) -> Port:
    """The first one of the server's that is ours."""
    return next(each for each in small.network.ports.values() if each.device_id == SERVER and each.ours)


def change_port(small: SmallRegion, **changes: Any) -> None:
    port = a_port(small)
    small.network.ports[port.id] = msgspec.structs.replace(port, revision=port.revision + 1, **changes)


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
    await change(small, task_state=TaskState.REBOOTING)


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
    await _long_ago_but_not_long(small)
    await claim_for(small, OTHER)


async def _long_ago_but_not_long(small: SmallRegion) -> None:
    now = int(time.time() * 1e6)

    def work(tx: Tx) -> None:
        region_servers.insert(tx, [a_server(id=OTHER, deleted_at=now, vm_state=VmState.DELETED)])
        tx.run(
            region_servers.servers.update().where(region_servers.servers.c.id == OTHER).values(operation=None, doc=None)
        )

    await small.region.write(work)


@plants("allocation_owner_wrong")
async def _anothers(small: SmallRegion) -> None:
    await in_region(small, consumers.update().values(project="somebody", user_id="else"))


@plants("shelved_holds_host")
async def _shelved_and_holding(small: SmallRegion) -> None:
    guest = next(iter(small.hosts.guests))
    del small.hosts.guests[guest]
    await change(small, vm_state=VmState.SHELVED_OFFLOADED, host=None, provider=None, shelved=Shelved(at=1))
    for key, port in small.network.ports.items():
        small.network.ports[key] = msgspec.structs.replace(port, host="")


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


# ------------------------------------------------------------------------------------------------ ports


@plants("port_orphaned")
async def _late_port(small: SmallRegion) -> None:
    late = Port(id="late", network="network-1", mac=mint_mac(SERVER, 40), device_id=SERVER)
    small.network.ports["late"] = late


@plants("port_not_let_go")
async def _users_port(small: SmallRegion) -> None:
    theirs = Port(id="theirs", network="network-1", mac="fa:16:3e:99:99:99", device_id=SERVER, ours=False)
    small.network.ports["theirs"] = theirs


@plants("port_missing")
async def _port_gone(small: SmallRegion) -> None:
    del small.network.ports[a_port(small).id]


@plants("port_bound_elsewhere")
async def _bound_elsewhere(small: SmallRegion) -> None:
    server = await record(small)
    change_port(small, host="host2" if server.host != "host2" else "host3")


@plants("port_unbound")
async def _unbound(small: SmallRegion) -> None:
    change_port(small, host="")


@plants("port_bound_of_shelved")
async def _shelved_and_bound(small: SmallRegion) -> None:
    bound = a_port(small)
    await _shelved_and_holding(small)
    await small.region.write(lambda tx: small.engine.keep_addresses(tx, SERVER))
    change_port(small, host=bound.host)


@plants("port_taken_by_other")
async def _taken(small: SmallRegion) -> None:
    change_port(small, device_id="a-router")


@plants("port_addresses_differ")
async def _other_address(small: SmallRegion) -> None:
    change_port(small, fixed_ips=(FixedIp("subnet-1", "10.0.0.222"),))


@plants("port_profile_wrong")
async def _names_no_server(small: SmallRegion) -> None:
    port = a_port(small)
    change_port(small, profile={name: value for name, value in port.profile.items() if name != ALLOCATION})


@plants("port_binding_left")
async def _inactive_binding(small: SmallRegion) -> None:
    now = int(time.time() * 1e6)
    migration = a_migration(1, MigrationType.RESIZE, MigrationStatus.CONFIRMED, server=SERVER, updated_at=now)
    await small.cells[await here(small)].write(partial(cell_migrations.put, migration=migration))
    small.network.inactive[a_port(small).id, "host9"] = Binding(a_port(small).id, "host9", active=False)


# ------------------------------------------------------------------------------------------------ volumes and images


def attach(small: SmallRegion, status: str) -> None:
    small.volumes.attachments["left"] = Attachment(id="left", volume=VOLUME, server=SERVER, status=status)
    now = "in-use" if status == "attached" else status
    small.volumes.volumes[VOLUME] = msgspec.structs.replace(small.volumes.volumes[VOLUME], status=now)


async def list_volume(small: SmallRegion) -> None:
    disk = BlockDevice(source="volume", destination="volume", uuid=VOLUME, volume=VOLUME, attachment="left")
    await change(small, block_devices=(disk,))


@plants("attachment_orphaned")
async def _attached_to_no_server(small: SmallRegion) -> None:
    attach(small, "attaching")


@plants("volume_reserved")
async def _reserved_for_no_server(small: SmallRegion) -> None:
    attach(small, "reserved")


@plants("attachment_missing")
async def _attachment_gone(small: SmallRegion) -> None:
    await list_volume(small)


@plants("attachment_unfinished")
async def _half_attached(small: SmallRegion) -> None:
    attach(small, "attaching")
    await list_volume(small)


@plants("volume_detaching_left")
async def _going(small: SmallRegion) -> None:
    attach(small, "attached")
    await list_volume(small)
    small.volumes.volumes[VOLUME] = msgspec.structs.replace(small.volumes.volumes[VOLUME], status="detaching")


@plants("volume_intent_left")
async def _intent(small: SmallRegion) -> None:
    await small.region.write(lambda tx: volume_intents.begin(tx, [OTHER], LONG_AGO))


@plants("volume_snapshot_left")
async def _snapshot(small: SmallRegion) -> None:
    small.volumes.snapshots["snap"] = VolumeSnapshot(id="snap", volume=VOLUME, status="available")
    small.volumes.made_for["snap"] = "no-such-image"


@plants("image_left_half_made")
async def _half_image(small: SmallRegion) -> None:
    small.images.whole["half"] = False
    small.images.properties["half"] = {MADE_FOR: "snapshot", "instance_uuid": SERVER}


@plants("image_of_move_left")
async def _image_of_move(small: SmallRegion) -> None:
    small.images.whole["moved"] = True
    small.images.properties["moved"] = {MADE_FOR: "resize", "instance_uuid": SERVER}


@plants("image_of_shelved_left")
async def _shelved_image(small: SmallRegion) -> None:
    small.images.whole["shelved"] = True
    small.images.properties["shelved"] = {MADE_FOR: "shelve", "instance_uuid": SERVER}


# ------------------------------------------------------------------------------------------------ hosts


@plants("guest_orphaned")
async def _guest_of_a_deleted(small: SmallRegion) -> None:
    await _long_ago_but_not_long(small)
    small.hosts.guests["host2", OTHER] = ApiPowerState.RUNNING


@plants("guest_unknown")
async def _guest_of_no_server(small: SmallRegion) -> None:
    small.hosts.guests["host2", OTHER] = ApiPowerState.RUNNING


@plants("guest_elsewhere")
async def _guest_elsewhere(small: SmallRegion) -> None:
    host = str((await record(small)).host)
    del small.hosts.guests[host, SERVER]
    small.hosts.guests["host2" if host != "host2" else "host3", SERVER] = ApiPowerState.RUNNING


@plants("guest_on_two_hosts")
async def _two_guests(small: SmallRegion) -> None:
    host = str((await record(small)).host)
    small.hosts.guests["host2" if host != "host2" else "host3", SERVER] = ApiPowerState.RUNNING


@plants("guest_missing")
async def _no_guest(small: SmallRegion) -> None:
    del small.hosts.guests[str((await record(small)).host), SERVER]


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
