"""Takes over the operations of conductors that are dead."""

import logging
from collections.abc import Callable

from moorage.conductor.lease import ConductorLease, Peers
from moorage.model.clock import Clock
from moorage.model.ids import OperationId
from moorage.model.operation import OperationStatus
from moorage.operations.registry import SAGAS
from moorage.sql import Database, label
from moorage.store.region import conductors, operation_owners

logger = logging.getLogger(__name__)


async def take_over(
    region: Database,
    lease: ConductorLease,
    peers: Peers,
    clock: Clock,
    *,
    may: Callable[[], bool],
    everything: bool = False,
) -> dict[OperationId, OperationStatus]:
    """Note who lives, and take over the operations of those who do not while `may` allows it; return what was taken.

    `everything`: no other conductor can be alive, whatever its lease says.
    """
    adopted: dict[OperationId, OperationStatus] = {}
    me = lease.id
    with label("adopt"):
        known = await region.read(conductors.peers)
        silent = peers.note(known, me, clock.monotonic())
        if everything:
            silent = {each.id: each.alive_until for each in known if each.lives and each.id != me}
        if silent:
            if not everything:
                logger.error("conductors %s do not renew their leases, which are ended", ", ".join(sorted(silent)))
            await region.write(lambda tx: conductors.end_silent(tx, silent))
            peers.note(await region.read(conductors.peers), me, clock.monotonic())
        while may():
            ids = await region.read(lambda tx: operation_owners.orphaned(tx, me, SAGAS, everything=everything))
            if not ids:
                break
            adopted |= await region.write(
                lambda tx, ids=ids: operation_owners.adopt(tx, me, ids, SAGAS, everything=everything)  # type: ignore[misc]
            )
    return adopted
