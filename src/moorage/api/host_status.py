"""`host_status`: UP, DOWN, UNKNOWN or MAINTENANCE, from what hosts said last and what operators said of them."""

from collections.abc import Mapping

from moorage.api.context import AppContext
from moorage.model.errors import Unavailable
from moorage.model.host import Host
from moorage.model.server import Server
from moorage.store.cell import hosts as cell_hosts


def status_name(context: AppContext, host: Host) -> str:
    if host.disabled:
        return "MAINTENANCE"
    if host.forced_down:
        return "DOWN"
    silent_s = context.clock.now() - host.seen_at / 1_000_000
    return "UP" if silent_s <= context.config.service_down_s else "UNKNOWN"


async def host_statuses(context: AppContext) -> Mapping[str, str]:
    """Name of host → status, of all cells that answer."""
    statuses: dict[str, str] = {}
    for database in context.cells.values():
        try:
            hosts = await database.read(cell_hosts.listed)
        except (Unavailable, OSError):
            continue
        statuses.update({host.host: status_name(context, host) for host in hosts})
    return statuses


async def status_of_host(context: AppContext, server: Server) -> str:
    """Of the host a server is on; empty when it is on none."""
    name, database = server.host, context.cells.get(server.cell or "")
    if name is None or database is None:
        return ""
    host = await database.read_inline(lambda tx: cell_hosts.named(tx, name))
    return "UNKNOWN" if host is None else status_name(context, host)
