"""Server groups and their members. Placement knows which hosts a group uses."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from moorage.model.server_group import ServerGroup
from moorage.sql import Tx, alone
from moorage.store.region.tables import region_metadata

MEMBERS_SHOWN_MAX = 10_000

server_groups = sa.Table(
    "server_groups",
    region_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("project", sa.String(255), nullable=False, index=True),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("policy", sa.String(32), nullable=False),
    sa.Column("max_per_host", sa.Integer),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
server_group_members = sa.Table(
    "server_group_members",
    region_metadata,
    sa.Column("server", sa.String(36), primary_key=True),
    sa.Column("group", sa.String(36), nullable=False, index=True),
)


def add(tx: Tx, new: ServerGroup, most: int, most_of_user: int | None = None) -> bool:
    """Insert it. Returns False when the project has `most` already, or the user `most_of_user` (-1: no limit; None:
    only the project's limit).
    """
    alone(tx, f"server groups of {new.project}")
    if most >= 0 and count(tx, new.project) >= most:
        return False
    if most_of_user is not None and 0 <= most_of_user <= count(tx, new.project, new.user):
        return False
    tx.run(
        server_groups.insert().values(
            id=new.id,
            name=new.name,
            project=new.project,
            user=new.user,
            policy=new.policy,
            max_per_host=new.max_per_host,
            created_at=new.created_at,
        )
    )
    return True


def count(tx: Tx, project: str, user: str | None = None) -> int:
    """The number of groups of a project, or of one user in it."""
    query = sa.select(sa.func.count()).select_from(server_groups).where(server_groups.c.project == project)
    if user is not None:
        query = query.where(server_groups.c.user == user)
    return int(tx.scalar(query))


def get(tx: Tx, group: str) -> ServerGroup | None:
    row = tx.row(sa.select(server_groups).where(server_groups.c.id == group))
    return None if row is None else _group(row, _members(tx, [group]))


def of_server(tx: Tx, servers: Sequence[str]) -> dict[str, str]:
    """Server → its group, for those that are in one."""
    rows = tx.rows(sa.select(server_group_members).where(server_group_members.c.server.in_(servers)))
    return {row.server: row.group for row in rows}


def listed(tx: Tx, project: str | None, limit: int, offset: int) -> Sequence[ServerGroup]:
    """A page, oldest first; without a project, of all projects."""
    query = sa.select(server_groups).order_by(server_groups.c.number).limit(limit).offset(offset)
    if project is not None:
        query = query.where(server_groups.c.project == project)
    rows = tx.rows(query)
    members = _members(tx, [row.id for row in rows])
    return [_group(row, members) for row in rows]


def remove(tx: Tx, group: str) -> bool:
    """Remove it; return whether there was one. Its servers stay."""
    tx.run(server_group_members.delete().where(server_group_members.c.group == group))
    gone = tx.row(server_groups.delete().where(server_groups.c.id == group).returning(server_groups.c.id))
    return gone is not None


def join(tx: Tx, group: str, servers: Sequence[str], most: int) -> int | None:
    """Add servers to a group. Returns None, or the group's size when it would exceed `most` (-1: no limit); then
    nothing is added.
    """
    tx.row(sa.select(server_groups.c.id).where(server_groups.c.id == group).with_for_update())
    if most >= 0:
        query = (
            sa.select(sa.func.count()).select_from(server_group_members).where(server_group_members.c.group == group)
        )
        had = int(tx.scalar(query))
        if had + len(servers) > most:
            return had
    tx.run(server_group_members.insert().values([{"server": server, "group": group} for server in servers]))
    return None


def leave(tx: Tx, servers: Sequence[str]) -> None:
    """Remove servers from their groups, in the commit that ends a server."""
    tx.run(server_group_members.delete().where(server_group_members.c.server.in_(servers)))


def _members(tx: Tx, groups: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    by_group: dict[str, list[str]] = {}
    query = (
        sa.select(server_group_members)
        .where(server_group_members.c.group.in_(groups))
        .order_by(server_group_members.c.server)
        .limit(MEMBERS_SHOWN_MAX)
    )
    for row in tx.rows(query) if groups else ():
        by_group.setdefault(row.group, []).append(row.server)
    return {group: tuple(servers) for group, servers in by_group.items()}


def _group(row: Any, members: Mapping[str, tuple[str, ...]]) -> ServerGroup:
    return ServerGroup(
        id=row.id,
        name=row.name,
        project=row.project,
        user=row.user,
        policy=row.policy,
        max_per_host=row.max_per_host,
        members=members.get(row.id, ()),
        created_at=row.created_at,
    )
