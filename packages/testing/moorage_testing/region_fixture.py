"""A small region for proofs: real databases and a real provider cache, with a network service and hosts in dicts.

One set of databases serves many worlds, one after the other: `fresh()` empties it. The dicts behave as RULES §7 and §10
say of the real services: a MAC is unique, a bind names a host, a stale fencing token is refused, a repeated command
gets its stored result.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.model.ids import CellId, FlavorId, OperationId, SegmentId, ServerId
from moorage.model.network import (
    NicAsk,
    Port,
    mint_mac,
)  # fmt: skip
from moorage.model.notification import Notification
from moorage.model.resources import Inventory, needs_of
from moorage.model.server import FlavorCopy, Server
from moorage.operations.boot.boot import Boot
from moorage.operations.cell_databases import Cells
from moorage.operations.context import SagaContext, SagaSettings
from moorage.operations.notifications.outbox_writer import OutboxWriter
from moorage.operations.steps import servers as records
from moorage.placement.engine import Engine
from moorage.placement.inventory import HostInventory, SegmentReport
from moorage.saga import Line, Run, Saga
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx, open_database
from moorage.store.cell.tables import cell_metadata
from moorage.store.region import aggregates, quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.notifications import OUTBOX
from moorage.store.region.placement.tables import placement_metadata
from moorage.store.region.tables import region_metadata
from moorage_testing.inline_database import InlineDatabase
from moorage_testing.region_cells import FAR_HOSTS, records_held
from moorage_testing.region_debts import come_home
from moorage_testing.region_guarantees import devices_of, guaranteed
from moorage_testing.region_hosts import DictHosts
from moorage_testing.region_images import DictImages
from moorage_testing.region_moves import addresses_held, moves_held
from moorage_testing.region_network import NETWORK, NETWORK_FACTS, SEGMENTS, DictNetwork
from moorage_testing.region_notifications import notification_faults
from moorage_testing.region_statements import CELL, CLAIMS, EMPTY_CELL, EMPTY_REGION, OPERATION, USED, records_on
from moorage_testing.region_volumes import DictVolumes

T = TypeVar("T")

SERVER = ServerId("0d0c0b0a-0000-4000-8000-000000000001")
PROJECT = "project-1"
CELLS = (CellId("cell1"), CellId("cell2"))
HOSTS = (("host1", CELLS[0]), ("host2", CELLS[1]), ("host3", CELLS[0]))
ALL_HOSTS = (*HOSTS, ("host4", CELLS[0]))
"""With the one that there is in worlds of moves: a server that leaves its host needs two others of its cell."""
EVERY_HOST = (*ALL_HOSTS, *FAR_HOSTS)
USERS_PORT = "users-port"
SPARE_PORT = "spare-port"
"""Another of the user's, not in the boot."""
SAID_MAX = 1000


class SmallRegion:
    """The databases, kept; and the world of now."""

    def __init__(self, region: Database, cells: dict[CellId, Database], engine: Engine) -> None:
        self.region, self.cells, self.engine = region, cells, engine
        self.network, self.images, self.volumes = DictNetwork(), DictImages(), DictVolumes()
        self.hosts = DictHosts(images=self.images)
        self._wired: set[str] = set()
        self.watches_moves = self.fails_to_error = False
        """Where guests run and what is bound is held too; a failure leaves ERROR, whatever the server was."""
        self.watches_addresses = self.watches_cells = False
        """Which addresses its ports have, its record shows and are claimed, and which cells have its record, is held too."""
        self.charged_meanwhile: dict[str, int] = {}  # of the quota, what a move that is under way has taken beforehand
        self.notification_writer = OutboxWriter("conductor1", "vm_and_task_state")
        self.context = self._context()

    @classmethod
    async def open(cls, directory: Path | None = None) -> "SmallRegion":
        """Three hosts in two cells; in files of the directory, with their threads, or in memory."""

        async def opened(name: str) -> Database:
            if directory is None:
                return InlineDatabase(name)
            return await open_database(f"sqlite:///{directory}/{name}.db", name=name, durability="process")

        region = await opened("region")
        await region.create(region_metadata)
        await region.create(placement_metadata)
        cells: dict[CellId, Database] = {}
        for cell in CELLS:
            cells[cell] = await opened(cell)
            await cells[cell].create(cell_metadata)
        engine = Engine(region, partial(rank, profile=Profile()), aggregates=aggregates.for_placement, every_s=3600.0)
        await engine.start()
        small = cls(region, cells, engine)
        for host, cell in HOSTS:
            inventories = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192), "DISK_GB": Inventory(100)}
            await engine.report_host(HostInventory(host=host, cell=cell, inventories=inventories))
        return small

    async def wire_segments(self) -> None:
        """The segments of the routed network, with a hundred addresses each; they stay for the worlds after this one."""
        if "segments" not in self._wired:
            self._wired.add("segments")
            wires = [
                SegmentReport(segment=SegmentId(each), name=each, total=100, hosts=on) for each, on in SEGMENTS.items()
            ]
            await self.engine.report_segments(wires)

    async def wire_host4(self) -> None:
        """One more host in the first cell; it stays for the worlds after this one."""
        if "host4" in self._wired:
            return
        self._wired.add("host4")
        host, cell = ALL_HOSTS[3]
        inventories = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192), "DISK_GB": Inventory(100)}
        await self.engine.report_host(HostInventory(host=host, cell=cell, inventories=inventories))
        await self.wire_segments()
        segment, hosts = next(iter(SEGMENTS.items()))
        wired = SegmentReport(segment=SegmentId(segment), name=segment, total=100, hosts=(*hosts, host))
        await self.engine.report_segments([wired])
        await self.wire_devices()
        await self.engine.report_devices(devices_of(host))

    async def wire_devices(self) -> None:
        """The devices that give guarantees on each host; they stay too."""
        if "devices" not in self._wired:
            self._wired.add("devices")
            await self.engine.report_devices([device for host, _ in HOSTS for device in devices_of(host)])

    async def close(self) -> None:
        await self.engine.close()
        for database in (self.region, *self.cells.values()):
            await database.close()

    def _context(self) -> SagaContext:
        return SagaContext(
            region=self.region,
            cells=Cells(self.cells),
            placement=self.engine,
            network=cast("Any", self.network),
            images=cast("Any", self.images),
            volumes=cast("Any", self.volumes),
            hosts=cast("Any", self.hosts),
            dispatcher=cast("Any", None),
            notification_writer=self.notification_writer,
            settings=SagaSettings(cell_links=frozenset({frozenset(CELLS)})),
        )

    async def fresh(
        self, server: Server | None, operation: OperationId, seq: int = 1, *, guarantees: bool = False
    ) -> "SmallRegion":
        """An empty region, with the record of one server that the operation holds."""
        if guarantees:
            await self.wire_devices()
        self.network, self.images, self.volumes = DictNetwork(guarantees=guarantees), DictImages(), DictVolumes()
        self.hosts = DictHosts(images=self.images)
        self.watches_moves = self.fails_to_error = self.watches_addresses = self.watches_cells = False
        self.charged_meanwhile = {}
        self.context = self._context()
        for last, key in enumerate((USERS_PORT, SPARE_PORT), start=1):
            mac = f"fa:16:3e:00:00:{last:02x}"
            self.network.ports[key] = Port(id=key, network=NETWORK, mac=mac, ours=False)

        def empty(tx: Tx) -> None:
            for each in EMPTY_REGION:
                tx.run(each)
            if server is not None:
                quotas.reserve(tx, PROJECT, {"instances": 1, "cores": 1, "ram": 64})
                region_servers.insert(tx, [msgspec.structs.replace(server, operation=operation)])

        def empty_cell(tx: Tx) -> None:
            for each in EMPTY_CELL:
                tx.run(each)

        await self.region.write(empty)
        for database in self.cells.values():
            await database.write(empty_cell)
        return self

    def put_back(
        self, network: DictNetwork, images: DictImages, volumes: DictVolumes, hosts: DictHosts, watched: dict[str, Any]
    ) -> None:
        """The services as they were, and what of them is watched; the rows are somebody else's (`Kept`)."""
        self.network, self.images, self.volumes, self.hosts = network, images, volumes, hosts
        for name, value in watched.items():
            setattr(self, name, value)
        self.context = self._context()

    async def hand_to(self, operation: OperationId) -> None:
        """The slot of the server is taken by the next operation."""
        await self.region.write(lambda tx: region_servers.take(tx, SERVER, operation, None, though_owed=True))

    def transact(self, work: Callable[[Any], T], /) -> Awaitable[T]:
        """The region's transactions, for the journal in memory."""
        return self.region.write(work)

    def on_commit(self, tx: Tx, saga: Saga[Any, Any], run: Run[Any, Any], lines: Sequence[Line]) -> None:
        """The notifications of each commit of a saga."""
        self.notification_writer.on_commit(tx, saga, run, lines)

    async def notifications(self) -> list[Notification]:
        """All notifications, in order."""
        kept = await self.region.read(lambda tx: OUTBOX.first(tx, SAID_MAX))
        return [msgspec.json.decode(each.doc, type=Notification) for each in kept]

    async def settle(self) -> None:
        """One round of the reconcilers, after hosts that fell silent are home."""
        await come_home(self)
        await OrphanPorts(self.context).run()
        await OrphanAttachments(self.context).run()

    async def held(self) -> dict[str, Any]:
        """Ports and bindings, claims and their sum, rows in cells, guests, quota, images that nobody is filling any more."""

        def in_region(tx: Tx) -> dict[str, Any]:
            return {
                "claims": tx.scalar(CLAIMS),
                "used": tx.scalar(USED),
                "cell": bool(tx.scalar(CELL)),
                "quota": quotas.usage(tx, PROJECT),
                "guarantees": guaranteed(tx, self.network.ports.values()),
            }

        found = await self.region.read(in_region)
        held = await self.region.read(lambda tx: tx.scalar(OPERATION))
        rows, cards, devices = 0, 0, 0
        for database in self.cells.values():
            living = await database.read(lambda tx: records_on(tx, EVERY_HOST))
            rows += len(living)
            cards += sum(len(each.nics) for each in living)
            devices += sum(len(each.block_devices) for each in living)
        bound = sorted((port.ours, bool(port.host), bool(port.device_id)) for port in self.network.ports.values())
        return {
            **found,
            "doubt": (await records.find(self.context, SERVER)).doubt,
            "rows": rows,
            "cards": cards,
            "devices": devices,
            "volumes": self.volumes.held(),
            "snapshots": [] if held else sorted(self.volumes.snapshots),
            "ports": bound,
            "inactive bindings": len(self.network.left_inactive()),
            "images": sorted(image for image, whole in self.images.whole.items() if whole),
            "half images": sorted(image for image, whole in self.images.whole.items() if not (whole or held)),
            **self.hosts.held(),
            **(await addresses_held(self, SERVER) if self.watches_addresses else {}),
            **(await records_held(self.region, self.cells, SERVER) if self.watches_cells else {}),
            **(await moves_held(self, EVERY_HOST, PROJECT, under_way=held is not None) if self.watches_moves else {}),
            "said": {**notification_faults(await self.notifications()), "unworded": self.notification_writer.failures},
        }


def a_server(**changes: Any) -> Server:
    """An ordinary server's order."""
    server = Server(
        id=SERVER,
        project=PROJECT,
        user="user-1",
        name="a",
        hostname="a",
        created_at=1,
        flavor=FlavorCopy(id=FlavorId("1"), name="tiny", vcpus=1, ram_mib=64, disk_gib=1),
    )
    return msgspec.structs.replace(server, **changes)


def a_boot(operation: OperationId) -> Boot:
    """With a port of ours and a port of the user's."""
    return Boot(
        server=a_server(operation=operation),
        request_id="req-boot",
        nics=(
            NicAsk(index=0, network=NETWORK, mac=mint_mac(SERVER, 0)),
            NicAsk(index=1, network=NETWORK, port=USERS_PORT, ours=False),
        ),
        networks={NETWORK: NETWORK_FACTS},
        needs=needs_of(vcpus=1, memory_mb=64, disk_gb=1),
    )


__all__ = ["HOSTS", "SERVER", "DictHosts", "DictNetwork", "SmallRegion", "a_boot", "a_server"]
