"""What the region keeps of a server for when the database of its cell is lost."""

import msgspec

from moorage.model.migration import Migration
from moorage.model.server import Server


class ServerCopy(msgspec.Struct, frozen=True):
    """Its record, as its cell had it when it was copied; not its actions."""

    server: Server
    migrations: tuple[Migration, ...] = ()
    """Those that had not ended: they say what it has on a host that it left."""
