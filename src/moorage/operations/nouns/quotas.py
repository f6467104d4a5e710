"""Limits of projects and of the default class are set by administrators."""

from collections.abc import Mapping

from moorage.model.errors import Invalid
from moorage.sql import Database, Tx
from moorage.store.region import quotas, server_groups


def used_of(tx: Tx, project: str) -> dict[str, int]:
    """What a project uses of everything that is counted."""
    return {**quotas.usage(tx, project), "server_groups": server_groups.count(tx, project)}


async def set_limits(region: Database, project: str, changes: Mapping[str, int], *, force: bool) -> None:
    """All or none.  Raises Invalid for a limit below what is used, unless forced."""

    def work(tx: Tx) -> None:
        used = {} if force else used_of(tx, project)
        for name, limit in changes.items():
            if 0 <= limit < used.get(name, 0):
                raise Invalid(
                    f"Quota limit {limit} for {name} must be greater than or equal to already used and reserved "
                    f"{used[name]}."
                )
        quotas.set_limits(tx, project, changes)

    await region.write(work)


async def set_class_limits(region: Database, name: str, changes: Mapping[str, int]) -> None:
    await region.write(lambda tx: quotas.set_class_limits(tx, name, changes))


async def forget_limits(region: Database, project: str) -> None:
    await region.write(lambda tx: quotas.forget_limits(tx, project))
