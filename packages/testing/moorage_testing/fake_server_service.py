"""A server service that only records what was called, and servers to show: for tests of the API without a conductor."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec
from typing_extensions import override

from moorage.model.boot_request import BootRequest, NicWish
from moorage.model.errors import HostFailed, NotFound
from moorage.model.ids import CellId, FlavorId, ImageId, NetworkId, PortId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType, TransferProgress
from moorage.model.principal import Principal
from moorage.model.server import Address, ApiPowerState, BlockDevice, FlavorCopy, Nic, Server, VmState
from moorage.operations.boot.boot_checks import BootRights
from moorage.operations.guest.power import PowerVerb
from moorage.operations.images.snapshot import SnapshotRequest
from moorage.operations.shelve.accept_unshelve import UnshelveWish
from moorage.operations.steps.servers import StateCheck
from moorage.operations.volumes.assisted_snapshot import SnapshotWish
from moorage.operations.volumes.attach_volume import VolumeWish
from moorage.sql import Database, Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage.store.servers import server_values
from moorage_testing.fake_guest_service import RecordingGuestService

SNAPSHOT_IMAGE = "70a599e0-31e7-49b7-b260-868f441e0005"
IMAGE = ImageId("70a599e0-31e7-49b7-b260-868f441e862b")
NETWORK = NetworkId("d32019d3-bc6e-4319-9c1d-6722fc136a22")
CELL = CellId("cell1")


def a_server(number: int = 1, **fields: Any) -> Server:
    """An ACTIVE server of the member's project with one address; `fields` differ."""
    plain = Server(
        id=ServerId(f"00000000-0000-4000-8000-{number:012d}"),
        project="2" * 32,
        user="1" * 32,
        name=f"web{number}",
        hostname=f"web{number}",
        created_at=1_767_225_600_000_000 + number * 1_000_000,
        launched_at=1_767_225_605_000_000 + number * 1_000_000,
        flavor=FlavorCopy(FlavorId("1"), "m1.tiny", 1, 512, 1, extra_specs={"hw:numa_nodes": "1"}),
        vm_state=VmState.ACTIVE,
        task_state=None,
        power_state=ApiPowerState.RUNNING,
        image=IMAGE,
        image_properties={"hw_disk_bus": "virtio"},
        metadata={"role": "web"},
        tags=("blue",),
        security_groups=("default",),
        nics=(
            Nic(
                0,
                NETWORK,
                "private",
                PortId("ce531f90-199f-48c0-816c-13e38010b442"),
                "fa:16:3e:4c:2c:30",
                addresses=(Address("s", "10.0.0.5"),),
            ),
        ),
        cell=CELL,
        host="host1",
        node="host1",
        availability_zone="nova",
        pinned_az="nova",
        hints={"same_host": ["x"]},
        reservation_id="r-1",
        description="a web server",
        progress=100,
    )
    return msgspec.structs.replace(plain, **fields)


def a_migration(
    number: int = 1,
    type: MigrationType = MigrationType.LIVE_MIGRATION,
    status: MigrationStatus = MigrationStatus.RUNNING,
    **fields: Any,
) -> Migration:
    """A move of the first server, from host1 to host2; `fields` differ."""
    server, at = a_server(), 1_767_225_600_000_000 + number * 1_000_000
    plain = Migration(
        uuid=f"10000000-0000-4000-8000-{number:012d}",
        server=server.id,
        type=type,
        status=status,
        user=server.user,
        project=server.project,
        created_at=at,
        updated_at=at,
        source_host="host1",
        source_node="node1",
        dest_host="host2",
        dest_node="node2",
        dest_address="192.0.2.2",
        old_flavor=msgspec.structs.replace(server.flavor, number=1),
        new_flavor=msgspec.structs.replace(server.flavor, number=2),
        progress=TransferProgress(1_000, 400, 600, 2_000, 500, 1_500),
    )
    return msgspec.structs.replace(plain, **fields)


async def keep(region: Database, cell: Database | None, *servers: Server) -> None:
    """Write servers where they belong: with a cell there (and the region knows where), else in the region alone."""

    def in_region(tx: Tx) -> None:
        for server in servers:
            placed = cell is not None and server.cell is not None
            row = {**server_values(server), "op_seq": 1, "cell": server.cell, "task": None}
            tx.run(region_servers.servers.insert().values({**row, "doc": None if placed else row["doc"]}))

    await region.write(in_region)
    if cell is not None:
        rows = [server_values(server) for server in servers if server.cell is not None]
        if rows:
            await cell.write(lambda tx: tx.run(cell_servers.servers.insert(), rows))


@dataclass
class RecordingServerService(RecordingGuestService):
    """A server service that executes nothing: servers that are booted are written, other calls are recorded."""

    region: Database
    addressed: list[tuple[str, str]] = field(default_factory=list)
    booted: list[tuple[BootRequest, BootRights]] = field(default_factory=list)
    deleted: list[tuple[str, bool]] = field(default_factory=list)
    hinted: list[tuple[str, str, str | None]] = field(default_factory=list)
    silent: bool = False
    powered: list[tuple[str, str]] = field(default_factory=list)
    attached: list[tuple[str, NicWish]] = field(default_factory=list)
    detached: list[tuple[str, str]] = field(default_factory=list)
    shelved: list[tuple[str, str, UnshelveWish | None]] = field(default_factory=list)
    snapshots: list[tuple[str, SnapshotRequest]] = field(default_factory=list)

    volumes: list[tuple[str, VolumeWish]] = field(default_factory=list)
    """Volumes that were to be attached."""
    swapped: list[tuple[str, str, str]] = field(default_factory=list)
    """(server, old volume, new volume)."""

    assisted: list[tuple[str, SnapshotWish]] = field(default_factory=list)
    """Snapshots that the volume service asked for."""

    def untouched(self) -> bool:
        """Nothing was asked of any server that is there."""
        asked = (
            self.deleted,
            self.powered,
            self.attached,
            self.detached,
            self.snapshots,
            self.shelved,
            self.volumes,
            self.swapped,
            self.assisted,
            self.moved,
            self.confirmed,
            self.reverted,
            self.live,
            self.forced,
            self.aborted,
            self.evacuated,
            self.cancelled,
        )
        return not any(asked)

    @override
    async def attach_volume(
        self, principal: Principal, token: str, server: Server, wish: VolumeWish, *, check: StateCheck, request_id: str
    ) -> BlockDevice:
        check(server)
        self.volumes.append((server.id, wish))
        return BlockDevice("volume", "volume", volume=wish.volume, device="/dev/vdb", tag=wish.tag, bdm="mapping")

    @override
    async def detach_volume(
        self, principal: Principal, token: str, server: Server, volume: str, *, check: StateCheck, request_id: str
    ) -> None:
        check(server)
        self.detached.append((server.id, volume))

    @override
    async def swap_volume(
        self,
        principal: Principal,
        token: str,
        server: Server,
        old: str,
        new: str,
        *,
        check: StateCheck,
        request_id: str,
    ) -> None:
        check(server)
        self.swapped.append((server.id, old, new))

    @override
    async def assisted_snapshot(
        self, principal: Principal, server: Server, wish: SnapshotWish, *, check: StateCheck, request_id: str
    ) -> None:
        check(server)
        self.assisted.append((server.id, wish))

    @override
    async def boot(
        self, principal: Principal, token: str, request: BootRequest, rights: BootRights, request_id: str
    ) -> tuple[Server, ...]:
        self.booted.append((request, rights))
        made = tuple(
            Server(
                id=ServerId(str(uuid.uuid4())),
                project=principal.project or "",
                user=principal.user,
                name=request.name if request.max_count == 1 else f"{request.name}-{place + 1}",
                hostname=request.hostname or request.name.lower(),
                created_at=time.time_ns() // 1000,
                flavor=FlavorCopy(FlavorId(request.flavor_ref), "m1.tiny", 1, 512, 1),
                image=None if request.image_ref is None else ImageId(request.image_ref),
                metadata=request.metadata,
                tags=request.tags,
                description=request.description,
                config_drive=request.config_drive,
                disk_config=request.disk_config or "MANUAL",
                security_groups=request.security_groups or ("default",),
                reservation_id="r-abc",
                launch_index=place,
            )
            for place in range(request.max_count)
        )
        await self.region.write(lambda tx: region_servers.insert(tx, made))
        return made

    @override
    async def delete(self, principal: Principal, server: Server, *, force: bool, request_id: str) -> None:
        self.deleted.append((server.id, force))

    @override
    async def power(self, principal: Principal, server: Server, verb: PowerVerb, request_id: str) -> None:
        self.powered.append((server.id, verb))

    @override
    async def attach_interface(
        self,
        principal: Principal,
        token: str,
        server: Server,
        wish: NicWish,
        *,
        check: StateCheck,
        external_allowed: bool,
        request_id: str,
    ) -> str:
        self.attached.append((server.id, wish))
        return str(server.nics[0].port)

    @override
    async def detach_interface(
        self, principal: Principal, server: Server, port: str, *, check: StateCheck, request_id: str
    ) -> None:
        self.detached.append((server.id, port))

    @override
    async def add_fixed_ip(self, server: Server, network: str) -> None:
        self.addressed.append((server.id, network))

    @override
    async def remove_fixed_ip(self, server: Server, address: str) -> None:
        """Record the call. Raises NotFound when the server does not have the address."""
        if address not in {each.address for nic in server.nics for each in nic.addresses}:
            raise NotFound(f"Instance {server.id} does not have fixed IP '{address}'.")
        self.addressed.append((server.id, address))

    @override
    async def shelve(
        self, principal: Principal, token: str, server: Server, *, check: StateCheck, request_id: str
    ) -> None:
        self.shelved.append((server.id, "shelve", None))

    @override
    async def shelve_offload(self, principal: Principal, server: Server, *, check: StateCheck, request_id: str) -> None:
        self.shelved.append((server.id, "offload", None))

    @override
    async def unshelve(
        self, principal: Principal, server: Server, wish: UnshelveWish, *, check: StateCheck, request_id: str
    ) -> None:
        self.shelved.append((server.id, "unshelve", wish))

    @override
    async def snapshot(
        self,
        principal: Principal,
        token: str,
        server: Server,
        wish: SnapshotRequest,
        *,
        check: StateCheck,
        request_id: str,
    ) -> str:
        self.snapshots.append((server.id, wish))
        return SNAPSHOT_IMAGE

    @override
    async def console(self, server: Server, lines: int | None) -> str:
        """The console's text. Raises HostFailed when the host is silent or fails."""
        if self.silent:
            raise HostFailed(f"host {server.host} is silent", code="host_silent")
        if self.host_says is not None:
            raise self.host_says
        return "\x1b[0m\x07login:\r"

    @override
    async def event_arrived(self, server: ServerId, name: str, tag: str | None) -> None:
        self.hinted.append((server, name, tag))
