"""Plants leaks in ports, volumes, images and guests."""

import time
from functools import partial

import msgspec

from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import Binding, FixedIp, Port, mint_mac
from moorage.model.request_groups import ALLOCATION
from moorage.model.server import ApiPowerState, BlockDevice
from moorage.model.volume import Attachment, VolumeSnapshot
from moorage.operations.steps.snapshot_image import MADE_FOR
from moorage.store.cell import migrations as cell_migrations
from moorage.store.region import volume_intents
from moorage_testing.fake_server_service import a_migration
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_volumes import VOLUME
from tests.helpers.leak_planting import (
    LONG_AGO,
    OTHER,
    a_port,
    change,
    change_port,
    here,
    long_ago_but_not_long,
    plants,
    record,
    shelved_and_holding,
)

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
    await shelved_and_holding(small)
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
    await long_ago_but_not_long(small)
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
