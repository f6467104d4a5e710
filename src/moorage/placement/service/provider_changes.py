"""Writes of the Placement API about providers: transactions that raise an error and then leave no effect."""

from collections.abc import Iterable, Mapping, Sequence

from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.resources import CUSTOM, STANDARD_CLASSES, STANDARD_TRAITS, Inventory
from moorage.placement.service import error_codes
from moorage.sql import Tx
from moorage.store.region.placement import provider_queries, provider_statements
from moorage.store.region.placement.tables import Stamp, stamp

AFTER_ALL = 1_000_000
STALE = "Resource provider's generation already changed. Please update the generation and try again."


def need(tx: Tx, uuid: str) -> int:
    """The provider's generation. Raises NotFound."""
    row = provider_statements.find(tx, uuid)
    if row is None:
        raise NotFound(f"No resource provider with uuid {uuid} found")
    generation: int = row.generation
    return generation


def create(tx: Tx, uuid: str, name: str, parent: str | None) -> None:
    """Create a provider. Raises Conflict for a taken uuid or name, Invalid for a parent that does not exist."""
    root = uuid
    if parent is not None:
        above = provider_statements.find(tx, parent)
        if above is None or parent == uuid:
            why = (
                "parent provider UUID cannot be same as UUID"
                if parent == uuid
                else "parent provider UUID does not exist"
            )
            raise Invalid(f'Unable to create resource provider "{name}", {uuid}: {why}: {parent}.')
        root = above.root
    taken = [f"uuid: {uuid}"] if provider_statements.find(tx, uuid) is not None else []
    if provider_statements.find_by_name(tx, name) is not None:
        taken.append(f"name: {name}")
    if taken:
        raise Conflict(
            f"Conflicting resource provider {', '.join(taken)} already exists.", code=error_codes.DUPLICATE_NAME
        )
    provider_statements.create(tx, uuid, name, parent, root, stamp(tx))


def update(tx: Tx, uuid: str, name: str, *, parent: str | None, reparent: bool, has_parent: bool) -> None:
    """Rename it, and move it with its subtree below another parent (from 1.37 on, or once from none).

    Raises NotFound, Conflict for a taken name, Invalid for a forbidden move.
    """
    need(tx, uuid)
    other = provider_statements.find_by_name(tx, name)
    if other is not None and other.uuid != uuid:
        raise Conflict(f"Conflicting resource provider {name} already exists.", code=error_codes.DUPLICATE_NAME)
    row = provider_statements.find(tx, uuid)
    assert row is not None
    new_parent, root = row.parent, row.root
    if has_parent and parent != row.parent:
        new_parent, root = _placed(tx, uuid, row.parent, parent, reparent)
    at = stamp(tx)
    provider_queries.place(tx, uuid, name, new_parent, root, at)
    if root != row.root:
        provider_queries.set_roots(tx, provider_queries.subtree(tx, uuid, row.root), root, at)


def _placed(tx: Tx, uuid: str, old: str | None, parent: str | None, reparent: bool) -> tuple[str | None, str]:
    failed = f"Unable to save resource provider {uuid}: "
    if old is not None and not reparent:
        raise Invalid(
            failed + f"{'un-parenting' if parent is None else 're-parenting'} a provider is not currently allowed."
        )
    if parent is None:
        return None, uuid
    above = provider_statements.find(tx, parent)
    if above is None:
        raise Invalid(failed + "parent provider UUID does not exist.")
    if parent in provider_queries.subtree(tx, uuid, above.root):
        raise Invalid(failed + "creating loop in the provider tree is not allowed.")
    return parent, above.root


def delete(tx: Tx, uuid: str) -> None:
    """Delete a provider. Raises NotFound; Conflict when it has children or is in use."""
    if provider_statements.find(tx, uuid) is None:
        raise NotFound(f"No resource provider with uuid {uuid} found for delete")
    if provider_queries.children(tx, uuid):
        raise Conflict(
            f"Unable to delete parent resource provider {uuid}: It has child resource providers.",
            code=error_codes.CANNOT_DELETE_PARENT,
        )
    if provider_statements.in_use(tx, uuid):
        raise Conflict(
            f"Unable to delete resource provider {uuid}: Resource provider has allocations.",
            code=error_codes.PROVIDER_IN_USE,
        )
    provider_statements.delete(tx, uuid, stamp(tx))


# --------------------------------------------------------------------------------------------------- inventories


def all_standard(classes: Iterable[str], traits: Iterable[str]) -> bool:
    """Whether all are standard names, so that the database need not be read."""
    return all(name in STANDARD_CLASSES for name in classes) and STANDARD_TRAITS.issuperset(traits)


def unknown_classes(tx: Tx, names: Sequence[str]) -> list[str]:
    """Those of the names that are no resource class."""
    custom = [name for name in names if name not in STANDARD_CLASSES]
    return sorted(set(custom) - provider_queries.custom_classes(tx, custom)) if custom else []


def _checked(tx: Tx, uuid: str, inventories: Mapping[str, Inventory], full_reserve: bool, verb: str = "update") -> None:
    _refuse_reserved(uuid, inventories, full_reserve, verb)
    if unknown := unknown_classes(tx, list(inventories)):
        raise Invalid(
            f"Unknown resource class in inventory for resource provider {uuid}: No such resource class {unknown[0]}."
        )


def _refuse_reserved(uuid: str, inventories: Mapping[str, Inventory], full_reserve: bool, verb: str) -> None:
    for resource, inventory in inventories.items():
        if inventory.capacity < 0 or (inventory.capacity == 0 and not full_reserve):
            least = "greater than" if full_reserve else "greater than or equal to"
            raise Invalid(
                f"Unable to {verb} inventory for resource provider {uuid}: reserved of {resource} is {least} total."
            )


def _advance(tx: Tx, uuid: str, expected: int | None, at: Stamp) -> int:
    generation = provider_statements.advance(tx, uuid, at, expected)
    if generation is None:
        raise Conflict("resource provider generation conflict", code=error_codes.CONCURRENT_UPDATE)
    return generation


def set_inventories(
    tx: Tx, uuid: str, inventories: Mapping[str, Inventory], expected: int | None, *, full_reserve: bool = True
) -> int:
    """Replace all inventories; return the new generation. Raises Conflict for another generation or for an inventory in
    use, Invalid for an unknown class or a wrong `reserved`.
    """
    generation = need(tx, uuid)
    if expected is not None and expected != generation:
        raise Conflict("resource provider generation conflict", code=error_codes.CONCURRENT_UPDATE)
    _checked(tx, uuid, inventories, full_reserve)
    at = stamp(tx)
    new = _advance(tx, uuid, generation, at)
    have = provider_statements.inventories_of(tx, uuid)
    if kept := provider_statements.drop_inventories(tx, uuid, set(have) - set(inventories)):
        kept.sort(key=lambda name: (STANDARD_CLASSES.index(name) if name in STANDARD_CLASSES else AFTER_ALL, name))
        raise Conflict(
            f"Inventory for '{', '.join(kept)}' on resource provider '{uuid}' in use.", code=error_codes.INVENTORY_INUSE
        )
    for resource, inventory in inventories.items():
        if resource not in have or have[resource][0] != inventory:
            provider_statements.put_inventory(tx, uuid, resource, inventory, at)
    return new


def add_inventory(tx: Tx, uuid: str, resource: str, inventory: Inventory, *, full_reserve: bool) -> int:
    """Add one class; return the new generation. Raises Conflict when the provider has it already, Invalid as
    `set_inventories`.
    """
    generation = need(tx, uuid)
    _checked(tx, uuid, {resource: inventory}, full_reserve, "create")
    if resource in provider_statements.inventories_of(tx, uuid):
        raise Conflict(
            f"Update conflict: there is an inventory of {resource} already.", code=error_codes.CONCURRENT_UPDATE
        )
    at = stamp(tx)
    new = _advance(tx, uuid, generation, at)
    provider_statements.put_inventory(tx, uuid, resource, inventory, at)
    return new


def update_inventory(
    tx: Tx, uuid: str, resource: str, inventory: Inventory, expected: int, *, full_reserve: bool
) -> int:
    """Change one class; return the new generation. Raises Conflict for another generation, NotFound for an unknown
    class, Invalid when the provider has no inventory of it.
    """
    generation = need(tx, uuid)
    if expected != generation:
        raise Conflict("resource provider generation conflict", code=error_codes.CONCURRENT_UPDATE)
    _refuse_reserved(uuid, {resource: inventory}, full_reserve, "update")
    if unknown := unknown_classes(tx, [resource]):
        raise NotFound(f"No such resource class {unknown[0]}.")
    if resource not in provider_statements.inventories_of(tx, uuid):
        raise Invalid(f"No inventory record with resource class {resource} for resource provider {uuid}.")
    at = stamp(tx)
    new = _advance(tx, uuid, generation, at)
    provider_statements.put_inventory(tx, uuid, resource, inventory, at)
    return new


def drop_inventory(tx: Tx, uuid: str, resource: str) -> None:
    """Remove one class. Raises NotFound when there is none, Conflict when it is in use."""
    generation = need(tx, uuid)
    if resource not in provider_statements.inventories_of(tx, uuid):
        raise NotFound(f"No inventory of class {resource} found for delete")
    at = stamp(tx)
    _advance(tx, uuid, generation, at)
    if provider_statements.drop_inventories(tx, uuid, {resource}):
        raise Conflict(
            f"Unable to delete inventory of class {resource}: Inventory for '{resource}' on resource provider '{uuid}' in use.",
            code=error_codes.CONCURRENT_UPDATE,
        )


# -------------------------------------------------------------------------------------- traits, aggregates, names


def unknown_traits(tx: Tx, names: Sequence[str]) -> list[str]:
    """Those of the names that are no trait."""
    custom = [name for name in names if name not in STANDARD_TRAITS]
    return sorted(set(custom) - provider_queries.custom_traits(tx, custom)) if custom else []


def set_traits(tx: Tx, uuid: str, names: Sequence[str], expected: int | None) -> int:
    """Replace all traits; return the generation, which rises only when something changes. Raises Conflict for another
    generation, Invalid for an unknown trait.
    """
    generation = need(tx, uuid)
    if expected is not None and expected != generation:
        raise Conflict(STALE, code=error_codes.CONCURRENT_UPDATE)
    if missing := unknown_traits(tx, names):
        raise Invalid(f"No such trait {', '.join(missing)}")
    have = provider_statements.traits_of(tx, uuid)
    if frozenset(names) == have:
        return generation
    at = stamp(tx)
    new = _advance(tx, uuid, generation, at)
    provider_statements.set_traits(tx, uuid, have, names)
    return new


def set_aggregates(tx: Tx, uuid: str, aggregates: Sequence[str], expected: int | None) -> int:
    """Replace all aggregates; with `expected` (from 1.19 on) the generation is checked and rises. Raises Conflict for
    another generation.
    """
    generation = need(tx, uuid)
    if expected is not None and expected != generation:
        raise Conflict(STALE, code=error_codes.CONCURRENT_UPDATE)
    at = stamp(tx)
    have = provider_statements.aggregates_of(tx, uuid)
    provider_statements.set_aggregates(tx, uuid, have, aggregates)
    if expected is None:
        provider_statements.touch(tx, uuid, at)
        return generation
    return _advance(tx, uuid, generation, at)


def make_class(tx: Tx, name: str) -> bool:
    """Create a class. Returns True when it is new."""
    return provider_queries.create_name(tx, "class", name)


def rename_class(tx: Tx, old: str, new: str) -> None:
    """Rename a custom class everywhere (up to 1.6). Raises NotFound, Invalid for a standard class, Conflict for an
    existing name.
    """
    need_class(tx, old)
    if not CUSTOM.fullmatch(old):
        raise Invalid(f"Cannot update standard resource class {old}")
    if old != new and (new in STANDARD_CLASSES or provider_queries.custom_classes(tx, [new])):
        raise Conflict(f"Resource class already exists: {new}")
    provider_queries.rename_class(tx, old, new, stamp(tx))


def need_class(tx: Tx, name: str) -> None:
    """Raises NotFound when there is no such class."""
    if name not in STANDARD_CLASSES and not provider_queries.custom_classes(tx, [name]):
        raise NotFound(f"No such resource class {name}.")


def drop_class(tx: Tx, name: str) -> None:
    """Delete a custom class. Raises NotFound, Invalid for a standard class, Conflict when it is in use."""
    need_class(tx, name)
    if name in STANDARD_CLASSES:
        raise Invalid(f"Error in delete resource class: Cannot delete standard resource class {name}.")
    if provider_queries.class_in_use(tx, name):
        raise Conflict(f"Error in delete resource class: {name}. Class is in use in inventory.")
    provider_queries.delete_name(tx, "class", name)


def make_trait(tx: Tx, name: str) -> bool:
    """Create a trait. Returns True when it is new."""
    return provider_queries.create_name(tx, "trait", name)


def need_trait(tx: Tx, name: str) -> None:
    """Raises NotFound when there is no such trait."""
    if unknown_traits(tx, [name]):
        raise NotFound(f"No such trait(s): {name}.")


def drop_trait(tx: Tx, name: str) -> None:
    """Delete a custom trait. Raises NotFound, Invalid for a standard trait, Conflict when it is in use."""
    need_trait(tx, name)
    if name in STANDARD_TRAITS:
        raise Invalid(f"Cannot delete standard trait {name}.")
    if provider_queries.trait_in_use(tx, name):
        raise Conflict(f"The trait {name} is in use by a resource provider.")
    provider_queries.delete_name(tx, "trait", name)
