"""Writes of allocations by the Placement API: requests of several consumers each, with generations (by the API's
rules).

They differ from internal claims in two ways (RULES §5, §6.6): portions are checked for each allocation, and the
generations of all providers concerned rise. Many requests share a transaction: each is checked by itself after those
before it, and a refused one writes nothing; the result is that of one transaction per request in the same order.
"""

from collections.abc import Mapping, Sequence
from math import gcd
from typing import NamedTuple

import msgspec

from moorage.model.errors import Conflict, Internal, Invalid, NotFound, Problem
from moorage.model.ids import ProviderId
from moorage.model.resources import Inventory
from moorage.model.verdict import InventoryState
from moorage.placement.service import error_codes, provider_changes
from moorage.sql import Tx
from moorage.store.region.placement import allocation_writes, claim_statements, groups
from moorage.store.region.placement.allocation_writes import LockedRows, NewAllocations, WritePlan, WriteResult
from moorage.store.region.placement.claim_statements import InventoryDelta, Key
from moorage.store.region.placement.provider_statements import find, inventories_of
from moorage.store.region.placement.tables import Stamp, stamp

UNKNOWN_TYPE = "unknown"


class WantedAllocations(msgspec.Struct, frozen=True, kw_only=True):
    """The new allocations of one consumer; without any the consumer is removed."""

    amounts: Mapping[str, Mapping[str, int]]
    """Provider → class → amount."""
    project: str
    user: str
    type: str | None = None
    check_generation: bool = False
    generation: int | None = None


Request = Mapping[str, WantedAllocations]
"""Consumer → its new allocations; all of them are written, or none."""


class AllocationOutcome(NamedTuple):
    """One result per request, in order (None: success), and the numbers afterwards."""

    answers: Sequence[Problem | None]
    result: WriteResult


def put(tx: Tx, wanted: Request) -> WriteResult:
    """Write all of them; or raise Conflict or Invalid and change nothing."""
    outcome = put_all(tx, [wanted])
    for problem in outcome.answers:
        if problem is not None:
            raise problem
    return outcome.result


def put_all(tx: Tx, requests: Sequence[Request]) -> AllocationOutcome:
    """Write each request by itself. Commit the transaction whatever the results are: a refused request wrote nothing.

    Raises Internal when a consumer is in two requests.
    """
    consumers = [consumer for request in requests for consumer in request]
    if len(set(consumers)) != len(consumers):
        raise Internal("a consumer may come once in a batch")
    if not consumers:
        return AllocationOutcome([None] * len(requests), WriteResult())
    keys = {
        (ProviderId(provider), resource)
        for request in requests
        for one in request.values()
        for provider, resources in one.amounts.items()
        for resource in resources
    }
    named = {provider for request in requests for one in request.values() for provider in one.amounts}
    sight, plan = allocation_writes.lock_rows(tx, consumers, named, keys), WritePlan()
    answers: list[Problem | None] = []
    for request in requests:
        try:
            change, moved = _changes(request, sight)
            _judge(tx, request, change, moved, sight, plan)
        except Problem as problem:
            answers.append(problem)
            continue
        answers.append(None)
        _accept(request, change, moved, sight, plan)
    if not any(answer is None for answer in answers):
        return AllocationOutcome(answers, WriteResult())
    result = allocation_writes.write(tx, plan, sight)
    for request, answer in zip(requests, answers, strict=True):
        for consumer, one in request.items():
            if answer is None and not one.amounts and consumer in sight.consumers:
                _forget(tx, consumer, stamp(tx))
    return AllocationOutcome(answers, result)


def _changes(request: Request, sight: LockedRows) -> tuple[dict[Key, InventoryDelta], set[str]]:
    """The net change of every row, and the providers whose generations rise: the named ones, and those that an emptied
    consumer leaves; not others that are left. Raises Conflict when a consumer has another generation than given.
    """
    change: dict[Key, InventoryDelta] = {}
    moved: set[str] = set()
    for consumer, one in request.items():
        recorded = sight.consumers.get(consumer)
        if one.check_generation and (None if recorded is None else recorded.generation) != one.generation:
            now = "null" if recorded is None else recorded.generation
            raise Conflict(
                f"consumer generation conflict - expected {now} but got {one.generation}",
                code=error_codes.CONCURRENT_UPDATE,
            )
    for consumer, one in request.items():
        moved.update(one.amounts)
        for key, amount in sight.held.get(consumer, {}).items():
            change[key] = _less(change.get(key), key, amount)
            if not one.amounts:
                moved.add(key[0])
        for provider, resources in one.amounts.items():
            for resource, amount in resources.items():
                key = (ProviderId(provider), resource)
                change[key] = _more(change.get(key), key, amount)
    return change, moved


def _judge(
    tx: Tx, request: Request, change: Mapping[Key, InventoryDelta], moved: set[str], sight: LockedRows, plan: WritePlan
) -> None:
    """Check every amount against the inventory's portions, also unchanged ones, and every increase against the free
    capacity.

    Raises Conflict and Invalid.
    """
    named = {provider for one in request.values() for provider in one.amounts}
    if missing := sorted(named - sight.providers.keys()):
        raise Invalid(f"Allocation for resource provider '{missing[0]}' that does not exist.")
    wants = [want for want in change.values() if want.most]
    levels = sight.levels
    if absent := [want for want in wants if (want.provider, want.resource) not in levels]:
        _refuse_absent(tx, absent, next(iter(request)))
    for want in wants:
        level = levels[want.provider, want.resource]
        if want.least < level.min_unit or want.most > level.max_unit or want.unit % level.step:
            raise Conflict(
                f"Unable to allocate inventory: {want.resource} of resource provider {want.provider} is given in portions "
                f"of {level.min_unit} to {level.max_unit} in steps of {level.step}."
            )
    for key in sorted(change):
        want = change[key]
        if want.change and key not in levels:
            raise Conflict(
                f"Unable to allocate inventory: resource provider {want.provider} has no {want.resource}, or not in such "
                "portions."
            )
        if want.change > 0 and levels[key].used + plan.change.get(key, 0) + want.change > levels[key].cap:
            raise Conflict(
                f"Unable to allocate inventory: {want.change} {want.resource} on resource provider {want.provider}. "
                "The requested amount would exceed the capacity."
            )


def _refuse_absent(tx: Tx, absent: Sequence[InventoryDelta], consumer: str) -> None:
    if unknown := provider_changes.unknown_classes(tx, sorted({want.resource for want in absent})):
        raise Invalid(f"Unable to allocate inventory for consumer {consumer}: No such resource class {unknown[0]}.")
    want = absent[0]
    raise Conflict(
        f"Unable to allocate inventory: Inventory for '{want.resource}' on resource provider '{want.provider}' is absent."
    )


def _accept(
    request: Request, change: Mapping[Key, InventoryDelta], moved: set[str], sight: LockedRows, plan: WritePlan
) -> None:
    for key, want in change.items():
        plan.change[key] = plan.change.get(key, 0) + want.change
    for provider in moved:
        plan.advanced[provider] = plan.advanced.get(provider, 0) + 1
    for consumer, one in request.items():
        recorded = sight.consumers.get(consumer)
        kind = one.type or (UNKNOWN_TYPE if recorded is None else recorded.type)
        amounts = {
            (ProviderId(provider), resource): amount
            for provider, resources in one.amounts.items()
            for resource, amount in resources.items()
        }
        if amounts:
            plan.holders.append(NewAllocations(consumer, one.project, one.user, kind, recorded, amounts))
        plan.dropped += [(consumer, *key) for key in sight.held.get(consumer, {}) if key not in amounts]


def _less(delta: InventoryDelta | None, key: Key, amount: int) -> InventoryDelta:
    return InventoryDelta(*key, -amount) if delta is None else delta._replace(change=delta.change - amount)


def _more(delta: InventoryDelta | None, key: Key, amount: int) -> InventoryDelta:
    """This allocation's own size is checked too."""
    if delta is None:
        return InventoryDelta(*key, amount, amount, amount, amount)
    least = min(delta.least or amount, amount)
    return InventoryDelta(*key, delta.change + amount, least, max(delta.most, amount), gcd(delta.unit, amount))


def _forget(tx: Tx, consumer: str, at: Stamp) -> None:
    gone = claim_statements.forget(tx, consumer)
    if gone is not None and gone.server_group is not None and gone.host is not None:
        groups.leave(tx, gone.server_group, gone.group_policy or "", gone.host, at)


def delete(tx: Tx, consumer: str) -> tuple[InventoryState, ...]:
    """Remove all allocations of a consumer. Raises NotFound when there are none. No provider's generation rises."""
    held = claim_statements.drop(tx, consumer)
    if not held:
        raise NotFound(f"No allocations for consumer '{consumer}'")
    at = stamp(tx)
    rows = claim_statements.take(tx, [InventoryDelta(*key, -amount) for key, amount in held.items()], at)
    _forget(tx, consumer, at)
    return tuple(rows)


def reshape(
    tx: Tx, inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]], wanted: Mapping[str, WantedAllocations]
) -> None:
    """Write inventories and allocations that depend on each other: new inventories first, then allocations, then
    removals.

    Raises Invalid for an unknown provider, Conflict for another generation, and what `put` and the inventories raise.
    """
    for uuid, (expected, _) in inventories.items():
        row = find(tx, uuid)
        if row is None:
            raise Invalid(f"Resource provider {uuid} in inventories not found", code=error_codes.PROVIDER_NOT_FOUND)
        if row.generation != expected:
            raise Conflict(
                f"resource provider generation conflict for provider {uuid}: actual: {row.generation}, given: {expected}",
                code=error_codes.CONCURRENT_UPDATE,
            )
    from_before = {uuid: inventories_of(tx, uuid) for uuid in inventories}
    for uuid, (_, new) in inventories.items():
        if not new:
            continue  # no allocation can need it, and its generation rises once
        kept = {name: inventory for name, (inventory, _) in from_before[uuid].items()}
        provider_changes.set_inventories(tx, uuid, kept | dict(new), None)
    put(tx, wanted)
    for uuid, (_, new) in inventories.items():
        provider_changes.set_inventories(tx, uuid, new, None)
