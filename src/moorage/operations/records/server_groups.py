"""Creates and deletes server groups; servers join when they are accepted."""

from moorage.model.errors import NotFound, OverQuota
from moorage.model.quota import CountLimit
from moorage.model.server_group import ServerGroup
from moorage.sql import Database, Tx
from moorage.store.region import server_groups

TOO_MANY = "Quota exceeded, too many server groups."


async def create(region: Database, new: ServerGroup, most: CountLimit, most_of_user: int | None = None) -> None:
    """Store a group. Raises OverQuota beyond `most` groups of the project, or beyond the user's own limit."""

    def work(tx: Tx) -> int | None:
        return None if server_groups.add(tx, new, most.limit, most_of_user) else server_groups.count(tx, new.project)

    if (had := await region.write(work)) is not None:
        raise most.excess(1, TOO_MANY, had) or OverQuota(TOO_MANY)


async def delete(region: Database, group: str) -> None:
    """Delete a group. Raises NotFound."""
    if not await region.write(lambda tx: server_groups.remove(tx, group)):
        raise NotFound(f"Instance group {group} could not be found.")
