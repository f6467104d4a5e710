"""Claims: host, addresses and the place in a group together, inside the caller's transaction; the database decides
(RULES §5, §11).
"""

from collections.abc import Collection, Iterable, Mapping
from math import gcd

from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import SRIOV_NET_VF, VirtualFunction
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.verdict import Claimed, InventoryState, Shortage
from moorage.model.world import Ask, Choice, GroupAsk
from moorage.sql import Tx
from moorage.store.region.placement import claim_statements, groups, provider_statements, virtual_functions
from moorage.store.region.placement.claim_statements import InventoryDelta, Key, Owner
from moorage.store.region.placement.provider_statements import now_s
from moorage.store.region.placement.tables import Stamp, stamp


def portions(choice: Choice, ask: Ask) -> list[tuple[ProviderId, str, int]]:
    """What the request takes there: the host's own amounts, each NIC's addresses, and each group's amounts of its
    provider.
    """
    host = ProviderId(choice.host)
    own = [(host, resource, amount) for resource, amount in ask.resources.items() if amount > 0]
    nics = [
        (segment, IPV4_ADDRESS, nic.addresses)
        for nic, segment in zip(ask.nics, choice.segments, strict=True)
        if segment is not None and nic.addresses > 0
    ]
    groups = [
        (choice.providers[group.id], resource, amount)
        for group in ask.groups
        for resource, amount in group.resources.items()
        if amount > 0
    ]
    return own + nics + groups


def amounts_of(parts: Iterable[tuple[ProviderId, str, int]]) -> dict[Key, int]:
    """Summed by row: two NICs on one segment are one allocation of 2."""
    total: dict[Key, int] = {}
    for provider, resource, amount in parts:
        total[provider, resource] = total.get((provider, resource), 0) + amount
    return total


def wants(parts: Iterable[tuple[ProviderId, str, int]], old: dict[Key, int]) -> list[InventoryDelta]:
    """The net change of every row; portions are checked one by one, capacity against the sum."""
    deltas: dict[Key, InventoryDelta] = {key: InventoryDelta(*key, -amount) for key, amount in old.items()}
    for provider, resource, amount in parts:
        before = deltas.get((provider, resource), InventoryDelta(provider, resource, 0))
        deltas[provider, resource] = before._replace(
            change=before.change + amount,
            least=min(before.least or amount, amount),
            most=max(before.most, amount),
            unit=gcd(before.unit, amount),
        )
    return list(deltas.values())


def claim(
    tx: Tx, owner: Owner, choice: Choice, ask: Ask, *, replace: bool, stays: Mapping[Key, int] | None = None
) -> Claimed | Shortage:
    """Claim everything or nothing. On a Shortage the caller must roll back (`tx.refuse`).

    `stays`: allocations that are kept; the request replaces all others of the consumer.
    """
    at = stamp(tx)
    old: dict[Key, int] = {}
    left: HostId | None = None
    if replace:
        old = claim_statements.drop(tx, owner.consumer)
        left = leave_group(tx, claim_statements.owner(tx, owner.consumer), at)
    kept = {key: min(amount, old.get(key, 0)) for key, amount in (stays or {}).items() if old.get(key, 0)}
    old = {key: amount - kept.get(key, 0) for key, amount in old.items() if amount > kept.get(key, 0)}
    parts = portions(choice, ask)
    rows = take_rows(tx, wants(parts, old), at, choice)
    if isinstance(rows, Shortage):
        return rows
    if ask.group is not None and not groups.join(tx, ask.group, choice.host, at):
        return Shortage(choice, group=ask.group.id, group_home=groups.home(tx, ask.group.id))
    group = None if ask.group is None else (ask.group.id, left, choice.host)
    amounts = amounts_of([*parts, *((*key, amount) for key, amount in kept.items())])
    claim_statements.write(tx, in_group(owner, choice, ask), amounts, now_s())
    if asks_functions(ask):
        virtual_functions.release(tx, owner.consumer)
    picked = pick_functions(tx, owner.consumer, choice, ask)
    if isinstance(picked, Shortage):
        return picked
    return Claimed(owner.consumer, choice, tuple(rows), group, picked)


def asks_functions(ask: Ask) -> bool:
    """Whether one of its ports is a virtual function."""
    return any(SRIOV_NET_VF in each.resources for each in ask.groups)


def pick_functions(tx: Tx, consumer: str, choice: Choice, ask: Ask) -> dict[str, VirtualFunction] | Shortage:
    """Port → its virtual function: the exact one is chosen here, and no other port has it (S1.15)."""
    picked: dict[str, VirtualFunction] = {}
    for group in ask.groups:
        if SRIOV_NET_VF in group.resources and group.port:
            one = virtual_functions.pick(tx, consumer, choice.providers[group.id], group.port)
            if one is None:
                return Shortage(choice, gone=((choice.providers[group.id], SRIOV_NET_VF),))
            picked[group.port] = one
    return picked


def in_group(owner: Owner, choice: Choice, ask: Ask) -> Owner:
    """The owner with its host and its place in the server group."""
    group = ask.group
    return owner._replace(
        host=choice.host,
        server_group=None if group is None else group.id,
        group_policy=None if group is None else group.policy,
    )


def take_rows(tx: Tx, deltas: list[InventoryDelta], at: Stamp, choice: Choice) -> list[InventoryState] | Shortage:
    """Change all rows, or return which one is short; then the caller rolls back."""
    rows = claim_statements.take(tx, deltas, at, choice.versions)
    changes = sum(1 for want in deltas if want.change)
    if changes and len(rows) == changes:
        return rows
    if stale := provider_statements.stale(tx, choice.versions):
        return Shortage(choice, stale=stale)
    if not changes:
        return rows
    short, missing = claim_statements.short(tx, deltas, rows)
    return Shortage(choice, tuple(short), tuple(missing))


def leave_group(tx: Tx, owner: Owner | None, at: Stamp) -> HostId | None:
    """Release its place in the server group; return the host where it was."""
    if owner is None or owner.server_group is None or owner.host is None:
        return None
    groups.leave(tx, owner.server_group, owner.group_policy or "", owner.host, at)
    return owner.host


RETRACTED = -1
"""The attempt of a consumer whose last extension was undone."""


def extend(tx: Tx, consumer: str, choice: Choice, ask: Ask, operation: str) -> Claimed | Shortage:
    """Claim more for a consumer that has allocations already: for an interface that is attached later.

    The consumer's operation is this one from then on, so that `retract` knows what to release.
    """
    at = stamp(tx)
    owner = claim_statements.owner(tx, consumer)
    if owner is None:
        return Shortage(choice, gone=((ProviderId(choice.host), "consumer"),))
    parts = portions(choice, ask)
    rows = take_rows(tx, wants(parts, {}), at, choice)
    if isinstance(rows, Shortage):
        return rows
    claim_statements.write(tx, owner._replace(operation=operation, attempt=0), amounts_of(parts), now_s())
    picked = pick_functions(tx, consumer, choice, ask)
    return picked if isinstance(picked, Shortage) else Claimed(consumer, choice, tuple(rows), None, picked)


def retract(
    tx: Tx, consumer: str, amounts: dict[Key, int], operation: str, function_of: str | None = None
) -> tuple[InventoryState, ...]:
    """Undo an extension; a repeat is safe, also when nothing was claimed."""
    owner = claim_statements.owner(tx, consumer)
    if owner is None or owner.operation != operation or owner.attempt == RETRACTED:
        return ()
    if function_of is not None:
        virtual_functions.release(tx, consumer, (function_of,))
    rows = shrink(tx, consumer, amounts)
    claim_statements.write(tx, owner._replace(attempt=RETRACTED), {}, now_s())
    return rows


def shrink(
    tx: Tx, consumer: str, amounts: dict[Key, int], function_of: Collection[str] = ()
) -> tuple[InventoryState, ...]:
    """Release a part, never more than is held: for an interface that is detached, with its virtual function, if it is
    one.

    `function_of`: the port's id and its MAC, because a port that its host made had no id when its function was claimed.
    """
    if function_of and (provider := virtual_functions.release(tx, consumer, function_of)) is not None:
        amounts = amounts | {(provider, SRIOV_NET_VF): amounts.get((provider, SRIOV_NET_VF), 0) + 1}
    owner = claim_statements.owner(tx, consumer)
    held = claim_statements.held(tx, consumer)
    given = {key: min(amount, held.get(key, 0)) for key, amount in amounts.items() if held.get(key, 0) > 0}
    if not given or owner is None:
        return ()
    at = stamp(tx)
    claim_statements.drop(tx, consumer)
    rows = claim_statements.take(tx, [InventoryDelta(*key, -amount) for key, amount in given.items()], at)
    left = {key: amount - given.get(key, 0) for key, amount in held.items()}
    claim_statements.write(tx, owner, {key: amount for key, amount in left.items() if amount > 0}, now_s())
    return tuple(rows)


def adjust(
    tx: Tx, consumer: str, amounts: Mapping[Key, tuple[int, int]], *, force: bool = False
) -> tuple[InventoryState, ...] | None:
    """Change what a consumer holds of each row for one purpose from `before` to `now`; its other amounts stay.

    Returns None when it holds nothing, or when one does not fit; then the caller must roll back. `force`: restored
    amounts are counted, even if another claim has taken the room meanwhile.
    """
    owner = claim_statements.owner(tx, consumer)
    if owner is None:
        return None
    rows = list(shrink(tx, consumer, {key: before - now for key, (before, now) in amounts.items() if before > now}))
    more = {key: (now - before, now) for key, (before, now) in amounts.items() if now > before}
    at = stamp(tx)
    if force:
        rows += [
            row for key, (change, _) in more.items() if (row := claim_statements.force(tx, key, change, at)) is not None
        ]
    else:
        taken = claim_statements.take(
            tx, [InventoryDelta(*key, change, now, now, now) for key, (change, now) in more.items()], at
        )
        if len(taken) < len(more):
            return None
        rows += taken
    if more:
        claim_statements.write(tx, owner, {key: change for key, (change, _) in more.items()}, now_s())
    return tuple(rows)


def correct(tx: Tx, consumer: str, resource: str, truth: dict[ProviderId, int]) -> tuple[InventoryState, ...]:
    """Set a consumer's allocations of one class: amounts in use are counted, even beyond the capacity."""
    owner = claim_statements.owner(tx, consumer)
    if owner is None:
        return ()
    held = {key[0]: amount for key, amount in claim_statements.held(tx, consumer).items() if key[1] == resource}
    less: dict[Key, int] = {(p, resource): n - truth.get(p, 0) for p, n in held.items() if n > truth.get(p, 0)}
    rows = list(shrink(tx, consumer, less)) if less else []
    at = stamp(tx)
    for provider, amount in truth.items():
        more = amount - held.get(provider, 0)
        if more > 0 and (row := claim_statements.force(tx, (provider, resource), more, at)) is not None:
            claim_statements.write(tx, owner, {(provider, resource): more}, now_s())
            rows.append(row)
    return tuple(rows)


def release(tx: Tx, consumer: str) -> tuple[InventoryState, ...]:
    """Release everything; nothing held counts as success. Returns the rows with their new values."""
    old = claim_statements.drop(tx, consumer)
    owner = claim_statements.forget(tx, consumer)
    if not old and owner is None:
        return ()
    at = stamp(tx)
    rows = claim_statements.take(tx, [InventoryDelta(*key, -amount) for key, amount in old.items()], at)
    leave_group(tx, owner, at)
    return tuple(rows)


def keep_addresses(tx: Tx, consumer: str, stays: Mapping[Key, int] | None = None) -> tuple[InventoryState, ...]:
    """Release everything except addresses of segments: the server leaves its host and keeps its networks. A repeat is
    safe.

    `stays`: the most to keep of them; None: all.
    """
    owner = claim_statements.owner(tx, consumer)
    if owner is None:
        return ()
    held = claim_statements.held(tx, consumer)
    kept = {key: amount for key, amount in held.items() if key[1] == IPV4_ADDRESS}
    if stays is not None:
        kept = {key: min(amount, stays[key]) for key, amount in kept.items() if stays.get(key)}
    less = {key: amount - kept.get(key, 0) for key, amount in held.items() if amount > kept.get(key, 0)}
    if any(resource == SRIOV_NET_VF for _, resource in held):
        virtual_functions.release(tx, consumer)
    at = stamp(tx)
    claim_statements.drop(tx, consumer)
    rows = claim_statements.take(tx, [InventoryDelta(*key, -amount) for key, amount in less.items()], at)
    leave_group(tx, owner, at)
    claim_statements.forget(tx, consumer)
    if kept:
        claim_statements.write(tx, owner._replace(host=None, server_group=None, group_policy=None), kept, now_s())
    return tuple(rows)


def restore(tx: Tx, owner: Owner, host: HostId, truth: Mapping[Key, int], group: GroupAsk | None) -> frozenset[Key]:
    """Set a consumer's allocations to what they were before its database was restored. Returns the keys without an
    inventory, which are not claimed.

    Amounts in use are counted, even beyond the capacity, and a place in a group even against its policy.
    """
    at = stamp(tx)
    held = claim_statements.drop(tx, owner.consumer)
    left = claim_statements.owner(tx, owner.consumer)
    claim_statements.take(
        tx, [InventoryDelta(*key, amount - held[key]) for key, amount in truth.items() if amount < held.get(key, 0)], at
    )
    claim_statements.take(tx, [InventoryDelta(*key, -amount) for key, amount in held.items() if key not in truth], at)
    more = {key: amount - held.get(key, 0) for key, amount in truth.items() if amount > held.get(key, 0)}
    absent = frozenset(key for key, amount in more.items() if claim_statements.force(tx, key, amount, at) is None)
    if left is None or left.host != host:
        leave_group(tx, left, at)
        joined = group if group is not None and groups.join(tx, group, host, at) else None
        owner = owner._replace(
            server_group=None if joined is None else joined.id, group_policy=None if joined is None else joined.policy
        )
    counted = {key: amount for key, amount in truth.items() if key not in absent}
    claim_statements.write(tx, owner._replace(host=host), counted, now_s())
    return absent
