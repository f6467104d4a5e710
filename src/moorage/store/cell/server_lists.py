"""Lists of the servers of one cell."""

from collections.abc import Collection

import sqlalchemy as sa

from moorage.sql import Tx
from moorage.store.cell.servers import servers
from moorage.store.server_lists import ServerQuery, ServerRow, list_servers


def page(tx: Tx, query: ServerQuery, *, sealed: bool = True) -> list[ServerRow]:
    """A page of servers. `sealed`: include sealed rows, for callers that know from the region which records are shown."""
    return list_servers(tx, servers, query, *(() if sealed else (sa.not_(servers.c.hidden),)))


def having(tx: Tx, ids: Collection[str]) -> set[str]:
    """Those of these servers whose record is here."""
    return {row.id for row in tx.rows(sa.select(servers.c.id).where(servers.c.id.in_(ids)))} if ids else set()
