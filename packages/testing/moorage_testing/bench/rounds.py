"""What the periodic rounds cost: CPU and statements for each server, at three sizes; one process in the region runs them."""

import dataclasses
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from moorage.clients.network.decoding import port_of
from moorage.clients.network.queries import DEVICE_FIELDS, HELD_FIELDS
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.model.ids import HostId, NetworkId, OperationId, PortId, ServerId
from moorage.model.network import Binding, NetworkNames, Port, SubnetFacts, mint_mac
from moorage.model.server import Address, Nic, Server, VmState
from moorage.operations.context import SagaContext
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.tables import consumers
from moorage_testing.bench.table import BenchRow, Table
from moorage_testing.region_fixture import CELLS, SmallRegion, a_server
from moorage_testing.region_network import NETWORK, SUBNET

SIZES = (500, 2_000, 8_000)
CPU_MS_MOST = 0.1
STATEMENTS_MOST = 0.05
"""For each server: rows are read by the page."""
PAGE = 1_000


class PagedNetwork:
    """Lists of ports as the network service's client reads them: pages of JSON, decoded and made ports one by one."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self._devices, self._held = self._pages(DEVICE_FIELDS), self._pages(HELD_FIELDS)
        """Written beforehand: that is the network service's part."""

    def _pages(self, fields: tuple[str, ...]) -> list[bytes]:
        kept = [{name: row[name] for name in fields if name in row} for row in self._rows]
        return [msgspec.json.encode({"ports": kept[at : at + PAGE]}) for at in range(0, len(kept), PAGE)]

    async def devices(self) -> dict[str, dict[str, Port]]:
        return _by_device(self._devices)

    async def held_by_ports(self) -> dict[str, dict[str, Port]]:
        return _by_device(self._held)

    async def subnets(self) -> tuple[SubnetFacts, ...]:
        return ()

    async def bindings(self, port: str) -> tuple[Binding, ...]:
        return ()

    async def names(self) -> NetworkNames:
        return NetworkNames()

    async def floating(self) -> dict[str, list[tuple[str, str]]]:
        return {}


def _by_device(pages: list[bytes]) -> dict[str, dict[str, Port]]:
    found: dict[str, dict[str, Port]] = {}
    for page in pages:
        for row in msgspec.json.decode(page)["ports"]:
            found.setdefault(row["device_id"], {})[row["id"]] = port_of(row)
    return found


async def rounds(table: Table) -> None:
    """Every reconciler that reads each server, with servers that are all correct."""
    for count in SIZES:
        with tempfile.TemporaryDirectory() as directory:
            small = await SmallRegion.open(Path(directory))
            try:
                await small.fresh(a_server(), OperationId("bench"))
                context = await filled(small, count)
                await measured(table, small, context, count)
            finally:
                await small.close()


async def filled(small: SmallRegion, count: int) -> SagaContext:
    """So many servers with a port and a claim each, in two cells, and nothing amiss."""
    await small.region.write(lambda tx: tx.run(region_servers.servers.delete()))
    servers = [_server(number) for number in range(count)]
    for cell in CELLS:
        mine = [each for each in servers if each.cell == cell]
        await small.cells[cell].write(partial(_record, servers=mine))
    await small.region.write(lambda tx: _claimed(tx, servers))
    network = PagedNetwork([_port(each) for each in servers])
    return dataclasses.replace(small.context, network=cast("Any", network))


def _server(number: int) -> Server:
    server = ServerId(f"{number:08x}-0000-4000-8000-000000000000")
    port = PortId(f"{number:08x}-0000-4000-8000-000000000001")
    address = Address(address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", version=4, subnet=SUBNET)
    nic = Nic(
        index=0,
        network=NetworkId(NETWORK),
        network_name=NETWORK,
        port=port,
        mac=mint_mac(server, 0),
        addresses=(address,),
    )
    return a_server(
        id=server,
        vm_state=VmState.ACTIVE,
        task_state=None,
        operation=None,
        host="host1",
        provider=HostId("host1"),
        cell=CELLS[number % len(CELLS)],
        nics=(nic,),
    )


def _record(tx: Tx, servers: list[Server]) -> None:
    for server in servers:
        cell_servers.record(tx, server, Fence(OperationId("boot"), 1, 1, 1))


def _claimed(tx: Tx, servers: list[Server]) -> None:
    region_servers.insert(tx, servers)
    table = region_servers.servers
    tx.run(table.update().values(operation=None, doc=None))
    for cell in CELLS:
        ids = [each.id for each in servers if each.cell == cell]
        for at in range(0, len(ids), 500):
            tx.run(table.update().where(table.c.id.in_(ids[at : at + 500])).values(cell=cell))
    holders = [
        {"uuid": each.id, "generation": 1, "project": each.project, "user_id": each.user, "operation": "boot"}
        for each in servers
    ]
    tx.run(consumers.insert(), holders)


def _port(server: Server) -> dict[str, Any]:
    nic = server.nics[0]
    return {
        "id": nic.port,
        "device_id": server.id,
        "network_id": nic.network,
        "mac_address": nic.mac,
        "revision_number": 3,
        "binding:host_id": server.host,
        "binding:profile": {},
        "binding:vif_type": "ovs",
        "fixed_ips": [{"subnet_id": SUBNET, "ip_address": nic.addresses[0].address}],
        "resource_request": None,
    }


async def measured(table: Table, small: SmallRegion, context: SagaContext, count: int) -> None:
    """One row for each round: CPU of this process, and statements, for each server."""
    runs: tuple[tuple[str, Callable[[], Awaitable[Any]]], ...] = (
        ("stray_ports", OrphanPorts(context).run),
        ("stray_claims", OrphanAllocations(context).run),
        ("port_drift", PortDrift(context).run),
        ("quota_usage", QuotaUsage(context).run),
    )
    for name, run in runs:
        await run()  # what is read for the first time, and counters that the servers put here did not move
        before, began = _statements(small), time.process_time()
        done = await run()
        cpu_ms = (time.process_time() - began) * 1000 / count
        statements = (_statements(small) - before) / count
        table.add(
            BenchRow(
                f"{name}, {count} servers",
                cpu_ms,
                "ms",
                CPU_MS_MOST,
                note=f"of CPU for each server; {done.looked_at} looked at",
            )
        )
        table.add(BenchRow("  statements for each server", statements, "", STATEMENTS_MOST, counting=True))


def _statements(small: SmallRegion) -> int:
    return sum(each.meter.statements.total() for each in (small.region, *small.cells.values()))
