"""Creates and deletes server groups; servers join when they are accepted."""

from moorage.model.errors import NotFound, OverQuota
from moorage.model.server_group import ServerGroup
from moorage.sql import Database
from moorage.store.region import server_groups


async def create(region: Database, new: ServerGroup, most: int, most_of_user: int | None = None) -> None:
    """Store a group. Raises OverQuota beyond `most` groups of the project, or beyond the user's own limit."""
    if not await region.write(lambda tx: server_groups.add(tx, new, most, most_of_user)):
        raise OverQuota("Quota exceeded, too many server groups.")


async def delete(region: Database, group: str) -> None:
    """Delete a group. Raises NotFound."""
    if not await region.write(lambda tx: server_groups.remove(tx, group)):
        raise NotFound(f"Instance group {group} could not be found.")
