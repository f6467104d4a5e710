"""Flavors: administrators create them, describe them, set extra specs and give projects access."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from moorage.model.errors import Conflict, NotFound
from moorage.model.flavor import Flavor
from moorage.operations import flavor_cache
from moorage.sql import Database, Work
from moorage.store.region import flavors

T = TypeVar("T")


async def _write(region: Database, work: Work[T]) -> T:
    """Commit, and empty the cache of flavors of this process."""
    try:
        return await region.write(work)
    finally:
        flavor_cache.forget(region)


async def create(region: Database, new: Flavor) -> Flavor:
    """Create a flavor. Raises Conflict when its id or name is taken."""
    return await _write(region, lambda tx: flavors.add(tx, new))


async def delete(region: Database, flavor: str) -> None:
    """Delete a flavor; servers keep their copy. Raises NotFound."""
    await _write(region, lambda tx: flavors.remove(tx, flavor))


async def describe(region: Database, flavor: str, description: str | None, now: int) -> Flavor:
    """Set the description. Raises NotFound."""

    def how(old: Flavor) -> Flavor:
        return msgspec.structs.replace(old, description=description)

    return await _write(region, lambda tx: flavors.change(tx, flavor, now, how))


async def set_specs(region: Database, flavor: str, specs: Mapping[str, str], now: int) -> Flavor:
    """Add to the extra specs, or replace those of the same name. Raises NotFound."""

    def how(old: Flavor) -> Flavor:
        return msgspec.structs.replace(old, extra_specs={**old.extra_specs, **specs})

    return await _write(region, lambda tx: flavors.change(tx, flavor, now, how))


async def drop_spec(region: Database, flavor: str, name: str, now: int) -> Flavor:
    """Remove one extra spec. Raises NotFound when the flavor, or this extra spec of it, does not exist."""

    def how(old: Flavor) -> Flavor:
        if name not in old.extra_specs:
            raise NotFound(f"Flavor {flavor} has no extra specs with key {name}.")
        return msgspec.structs.replace(old, extra_specs={k: v for k, v in old.extra_specs.items() if k != name})

    return await _write(region, lambda tx: flavors.change(tx, flavor, now, how))


async def open_to(region: Database, flavor: str, project: str, now: int, *, refuse_public: bool) -> Flavor:
    """Let a project use a private flavor. Raises NotFound; Conflict for a public flavor (with `refuse_public`) or when
    the project has access already.
    """

    def how(old: Flavor) -> Flavor:
        if refuse_public and old.is_public:
            raise Conflict("Can not add access to a public flavor.")
        if project in old.projects:
            raise Conflict(f"Flavor access already exists for flavor {flavor} and project {project} combination.")
        return msgspec.structs.replace(old, projects=(*old.projects, project))

    return await _write(region, lambda tx: flavors.change(tx, flavor, now, how))


async def close_to(region: Database, flavor: str, project: str, now: int) -> Flavor:
    """End a project's access. Raises NotFound when the flavor does not exist or the project has no access."""

    def how(old: Flavor) -> Flavor:
        if project not in old.projects:
            raise NotFound(f"Flavor access not found for {flavor} / {project} combination.")
        return msgspec.structs.replace(old, projects=tuple(each for each in old.projects if each != project))

    return await _write(region, lambda tx: flavors.change(tx, flavor, now, how))
