"""Ten thousand correct servers: nothing is found, and the number of statements grows with pages, not with servers."""

import dataclasses
from functools import partial
from typing import Any, cast

import msgspec
import sqlalchemy as sa

from moorage.conductor.audit.auditor import Auditor
from moorage.conductor.audit.reader import PAGE, NoGuests
from moorage.model.audit import AuditRequest
from moorage.model.clock import SystemClock
from moorage.model.ids import OperationId, ServerId
from moorage.sql import Tx
from moorage.store.region import quotas
from moorage.store.region.placement.tables import allocations, consumers, inventories
from moorage_testing.bench.rounds import PagedNetwork, _claimed, _port, _record, _server
from moorage_testing.region_fixture import CELLS, PROJECT, SmallRegion, a_server

SERVERS = 10_000
STATEMENTS_OF_A_PAGE = 12
"""Three of the region, and three of each of two cells; the rest is for pages that end where a cell's does."""
STATEMENTS_BESIDE = 60


async def _filled(small: SmallRegion) -> None:
    provider = next(
        host for host, slot in small.engine.world().slots.items() if small.engine.world().names[slot] == "host1"
    )
    servers = [msgspec.structs.replace(_server(number), provider=provider) for number in range(SERVERS)]

    def claim(tx: Tx) -> None:
        _claimed(tx, servers)
        tx.run(consumers.update().values(host=provider))
        held = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
        rows = [
            {"consumer": each.id, "provider": provider, "class": name, "used": amount}
            for each in servers
            for name, amount in held.items()
        ]
        tx.run(allocations.insert(), rows)
        for name, amount in held.items():
            mine = (inventories.c.provider == provider) & (inventories.c["class"] == name)
            tx.run(sa.update(inventories).where(mine).values(used=amount * SERVERS))
        quotas.recount(tx, PROJECT, {"instances": SERVERS, "cores": SERVERS, "ram": 64 * SERVERS})

    await small.region.write(lambda tx: tx.run(sa.text("DELETE FROM servers")))
    for cell in CELLS:
        await small.cells[cell].write(partial(_record, servers=[each for each in servers if each.cell == cell]))
    await small.region.write(claim)
    network = PagedNetwork([_port(each) for each in servers])
    small.context = dataclasses.replace(small.context, network=cast("Any", network))


def _statements(small: SmallRegion) -> int:
    return sum(each.meter.statements.total() for each in (small.region, *small.cells.values()))


async def test_ten_thousand_healthy_servers_raise_no_alarm() -> None:
    small = await SmallRegion.open()
    try:
        await small.fresh(a_server(), OperationId("x"))
        await _filled(small)
        auditor = Auditor(small.context, NoGuests(), SystemClock(), again_after_s=0)
        before = _statements(small)
        report = await auditor.run(AuditRequest())
        statements = _statements(small) - before
        assert report.findings == ()
        assert report.counts == {}
        assert (report.looked_at["servers"], report.looked_at["ports"]) == (SERVERS, SERVERS)
        assert statements <= STATEMENTS_OF_A_PAGE * 2 * SERVERS / PAGE + STATEMENTS_BESIDE
        gone = ServerId(f"{77:08x}-0000-4000-8000-000000000000")
        drop = sa.delete(allocations).where(allocations.c.consumer == gone, allocations.c["class"] == "VCPU")
        await small.region.write(lambda tx: tx.run(drop))
        kinds = ("allocation_amounts_wrong", "usage_drifted")
        network = small.context.network
        cast("Any", network).ports_of = partial(_ports_of, network)
        found = await auditor.run(AuditRequest(kinds=kinds))
        assert found.counts == dict.fromkeys(kinds, 1), "and one that is wrong among them is found"
    finally:
        await small.close()


async def _ports_of(network: Any, server: str) -> list[Any]:
    return list((await network.held_by_ports()).get(server, {}).values())
