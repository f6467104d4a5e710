"""Writes of allocations by the Placement API: several consumers in one transaction, by their generations (its rules, not ours).

Differs from internal claims in two ways (RULES §5, §6.6): portions are judged per allocation, and the generations of all
providers concerned move.
"""

from collections.abc import Mapping

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
    """Make it so for all of them, or raise Conflict or Invalid and leave everything as it was."""
    owners = {consumer: _owner(tx, consumer, one) for consumer, one in wanted.items()}
    _known(tx, wanted)
    at = stamp(tx)
    change: dict[Key, Want] = {}
    for consumer, one in wanted.items():
        for key, amount in sql.drop(tx, consumer).items():
            change[key] = _plus(change, key, -amount)
        for provider, resources in one.amounts.items():
            for resource, amount in resources.items():
                key = (ProviderId(provider), resource)
                change[key] = _portion(_plus(change, key, amount), amount)
    rows = _take(tx, list(change.values()), at)
    more.advance_many(tx, [(provider, None) for provider in sorted({key[0] for key in change})], at)
    for consumer, one in wanted.items():
        _write(tx, owners[consumer], one, at)
    return tuple(rows)


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


def _owner(tx: Tx, consumer: str, one: Wanted) -> Owner:
    found = more.consumer(tx, consumer)
    if one.check_generation and (None if found is None else found.generation) != one.generation:
        now = "null" if found is None else found.generation
        raise Conflict(
            f"consumer generation conflict - expected {now} but got {one.generation}", code=codes.CONCURRENT_UPDATE
        )
    if found is None:
        return Owner(consumer, one.project, one.user, one.type or UNKNOWN_TYPE)
    old = sql.owner(tx, consumer)
    assert old is not None
    return old._replace(project=one.project, user=one.user, type=one.type or old.type)


def _known(tx: Tx, wanted: Mapping[str, Wanted]) -> None:
    uuids = {provider for one in wanted.values() for provider in one.amounts}
    for uuid in sorted(uuids):
        if find(tx, uuid) is None:
            raise Invalid(f"Allocation for resource provider '{uuid}' that does not exist.")
    names = {name for one in wanted.values() for resources in one.amounts.values() for name in resources}
    if unknown := nouns.known_classes(tx, sorted(names)):
        raise Invalid(f"Unable to allocate inventory: no such resource class {unknown[0]}.")


def _take(tx: Tx, wants: list[Want], at: Stamp) -> list[Row]:
    """The guarded UPDATE; rows whose sum does not change are judged by their portions only where they are new."""
    rows = sql.take(tx, wants, at)
    if len(rows) == sum(1 for want in wants if want.change):
        return rows
    short, missing = sql.short(tx, wants, rows)
    if short:
        raise Conflict(
            f"Unable to allocate inventory: {short[0].amount} {short[0].resource} on resource provider "
            f"{short[0].provider} would exceed the capacity."
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
    gone = sql.forget(tx, owner.consumer)
    if gone is not None and gone.server_group is not None and gone.host is not None:
        groups.leave(tx, gone.server_group, gone.group_policy or "", gone.host, at)


def delete(tx: Tx, consumer: str) -> tuple[Row, ...]:
    """Everything a consumer holds; raises NotFound when that is nothing."""
    if not sql.held(tx, consumer):
        raise NotFound(f"No allocations for consumer '{consumer}'")
    return put(tx, {consumer: Wanted(amounts={}, project="", user="")})


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
        kept = {name: inventory for name, (inventory, _) in from_before[uuid].items()}
        nouns.set_inventories(tx, uuid, kept | dict(new), None)
    put(tx, wanted)
    for uuid, (_, new) in inventories.items():
        nouns.set_inventories(tx, uuid, new, None)
