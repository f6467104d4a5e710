"""Counters of server groups, in the same commit as the claim (RULES §5).

Anti-affinity: members per host, never above the group's maximum. Affinity: one home host, free again when the last
member has left. Soft policies are counted too, so that weighers know where the members are, and never refuse.
"""

import sqlalchemy as sa

from moorage.model.ids import HostId
from moorage.model.world import GroupAsk
from moorage.sql import Tx, insert
from moorage.store.region.placement.tables import Stamp, group_homes, group_hosts


def join(tx: Tx, group: GroupAsk, host: HostId, at: Stamp, *, moves: bool = False) -> bool:
    """Count one more member on the host. Returns False when the policy forbids it there.

    `moves`: the member is counted already, on its source host.
    """
    if group.policy == "affinity" and not _settle(tx, group.id, host, at, alone=1 if moves else 0):
        return False
    n = group_hosts.c
    allowed = n.n < group.max_per_host if group.policy == "anti-affinity" else sa.true()
    statement = (
        insert(tx.dialect, group_hosts)
        .values(server_group=group.id, host=host, n=1, changed=at.changed)
        .on_conflict_do_update(
            index_elements=[n.server_group, n.host], set_={"n": n.n + 1, "changed": at.changed}, where=allowed
        )
        .returning(n.n)
    )
    return tx.row(statement) is not None


def _settle(tx: Tx, group: str, host: HostId, at: Stamp, *, alone: int) -> bool:
    h = group_homes.c
    statement = (
        insert(tx.dialect, group_homes)
        .values(server_group=group, home=host, members=1, changed=at.changed)
        .on_conflict_do_update(
            index_elements=[h.server_group],
            set_={"home": host, "members": h.members + 1, "changed": at.changed},
            where=(h.members <= alone) | (h.home == host),
        )
        .returning(h.members)
    )
    return tx.row(statement) is not None


def leave(tx: Tx, group: str, policy: str, host: HostId, at: Stamp) -> None:
    """Count one member less."""
    n = group_hosts.c
    tx.run(
        sa.update(group_hosts)
        .where(n.server_group == group, n.host == host, n.n > 0)
        .values(n=n.n - 1, changed=at.changed)
    )
    if policy == "affinity":
        h = group_homes.c
        tx.run(
            sa.update(group_homes)
            .where(h.server_group == group, h.members > 0)
            .values(members=h.members - 1, changed=at.changed)
        )


def come_back(tx: Tx, group: str, policy: str, host: HostId, at: Stamp) -> None:
    """A member is back on its former host, which is the group's home again, unless another member has joined elsewhere
    meanwhile.
    """
    if policy == "affinity":
        h = group_homes.c
        tx.run(
            sa.update(group_homes).where(h.server_group == group, h.members == 1).values(home=host, changed=at.changed)
        )


def home(tx: Tx, group: str) -> HostId | None:
    """The current home of an affinity group."""
    row = tx.row(sa.select(group_homes.c.home).where(group_homes.c.server_group == group, group_homes.c.members > 0))
    return None if row is None else HostId(row[0])


def forget(tx: Tx, group: str) -> None:
    """Remove the counters of a deleted group."""
    tx.run(sa.delete(group_hosts).where(group_hosts.c.server_group == group))
    tx.run(sa.delete(group_homes).where(group_homes.c.server_group == group))
