"""SQL of the Placement API: trees, custom classes and traits, and allocations by consumer and provider."""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import sqlalchemy as sa

from moorage.sql import Tx, insert
from moorage.store.region.placement.provider_statements import now_s
from moorage.store.region.placement.tables import (
    Stamp,
    allocations,
    consumers,
    inventories,
    provider_traits,
    providers,
    resource_classes,
    traits,
)

Word = Literal["class", "trait"]
_WORDS = {"class": resource_classes, "trait": traits}


def place(tx: Tx, uuid: str, name: str, parent: str | None, root: str, at: Stamp) -> None:
    """Set name and place in the tree; the generation stays."""
    tx.run(
        sa.update(providers)
        .where(providers.c.uuid == uuid)
        .values(name=name, parent=parent, root=root, changed=at.changed, version=at.version, updated_at=now_s())
    )


def children(tx: Tx, uuid: str) -> bool:
    return tx.row(sa.select(providers.c.uuid).where(providers.c.parent == uuid).limit(1)) is not None


def subtree(tx: Tx, uuid: str, root: str) -> set[str]:
    """The provider and everything below it."""
    rows = tx.rows(sa.select(providers.c.uuid, providers.c.parent).where(providers.c.root == root))
    below: dict[str | None, list[str]] = {}
    for child, parent in rows:
        below.setdefault(parent, []).append(child)
    reached, waiting = {uuid}, [uuid]
    while waiting:
        for child in below.get(waiting.pop(), []):
            if child not in reached:
                reached.add(child)
                waiting.append(child)
    return reached


def set_roots(tx: Tx, uuids: Collection[str], root: str, at: Stamp) -> None:
    tx.run(
        sa.update(providers)
        .where(providers.c.uuid.in_(sorted(uuids)))
        .values(root=root, changed=at.changed, version=at.version)
    )


def custom_classes(tx: Tx, names: Collection[str] | None = None) -> set[str]:
    """The custom classes, or those of them with these names."""
    query = sa.select(resource_classes.c.name)
    if names is not None:
        query = query.where(resource_classes.c.name.in_(sorted(names)))
    return {row[0] for row in tx.rows(query)}


def custom_traits(tx: Tx, names: Collection[str] | None = None) -> set[str]:
    """The custom traits, or those of them with these names."""
    query = sa.select(traits.c.name)
    if names is not None:
        query = query.where(traits.c.name.in_(sorted(names)))
    return {row[0] for row in tx.rows(query)}


def create_name(tx: Tx, kind: Word, name: str) -> bool:
    """Create a custom name. Returns True when it is new."""
    table = _WORDS[kind]
    statement = insert(tx.dialect, table).values(name=name, updated_at=now_s()).on_conflict_do_nothing()
    return tx.row(statement.returning(table.c.name)) is not None


def delete_name(tx: Tx, kind: Word, name: str) -> None:
    table = _WORDS[kind]
    tx.run(sa.delete(table).where(table.c.name == name))


def rename_class(tx: Tx, old: str, new: str, at: Stamp) -> None:
    """Rename it in the list of classes, in inventories and in allocations; the providers concerned get a new stamp."""
    i = inventories.c
    tx.run(sa.update(resource_classes).where(resource_classes.c.name == old).values(name=new, updated_at=now_s()))
    concerned = sa.select(i.provider).where(i["class"] == old)
    tx.run(sa.update(providers).where(providers.c.uuid.in_(concerned)).values(changed=at.changed, version=at.version))
    tx.run(
        sa.update(inventories)
        .where(i["class"] == old)
        .values({"class": new, "changed": at.changed, "version": at.version})
    )
    tx.run(sa.update(allocations).where(allocations.c["class"] == old).values({"class": new}))


def class_in_use(tx: Tx, name: str) -> bool:
    return tx.row(sa.select(inventories.c.provider).where(inventories.c["class"] == name).limit(1)) is not None


def trait_in_use(tx: Tx, name: str) -> bool:
    t = provider_traits.c
    return tx.row(sa.select(t.provider).where(t.trait == name).limit(1)) is not None


def associated_traits(tx: Tx) -> set[str]:
    """Traits that some provider has."""
    return {row[0] for row in tx.rows(sa.select(provider_traits.c.trait).distinct())}


def holdings(tx: Tx, uuid: str) -> Sequence[Any]:
    """(consumer, class, used, consumer's generation) of one provider."""
    a, c = allocations.c, consumers.c
    return tx.rows(
        sa.select(a.consumer, a["class"], a.used, c.generation)
        .select_from(allocations.join(consumers, c.uuid == a.consumer))
        .where(a.provider == uuid)
        .order_by(a.consumer, a["class"])
    )


def held_with_generations(tx: Tx, consumer: str) -> Sequence[sa.Row[Any]]:
    """(provider, its generation, class, used) of one consumer."""
    a, p = allocations.c, providers.c
    return tx.rows(
        sa.select(a.provider, p.generation, a["class"], a.used)
        .select_from(allocations.join(providers, p.uuid == a.provider))
        .where(a.consumer == consumer)
        .order_by(a.provider, a["class"])
    )


_CONSUMER = sa.select(*consumers.c).where(consumers.c.uuid == sa.bindparam("uuid"))
"""Statements of frequent calls are compiled once, because compiling costs more than running them."""


def consumer(tx: Tx, uuid: str) -> sa.Row[Any] | None:
    row: sa.Row[Any] | None = tx.row(_CONSUMER, {"uuid": uuid})
    return row


def usages(tx: Tx, project: str, user: str | None, kind: str | None) -> Sequence[sa.Row[Any]]:
    """(type, class, used), summed over the consumers of a project."""
    a, c = allocations.c, consumers.c
    query = (
        sa.select(c.type, a["class"], sa.cast(sa.func.sum(a.used), sa.BigInteger))
        .select_from(allocations.join(consumers, c.uuid == a.consumer))
        .where(*_of(project, user, kind))
        .group_by(c.type, a["class"])
    )
    return tx.rows(query)


def consumer_counts(tx: Tx, project: str, user: str | None, kind: str | None) -> dict[str, int]:
    """Type → the number of consumers that have allocations."""
    a, c = allocations.c, consumers.c
    holding = sa.exists(sa.select(sa.literal(1)).where(a.consumer == c.uuid))
    query = sa.select(c.type, sa.func.count()).where(holding, *_of(project, user, kind)).group_by(c.type)
    return {row[0]: row[1] for row in tx.rows(query)}


_UNITS = sa.select(*(inventories.c[name] for name in ("provider", "class", "min_unit", "max_unit", "step"))).where(
    inventories.c.provider.in_(sa.bindparam("uuids", expanding=True))
)


def units(tx: Tx, uuids: Collection[str]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(provider, class) → smallest and largest portion, and step."""
    if not uuids:
        return {}
    rows = tx.rows(_UNITS, {"uuids": sorted(uuids)})
    return {(provider, resource): (least, most, step) for provider, resource, least, most, step in rows}


def _of(project: str, user: str | None, kind: str | None) -> list[sa.ColumnElement[bool]]:
    c = consumers.c
    conditions: list[sa.ColumnElement[bool]] = [c.project == project]
    if user is not None:
        conditions.append(c.user_id == user)
    if kind is not None and kind != "all":
        conditions.append(c.type == kind)
    return conditions


_ADVANCE = (
    "UPDATE providers SET generation = generation + 1, changed = {}, version = {}, updated_at = :now WHERE uuid = :uuid"
)
_ADVANCE_POSTGRESQL = _ADVANCE.format("pg_current_xact_id()::text::bigint", "nextval('placement_versions')")
_ADVANCES = {
    (dialect, known): sa.text(text + (" AND generation = :generation" if known else "") + " RETURNING uuid")
    for dialect, text in (("postgresql", _ADVANCE_POSTGRESQL), ("sqlite", _ADVANCE.format(":stamp", ":stamp")))
    for known in (False, True)
}
