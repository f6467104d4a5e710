"""The end of a move across segments that nobody confirms (`segment_change.py`): when the server is shown where it is, its old addresses go."""

from collections.abc import Mapping

from moorage.model.ids import CellId
from moorage.operations.steps import moving, segment_change
from moorage.operations.steps import servers as records
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.moving import MoveRun
from moorage.saga import no_result

FORWARD_ONLY = "the server has been shown with its new addresses"
PATIENCE_S = 24 * 3600.0


async def leave(run: MoveRun, cell: CellId, cards: Cards, subnets: Mapping[int, str]) -> None:
    """Its ports have no address any more that they only kept; what the record shows stays, so none is left without."""
    if not subnets:
        return
    server = (await records.find(run.context, run.input.server.id)).server
    if server is None:
        return
    shown = {str(nic.port): {each.address for each in nic.addresses} for nic in server.nics}
    left = {
        port.id: [each.address for each in port.fixed_ips if each.address not in shown[port.id]]
        for port in cards.ports
        if port.index in subnets and port.id in shown
    }
    if any(left.values()):
        await moving.not_overtaken(run, cell)
        await run.context.network.leave_addresses(server.id, {port: old for port, old in left.items() if old})


async def release(run: MoveRun, consumer: str, cards: Cards, subnets: Mapping[int, str]) -> None:
    """The work of a region step: what was claimed for them is free. Whose segments stayed the same has nothing to write."""
    left = segment_change.leaves(cards, subnets)
    if not left:
        return
    engine = run.context.placement
    engine.settle(await run.commit(lambda tx: engine.shrink(tx, consumer, left), result=no_result))
