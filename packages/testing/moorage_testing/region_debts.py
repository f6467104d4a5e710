"""Hosts of a small region that fell silent come home: they destroy what does not belong there, and pay what they owe."""

from typing import Any

from moorage.model.debt import Debt, DebtKind
from moorage.model.ids import OperationId
from moorage.operations.debts import left_guest
from moorage.operations.debts.settle_debt import SETTLE_DEBT, SettleDebt
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import debts
from moorage.store.region import servers as region_servers

PAID_IN_ROUNDS_MAX = 5


async def come_home(small: Any) -> None:
    """Only hosts that lost an answer in this case; nothing happens when none did, or while an operation holds the server."""
    hosts = small.hosts
    if not hosts.fell_silent:
        return
    hosts.silent -= hosts.fell_silent
    hosts.refusals_left.clear()
    hosts.loses = 0
    await _destroy_strangers(small)
    for _ in range(PAID_IN_ROUNDS_MAX):
        owed = await small.region.read(debts.page)
        if not owed:
            break
        for each in owed:
            await pay(small, each)


async def pay(small: Any, debt: Debt) -> None:
    """As the reconciler does, with an operation of its own; the guest of a deleted server, with none."""
    if debt.kind is DebtKind.DESTROY:
        where = await small.region.read(lambda tx: region_servers.find(tx, debt.server))
        if where is None or where.deleted:
            await left_guest.settle(small.context, debt)
            return
    operation = OperationId(f"pays-{debt.kind.value}-{debt.thing}"[:36])
    taken = await small.region.write(lambda tx: region_servers.take(tx, debt.server, operation, None, though_owed=True))
    server = (await records.find(small.context, debt.server)).server
    if taken is None or taken.holder is not None or server is None:
        return
    journal = MemoryJournal(first_lines(SETTLE_DEBT), small.transact)
    await execute(SETTLE_DEBT, operation, SettleDebt(server, taken.seq, debt), small.context, journal)


async def _destroy_strangers(small: Any) -> None:
    """What a cell has a host do that returns: guests of servers that are elsewhere, and are not being moved, go."""
    hosts = small.hosts
    for host, server in list(hosts.guests):
        where = await small.region.read(lambda tx, server=server: region_servers.find(tx, server))
        if host not in hosts.fell_silent or (where is not None and where.operation is not None):
            continue
        record = (await records.find(small.context, server)).server
        stays = record is not None and not record.deleted and host in {record.host, record.moved and record.moved.host}
        if not stays:
            del hosts.guests[host, server]
            hosts.vifs -= {each for each in hosts.vifs if each[:2] == (host, server)}
            hosts.disks -= {each for each in hosts.disks if each[:2] == (host, server)}
            hosts.copies.pop((host, server), None)
            hosts.sent -= {each for each in hosts.sent if each[:2] == (host, server)}
            for kept in (hosts.left, hosts.waits, hosts.departed):
                kept.pop((host, server), None)
    for key in [each for each in hosts.departed if each[0] in hosts.fell_silent and each not in hosts.guests]:
        del hosts.departed[key]  # the rest of a guest that left goes with what its host is told when it returns
