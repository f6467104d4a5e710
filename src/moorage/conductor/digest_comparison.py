"""Compares digests of hosts' last heartbeats with the records, to find what no heartbeat reported."""

from collections.abc import Collection

from moorage.conductor.known_hosts import KnownHost, KnownHosts
from moorage.model.guest import digest
from moorage.model.server import ApiPowerState
from moorage.sql import Database, Tx, label
from moorage.store.cell import migrations, server_queries

COMPARE_EVERY_S = 45.0
COMPARE_AGAIN_S = 6.0
"""The pause after a difference: an operation may have been under way, so it counts only when it is still there."""
HOSTS_PER_COMPARISON = 200


async def compare_some(hosts: KnownHosts, database: Database, now: float) -> None:
    """Compare digest and count of the hosts' last heartbeats with the records; hosts in turn, many with one statement.

    `now`: monotonic, seconds. A host that differs twice is asked for a full report: a single difference may come from a
    running operation.
    """
    due = [known for known in hosts if known.beat >= 0 and known.wanted is None and _is_due(known, now)]
    due.sort(key=lambda known: known.compared)
    due = due[: max(HOSTS_PER_COMPARISON, len(hosts) // 20)]
    if not due:
        return
    names = [known.host for known in due]
    with label("hosts"):
        recorded = await database.read(lambda tx: _digests(tx, names))
        odd = [known.host for known in due if recorded[known.host] != (known.guests, known.digest)]
        arriving = await database.read(lambda tx: _with_places(tx, odd)) if odd else {}
    for known in due:
        known.compared = now
        if (known.guests, known.digest) in (recorded[known.host], arriving.get(known.host)):
            known.differs = 0
            continue
        known.differs += 1
        if known.differs >= 2:
            known.want(now, hosts.spread_s(known))


def _is_due(known: KnownHost, now: float) -> bool:
    return not known.silent and now - known.compared >= (COMPARE_AGAIN_S if known.differs else COMPARE_EVERY_S)


def _digests(tx: Tx, hosts: Collection[str]) -> dict[str, tuple[int, str]]:
    """Host → the number of its guests by the records, and the digest of their power states."""
    return {host: (len(states), digest(states)) for host, states in server_queries.power_states(tx, hosts).items()}


def _with_places(tx: Tx, hosts: Collection[str]) -> dict[str, tuple[int, str]]:
    """The same, including the places that wait there for guests of live migrations: sending takes hours, and is no
    reason to request full reports all that time.
    """
    recorded, waiting = server_queries.power_states(tx, hosts), migrations.arriving_at(tx, hosts)
    return {
        host: (len(states), digest(states))
        for host, servers in waiting.items()
        for states in ({**dict.fromkeys(servers, int(ApiPowerState.PAUSED)), **recorded[host]},)
    }
