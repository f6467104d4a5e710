"""Writes of allocations by the Placement API: several consumers in one transaction, by their generations (its rules, not ours).

Differs from internal claims in two ways (RULES §5, §6.6): portions are judged per allocation, and the generations of all
providers concerned move.
"""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.ids import ProviderId
from moorage.model.resources import Inventory
from moorage.model.verdict import Row
from moorage.placement import codes, nouns
from moorage.sql import Tx
from moorage.store.region.placement import claims as sql
from moorage.store.region.placement import groups
from moorage.store.region.placement import nouns as more
from moorage.store.region.placement.claims import Key, Owner, Want
from moorage.store.region.placement.providers import find, inventories_of, now_s
from moorage.store.region.placement.tables import Stamp, stamp

UNKNOWN_TYPE = "unknown"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one consumer is to hold from now on; nothing means: the consumer goes."""

    amounts: dict[str, dict[str, int]]
    """Provider → class → amount."""
    project: str
    user: str
    type: str | None = None
    check_generation: bool = False
    generation: int | None = None


def put(tx: Tx, wanted: Mapping[str, Wanted]) -> tuple[Row, ...]:
    """Make it so for all of them, or raise Conflict or Invalid and leave everything as it was.

    The generations of the providers that are named move, and of those that an emptied consumer leaves; not of others that are left.
    Their rows are locked by that, so no inventory changes under the judgement of portions.
    """
    owners = {consumer: _owner(tx, consumer, one) for consumer, one in wanted.items()}
    at = stamp(tx)
    change: dict[Key, Want] = {}
    moved = {ProviderId(provider) for one in wanted.values() for provider in one.amounts}
    named = frozenset(moved)
    for consumer, one in wanted.items():
        for key, amount in sql.drop(tx, consumer).items() if owners[consumer].known else ():
            change[key] = _plus(change, key, -amount)
            if not one.amounts:
                moved.add(key[0])
        for provider, resources in one.amounts.items():
            for resource, amount in resources.items():
                key = (ProviderId(provider), resource)
                change[key] = _portion(_plus(change, key, amount), amount)
    if missing := more.advance_many(tx, [(provider, None) for provider in sorted(moved)], at):
        raise Invalid(f"Allocation for resource provider '{missing[0]}' that does not exist.")
    judge = partial(_judge, tx, [want for want in change.values() if want.most], named, next(iter(wanted), ""))
    replaced = any(owner.known for owner in owners.values())
    if replaced:
        judge()
    rows = _take(tx, list(change.values()), at, None if replaced else judge)
    for consumer, one in wanted.items():
        _write(tx, owners[consumer].owner, one, at)
    return tuple(rows)


def _judge(tx: Tx, wants: list[Want], named: frozenset[ProviderId], consumer: str) -> None:
    """Every amount is judged by the inventory's portions, also one that is held already; raises Invalid or Conflict."""
    units = more.units(tx, named)
    absent = [want for want in wants if (want.provider, want.resource) not in units]
    if unknown := nouns.known_classes(tx, sorted({want.resource for want in absent})):
        raise Invalid(f"Unable to allocate inventory for consumer {consumer}: No such resource class {unknown[0]}.")
    for want in absent:
        raise Conflict(
            f"Unable to allocate inventory: Inventory for '{want.resource}' on resource provider '{want.provider}' is absent."
        )
    for want in wants:
        least, most, step = units[want.provider, want.resource]
        if want.least < least or want.most > most or want.unit % step:
            raise Conflict(
                f"Unable to allocate inventory: {want.resource} of resource provider {want.provider} is given in portions "
                f"of {least} to {most} in steps of {step}."
            )


def _plus(change: Mapping[Key, Want], key: Key, amount: int) -> Want:
    was = change.get(key) or Want(*key, 0)
    return was._replace(change=was.change + amount)


def _portion(want: Want, amount: int) -> Want:
    """Judge this allocation's own size too."""
    least = min(want.least or amount, amount)
    unit = amount if want.unit == 0 else _gcd(want.unit, amount)
    return want._replace(least=least, most=max(want.most, amount), unit=unit)


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


class _Held(msgspec.Struct, frozen=True):
    """Whose it will be, and whether the consumer is there already."""

    owner: Owner
    known: bool


def _owner(tx: Tx, consumer: str, one: Wanted) -> _Held:
    found = more.consumer(tx, consumer)
    if one.check_generation and (None if found is None else found.generation) != one.generation:
        now = "null" if found is None else found.generation
        raise Conflict(
            f"consumer generation conflict - expected {now} but got {one.generation}", code=codes.CONCURRENT_UPDATE
        )
    if found is None:
        return _Held(Owner(consumer, one.project, one.user, one.type or UNKNOWN_TYPE), known=False)
    old = sql.owner_of(found)
    return _Held(old._replace(project=one.project, user=one.user, type=one.type or old.type), known=True)


def _take(tx: Tx, wants: list[Want], at: Stamp, judge: Callable[[], None] | None) -> list[Row]:
    """The guarded UPDATE of the sums. Where all of them grow it judges portions too, and only a refusal needs to be explained."""
    rows = sql.take(tx, wants, at)
    if len(rows) == sum(1 for want in wants if want.change):
        return rows
    if judge is not None:
        judge()
    short, missing = sql.short(tx, wants, rows)
    if short:
        raise Conflict(
            f"Unable to allocate inventory: {short[0].amount} {short[0].resource} on resource provider "
            f"{short[0].provider}. The requested amount would exceed the capacity."
        )
    provider, resource = missing[0]
    raise Conflict(
        f"Unable to allocate inventory: resource provider {provider} has no {resource}, or not in such portions."
    )


def _write(tx: Tx, owner: Owner, one: Wanted, at: Stamp) -> None:
    amounts = {
        (ProviderId(provider), resource): amount
        for provider, resources in one.amounts.items()
        for resource, amount in resources.items()
    }
    if amounts:
        sql.write(tx, owner, amounts, now_s())
        return
    _forget(tx, owner.consumer, at)


def _forget(tx: Tx, consumer: str, at: Stamp) -> None:
    gone = sql.forget(tx, consumer)
    if gone is not None and gone.server_group is not None and gone.host is not None:
        groups.leave(tx, gone.server_group, gone.group_policy or "", gone.host, at)


def delete(tx: Tx, consumer: str) -> tuple[Row, ...]:
    """Everything a consumer holds; raises NotFound when that is nothing. No provider's generation moves."""
    held = sql.drop(tx, consumer)
    if not held:
        raise NotFound(f"No allocations for consumer '{consumer}'")
    at = stamp(tx)
    rows = sql.take(tx, [Want(*key, -amount) for key, amount in held.items()], at)
    _forget(tx, consumer, at)
    return tuple(rows)


def reshape(
    tx: Tx, inventories: Mapping[str, tuple[int, Mapping[str, Inventory]]], wanted: Mapping[str, Wanted]
) -> None:
    """Inventories and allocations that only fit together: new inventory first, then allocations, then what is to go."""
    for uuid, (expected, _) in inventories.items():
        found = find(tx, uuid)
        if found is None:
            raise Invalid(f"Resource provider {uuid} in inventories not found", code=codes.PROVIDER_NOT_FOUND)
        if found.generation != expected:
            raise Conflict(
                f"resource provider generation conflict for provider {uuid}: actual: {found.generation}, given: {expected}",
                code=codes.CONCURRENT_UPDATE,
            )
    from_before = {uuid: inventories_of(tx, uuid) for uuid in inventories}
    for uuid, (_, new) in inventories.items():
        if not new:
            continue  # nothing of it can be needed by what comes, and its generation moves once
        kept = {name: inventory for name, (inventory, _) in from_before[uuid].items()}
        nouns.set_inventories(tx, uuid, kept | dict(new), None)
    put(tx, wanted)
    for uuid, (_, new) in inventories.items():
        nouns.set_inventories(tx, uuid, new, None)
