"""The region's copy of a server's record, in case the database of its cell is lost."""

import msgspec

from moorage.model.migration import Migration
from moorage.model.server import Server


class ServerCopy(msgspec.Struct, frozen=True):
    """The server's record at the time of the copy, without its actions."""

    server: Server
    migrations: tuple[Migration, ...] = ()
    """Moves that had not ended: they say what the server has on a host that it left."""
