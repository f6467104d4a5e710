"""Claims of moves: while a server moves, a migration consumer holds what the server held at its source (RULES §11)."""

from collections.abc import Mapping

from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import SRIOV_NET_VF
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.verdict import Claimed, InventoryState, Shortage
from moorage.model.world import Ask, Choice
from moorage.placement import claims
from moorage.sql import Tx
from moorage.store.region.placement import claim_statements, groups, virtual_functions
from moorage.store.region.placement.claim_statements import InventoryDelta, Key, Owner
from moorage.store.region.placement.provider_statements import now_s
from moorage.store.region.placement.tables import stamp


def move(
    tx: Tx,
    server: Owner,
    migration: str,
    choice: Choice,
    ask: Ask,
    *,
    stays: Mapping[Key, int] | None = None,
    leaves: Mapping[Key, int] | None = None,
) -> Claimed | Shortage:
    """Begin a move, or take an alternate: the source's rows go to the migration, and the server gets new rows (RULES
    §11).

    Rows of segments stay with the server and are never doubled: they are replaced, except `stays`, which the request
    does not include. `leaves`: addresses that the server does not need at the destination, and gets back when it
    returns: the migration holds them. Anti-affinity counts both hosts until the migration consumer is gone. Whether the
    move has begun is read from the migration consumer, so a repeat is safe.
    """
    at = stamp(tx)
    begun = claim_statements.owner(tx, migration) is not None
    left: HostId | None = None
    if begun:
        old = claim_statements.drop(tx, server.consumer)
        for key, amount in _addresses_taken_from(tx, migration).items():
            old[key] = old.get(key, 0) + amount
        left = claims.leave_group(tx, claim_statements.owner(tx, server.consumer), at)
    else:
        source = claim_statements.owner(tx, server.consumer)
        if source is None:
            return Shortage(choice, gone=((ProviderId(choice.host), "consumer"),))
        held = claim_statements.held(tx, server.consumer)
        staying = [key for key in held if key[1] == IPV4_ADDRESS]
        moving = [key for key in held if key[1] != IPV4_ADDRESS]
        claim_statements.rename(tx, server.consumer, migration, moving)
        if any(resource == SRIOV_NET_VF for _, resource in moving):
            virtual_functions.rename(tx, server.consumer, migration)
        claim_statements.write(
            tx,
            source._replace(
                consumer=migration, type=claim_statements.MIGRATION, operation=server.operation, attempt=server.attempt
            ),
            {},
            now_s(),
        )
        old = {key: held[key] for key in staying}
        claim_statements.drop(tx, server.consumer)
    kept = {key: min(amount, old.get(key, 0)) for key, amount in (stays or {}).items() if old.get(key, 0)}
    old = {key: amount - kept.get(key, 0) for key, amount in old.items() if amount > kept.get(key, 0)}
    parts = claims.portions(choice, ask)
    rows = claims.take_rows(tx, claims.wants(parts, old), at, choice)
    if isinstance(rows, Shortage):
        return rows
    if ask.group is not None and not groups.join(tx, ask.group, choice.host, at, moves=True):
        return Shortage(choice, group=ask.group.id, group_home=groups.home(tx, ask.group.id))
    if leaves:
        kept = _left_with(tx, migration, kept, leaves)
    amounts = claims.amounts_of([*parts, *((*key, amount) for key, amount in kept.items())])
    claim_statements.write(tx, claims.in_group(server, choice, ask), amounts, now_s())
    if claims.asks_functions(ask):
        virtual_functions.release(tx, server.consumer)
    picked = claims.pick_functions(tx, server.consumer, choice, ask)
    if isinstance(picked, Shortage):
        return picked
    group = None if ask.group is None else (ask.group.id, left, choice.host)
    return Claimed(server.consumer, choice, tuple(rows), group, picked)


def _addresses_taken_from(tx: Tx, migration: str) -> dict[Key, int]:
    """The addresses that an earlier attempt left with the migration: the next attempt decides about them again."""
    held = claim_statements.held(tx, migration)
    addresses = {key: amount for key, amount in held.items() if key[1] == IPV4_ADDRESS}
    if addresses:
        claim_statements.drop_rows(tx, migration, list(addresses))
    return addresses


def _left_with(tx: Tx, migration: str, kept: dict[Key, int], leaves: Mapping[Key, int]) -> dict[Key, int]:
    """The kept addresses of the server; the migration holds the others."""
    owner = claim_statements.owner(tx, migration)
    assert owner is not None  # this transaction has made it, or an earlier attempt
    left = {key: min(amount, kept[key]) for key, amount in leaves.items() if kept.get(key)}
    claim_statements.write(tx, owner, left, now_s())
    return {key: amount - left.get(key, 0) for key, amount in kept.items() if amount > left.get(key, 0)}


def move_back(
    tx: Tx, server: str, migration: str, *, before: Mapping[Key, int] | None = None
) -> tuple[InventoryState, ...]:
    """Undo a move: the server's rows at the destination are released, and the migration's come back. Without a
    migration there is nothing to do.

    `before`: the server's earlier addresses, when it may have got others; None: they are kept as they are.
    """
    source = claim_statements.owner(tx, migration)
    if source is None:
        return ()
    at = stamp(tx)
    dropped = claim_statements.drop(tx, server)
    back = claim_statements.held(tx, migration)
    wanted = {key: amount for key, amount in dropped.items() if key[1] == IPV4_ADDRESS}
    if before is not None:
        kept = {key: before.get(key, 0) - back.get(key, 0) for key in wanted}
        wanted = {key: min(wanted[key], amount) for key, amount in kept.items() if amount > 0}
    change: dict[Key, int] = {key: -amount for key, amount in dropped.items()}
    for key, amount in wanted.items():
        change[key] = change.get(key, 0) + amount
    rows = claim_statements.take(tx, [InventoryDelta(*key, amount, 1, 1, 1) for key, amount in change.items()], at)
    claims.leave_group(tx, claim_statements.owner(tx, server), at)
    if source.server_group is not None and source.host is not None:
        groups.come_back(tx, source.server_group, source.group_policy or "", source.host, at)
    claim_statements.rename(tx, migration, server, list(back))
    if any(resource == SRIOV_NET_VF for _, resource in back):
        virtual_functions.release(tx, server)
        virtual_functions.rename(tx, migration, server)
    claim_statements.forget(tx, migration)
    claim_statements.write(tx, source._replace(consumer=server, type=claim_statements.INSTANCE), wanted, now_s())
    return tuple(rows)
