"""Changes servers' claims for the embedded network service when the guarantee of a bound port changes.

In `moorage up` both are in one process, and the change is one transaction.  If the service runs in a role of its own, it cannot reach
the region's database: it uses the Placement API as a real Neutron does, with credentials of its own and with the consumers'
generations.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.clients.http import ServiceClient
from moorage.main.composition import RegionProcess
from moorage.model.errors import Conflict, Problem, Refusal, Unavailable, UnknownOutcome
from moorage.model.ids import ProviderId
from moorage.model.json_types import JsonObject
from moorage.model.retry import jittered
from moorage.model.verdict import InventoryState
from moorage.placement.service.error_codes import CONCURRENT_UPDATE
from moorage.sql import Tx, label

if TYPE_CHECKING:
    from moorage_embedded.network.guarantees import GuaranteeChange

logger = logging.getLogger(__name__)

TRIES_MAX = 10
"""How often allocations are read and written again because another request changed them meanwhile."""
PAUSE_S = 0.02
"""The pause between two tries, times the number of tries."""
READS_AT_ONCE = 16
PLACEMENT_VERSION = {"OpenStack-API-Version": "placement 1.36"}
"""Generations of consumers (1.28), codes of conflicts (1.23), and the consumer's type left as it is (before 1.38)."""


class GuaranteeWriter:
    """Changes claims in the region's database. It exists before the region is open."""

    def __init__(self) -> None:
        self.region: RegionProcess | None = None

    async def __call__(self, changes: "Sequence[GuaranteeChange]", must_be: bool) -> bool:
        """Change the servers' claims, all or none. False: they do not fit. `must_be`: change them even if they do not fit."""
        region = self.region
        if region is None:
            return False
        engine = region.engine

        def work(tx: Tx) -> tuple[InventoryState, ...] | None:
            rows: list[InventoryState] = []
            for change in changes:
                amounts = {(ProviderId(each.provider), each.resource): (each.was, each.now) for each in change.amounts}
                done = engine.adjust(tx, change.server, amounts, force=must_be)
                if done is None:
                    return tx.refuse(None)
                rows += done
            return tuple(rows)

        with label("change_guarantees"):
            rows = await region.databases.region.write(work)
        if rows is None:
            return False
        engine.settle(rows)
        return True


class _Held(msgspec.Struct, frozen=True):
    """The allocations of one consumer, from the Placement API; without allocations there is no generation."""

    allocations: dict[str, dict[str, int]]
    project: str = ""
    user: str = ""
    generation: int | None = None


class GuaranteesOverHttp:
    """Changes claims with the Placement API: `POST /allocations`, which changes several consumers or none."""

    def __init__(self, placement: ServiceClient) -> None:
        self._placement = placement
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def __call__(self, changes: "Sequence[GuaranteeChange]", must_be: bool) -> bool:
        """Change the servers' claims, all or none. False: they do not fit.

        What could not be released, or not be claimed again because others took it, is corrected by the reconciler of ports and claims.
        Raises Unavailable when placement is out or the outcome is unknown, unless `must_be` is set.
        """
        if not must_be:
            return await self._change(changes)
        try:
            done = await self._change(changes)
        except Problem as problem:
            logger.warning("the claims of %s cannot be changed back now: %s", _names(changes), problem)
            return False
        if not done:
            logger.warning("the earlier claims of %s cannot be made again: they do not fit any more", _names(changes))
        return done

    async def _change(self, changes: "Sequence[GuaranteeChange]") -> bool:
        sent: dict[str, _Held] | None = None
        wanted: dict[str, _Held] = {}
        for attempt in range(TRIES_MAX):
            held = await self._all_held({each.server for each in changes})
            if sent is not None and held != sent:  # an answer was lost: the change, or another one, was made
                if {server: each.allocations for server, each in held.items()} == {
                    server: each.allocations for server, each in wanted.items()
                }:
                    return True
                raise Unavailable("it is unknown whether placement made the change; try again later")
            if not all(each.allocations for each in held.values()):
                return False
            wanted = {server: _changed(server, each, changes) for server, each in held.items()}
            body = {server: _body_of(each) for server, each in wanted.items()}
            try:
                await self._placement.call("POST", "/allocations", body=body, headers=PLACEMENT_VERSION)
            except UnknownOutcome:
                sent = held
            except Conflict as refused:
                if refused.code != CONCURRENT_UPDATE:
                    return False
                sent = None
            except Refusal as refused:
                raise Unavailable(f"placement refused the change: {refused.public}", private=refused.private) from None
            else:
                return True
            await asyncio.sleep(jittered(PAUSE_S * (attempt + 1)))
        raise Unavailable("what these servers hold keeps changing in placement; try again later")

    async def _all_held(self, servers: set[str]) -> dict[str, _Held]:
        order = sorted(servers)
        return dict(zip(order, await asyncio.gather(*map(self._held, order)), strict=True))

    async def _held(self, server: str) -> _Held:
        async with self._reads:
            try:
                reply = await self._placement.call("GET", f"/allocations/{server}", headers=PLACEMENT_VERSION)
            except Refusal as refused:
                raise Unavailable(f"placement refused: {refused.public}", private=refused.private) from None
        body: Mapping[str, Any] = reply.body
        rows = {provider: dict(each["resources"]) for provider, each in body["allocations"].items()}
        return _Held(rows, body.get("project_id", ""), body.get("user_id", ""), body.get("consumer_generation"))


def _changed(server: str, held: _Held, changes: "Sequence[GuaranteeChange]") -> _Held:
    """The consumer's new allocations: each changed row by its difference; the rows of its host and of other ports stay."""
    rows = {provider: dict(resources) for provider, resources in held.allocations.items()}
    for each in (amount for change in changes if change.server == server for amount in change.amounts):
        resources = rows.setdefault(each.provider, {})
        resources[each.resource] = resources.get(each.resource, 0) + each.now - each.was
    kept = {
        provider: {name: amount for name, amount in resources.items() if amount > 0}
        for provider, resources in rows.items()
    }
    return msgspec.structs.replace(held, allocations={provider: each for provider, each in kept.items() if each})


def _body_of(wanted: _Held) -> JsonObject:
    return {
        "allocations": {provider: {"resources": each} for provider, each in wanted.allocations.items()},
        "project_id": wanted.project,
        "user_id": wanted.user,
        "consumer_generation": wanted.generation,
    }


def _names(changes: "Sequence[GuaranteeChange]") -> str:
    return ", ".join(sorted({each.server for each in changes}))
