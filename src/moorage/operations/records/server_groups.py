"""Server groups are made and deleted; servers join when they are accepted."""

from moorage.model.errors import NotFound, OverQuota
from moorage.model.server_group import ServerGroup
from moorage.sql import Database
from moorage.store.region import server_groups


async def create(region: Database, new: ServerGroup, most: int, most_of_user: int | None = None) -> None:
    """Raises OverQuota beyond `most` groups of the project, or of the user where one has a limit of their own."""
    if not await region.write(lambda tx: server_groups.add(tx, new, most, most_of_user)):
        raise OverQuota("Quota exceeded, too many server groups.")


async def delete(region: Database, group: str) -> None:
    if not await region.write(lambda tx: server_groups.remove(tx, group)):
        raise NotFound(f"Instance group {group} could not be found.")
