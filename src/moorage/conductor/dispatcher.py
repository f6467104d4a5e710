"""Chooses the conductor of an accepted operation: the API names an owner before the commit, and hands over or sends a
hint after it.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moorage.bus import subjects
from moorage.bus.messages import OperationHint, encode
from moorage.bus.transport import Bus
from moorage.model.errors import Unavailable
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.sql import Database
from moorage.store.region import conductors
from moorage.store.region.conductors import Peer

if TYPE_CHECKING:
    from moorage.conductor.worker import Conductor

LIVING_KEPT_S = 2.0
NAMED_MAX = 3


class BusDispatcher:
    """The `operations.context.OperationDispatcher`: chooses an owner, and hands over or sends hints."""

    def __init__(self, region: Database, bus: Bus, local: "Conductor | None" = None) -> None:
        self._region = region
        self._bus = bus
        self.local = local
        self._living: Sequence[Peer] = ()
        self._read_at = -LIVING_KEPT_S
        self._turn = 0

    async def choose(self, saga: str) -> ConductorId:
        """The conductor of this process if there is one, otherwise the living ones in turn; none that does not reach the
        bus while another does.

        Raises Unavailable when none lives, and when one of the living ones does not know this saga (RULES §19): if the
        owner dies, any other must be able to continue. This happens during an upgrade in another order than the
        documented one.
        """
        local = self.local
        if local is not None and local.alive and not local.is_worse_placed:
            _refuse_unknown(saga, [peer.host for peer in local.peers.unknown_to(saga)])
            return local.id
        now = asyncio.get_running_loop().time()
        if now - self._read_at > LIVING_KEPT_S or not self._living:
            self._living = await self._region.read(conductors.living)
            self._read_at = now
        if not self._living:
            raise Unavailable("no conductor is running that could execute this; try again later")
        _refuse_unknown(saga, [peer.host for peer in self._living if saga not in peer.sagas])
        self._turn += 1
        able = conductors.reaching_bus(self._living)
        return able[self._turn % len(able)].id

    async def begun(self, accepted: Accepted) -> None:
        """See `operations.context.OperationDispatcher`."""
        if self.local is not None and accepted.owner == self.local.id:
            self.local.hand_over(accepted)
        else:
            hint = OperationHint(accepted.id, accepted.owner)
            await self._bus.publish(subjects.to_conductor(accepted.owner), encode(hint))

    async def cancelled(self, operation: OperationId, owner: ConductorId) -> None:
        """See `operations.context.OperationDispatcher`."""
        if self.local is not None and owner == self.local.id:
            self.local.check_cancel(operation)
        else:
            hint = OperationHint(operation, owner, cancelled=True)
            await self._bus.publish(subjects.to_conductor(owner), encode(hint))


def _refuse_unknown(saga: str, hosts: Sequence[str]) -> None:
    if hosts:
        raise Unavailable(
            "this cannot begin before all conductors run this release; try again later",
            private=f"{saga} is not known to {len(hosts)} living conductors, on {', '.join(sorted(set(hosts))[:NAMED_MAX])}: "
            "upgrade conductors first, then APIs",
        )
