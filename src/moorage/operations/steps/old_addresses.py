"""Ends a move across segments that has no confirm (`segment_change.py`): once the server is shown on its host, its old
addresses are released.
"""

from collections.abc import Mapping

from moorage.model.ids import CellId
from moorage.operations.steps import segment_change
from moorage.operations.steps import servers as records
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.moving import MoveRun
from moorage.saga import no_result

FORWARD_ONLY = "the server has been shown with its new addresses"
PATIENCE_S = 24 * 3600.0


async def leave(run: MoveRun, cell: CellId, cards: Cards, subnets: Mapping[int, str]) -> None:
    """Take the kept old addresses from its ports; the ones that the record shows stay, so no port is left without."""
    if not subnets:
        return
    server = (await records.sure(run.context, run.input.server.id)).server
    if server is None:
        return
    shown = {str(nic.port): {each.address for each in nic.addresses} for nic in server.nics}
    left = {
        port.id: [each.address for each in port.fixed_ips if each.address not in shown[port.id]]
        for port in cards.ports
        if port.index in subnets and port.id in shown
    }
    if any(left.values()):
        await records.not_overtaken(run, cell)
        await run.context.network.leave_addresses(server.id, {port: old for port, old in left.items() if old})


async def release(run: MoveRun, consumer: str, cards: Cards, subnets: Mapping[int, str]) -> None:
    """Release their claims, in a region step; ports that kept their segment have nothing to release."""
    left = segment_change.leaves(cards, subnets)
    if not left:
        return
    engine = run.context.placement
    engine.settle(await run.commit(lambda tx: engine.shrink(tx, consumer, left), result=no_result))
