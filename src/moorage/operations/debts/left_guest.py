"""Ends the debt of a host that has, or may have, a guest which an operation left there (RULES §25).

A delete ends without its host: the server is gone for its owner, with its quota. Its guest may still run there and write
to its volumes, so attachments, ports and claim stay the server's. When the host is home the round `host_debts` destroys
the guest and releases them. So does a boot that failed at its host, whose server shows ERROR meanwhile.
"""

from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.model.debt import Debt, DebtKind
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.ids import ServerId
from moorage.model.server import Server
from moorage.model.verdict import InventoryState
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import release_unbuilt
from moorage.operations.steps.volumes import release_all
from moorage.sql import Tx
from moorage.store.region import debts
from moorage.store.region import servers as region_servers

PAY_S = 15.0
"""How long a round waits for a host; the next round sends the same command again."""


async def settle(context: SagaContext, debt: Debt, *, is_off: bool = False) -> None:
    """For a server that was deleted: destroy the guest, then release what it used, and the debt with the claim in one
    commit. Another host that may have one keeps them. A repeat has no further effect.

    `is_off`: it is proved that the host's guests are off. Raises HostFailed when the host cannot, Unavailable when it or
    another service does not answer.
    """
    server = debt.server
    if not is_off:
        where = await context.region.read(lambda tx: region_servers.find(tx, server))
        newest = debt.turn.operation_seq if where is None else max(debt.turn.operation_seq, where.op_seq)
        turn = FencingToken(newest, LAST_ATTEMPT, UNDO)
        command = CommandContext(debt.operation, turn, "destroy_left_guest", PAY_S, unsure=True, until_done=True)
        await context.hosts.destroy_guest(HostAddress(debt.cell, debt.host), command, server)
    is_last = not await is_elsewhere(context, debt)
    if is_last:
        located = await records.find(context, server)
        await released(context, server, located.server, built=located.cell is not None)

    def work(tx: Tx) -> tuple[InventoryState, ...]:
        return (*context.placement.release(tx, server),) if debts.end(tx, debt) and is_last else ()

    context.placement.settle(await context.region.write(work))


async def is_elsewhere(context: SagaContext, debt: Debt) -> bool:
    """Whether another host owes the destruction of a guest of the same server."""
    owed = await context.region.read(lambda tx: debts.of_server(tx, debt.server))
    return any(each.kind is DebtKind.DESTROY and each.host != debt.host for each in owed)


async def released(context: SagaContext, server: ServerId, record: Server | None, *, built: bool) -> None:
    """Release ports and volumes of a server that is gone, or, not `built`, of a boot that failed."""
    nics, volumes = (record.nics, record.volumes) if record is not None else ((), ())
    await context.network.release_ports(server, tuple(nic.mac for nic in nics if nic.ours and nic.mac))
    if not built:
        await release_unbuilt(context, server, volumes)
    if built or (record is not None and record.deleted):
        await release_all(context, server, volumes, owed=True)
