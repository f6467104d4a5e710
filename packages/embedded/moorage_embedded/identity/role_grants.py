"""SQL of roles: grants, and which role implies which."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from moorage.sql import Tx
from moorage_embedded.identity.store import LIST_MAX, Record, grants, implied_roles, record_of


def add_grant(tx: Tx, grant: Mapping[str, Any]) -> None:
    """A grant that is there already stays as it is."""
    if not has_grant(tx, grant):
        tx.run(sa.insert(grants).values(**grant))


@cache
def _granted(names: tuple[str, ...]) -> sa.Executable:
    return sa.select(grants.c.role_id).where(*(grants.c[name] == sa.bindparam(f"b_{name}") for name in names))


def has_grant(tx: Tx, grant: Mapping[str, Any]) -> bool:
    values = {f"b_{name}": value for name, value in grant.items()}
    return tx.row(_granted(tuple(grant)), values) is not None


def drop_grant(tx: Tx, grant: Mapping[str, Any]) -> bool:
    there = has_grant(tx, grant)
    tx.run(sa.delete(grants).where(*(grants.c[name] == value for name, value in grant.items())))
    return there


@cache
def _grants(names: tuple[str, ...], of_actors: bool) -> sa.Executable:
    query = sa.select(grants).where(*(grants.c[name] == sa.bindparam(f"b_{name}") for name in names))
    if of_actors:
        query = query.where(grants.c.actor_id.in_(sa.bindparam("b_actors", expanding=True)))
    order = (grants.c.target_kind, grants.c.target_id, grants.c.actor_id, grants.c.role_id)
    return query.order_by(*order).limit(LIST_MAX + 1)


def find_grants(tx: Tx, equal: Mapping[str, Any], *, actors: Sequence[str] | None = None) -> list[Record]:
    values: dict[str, Any] = {f"b_{name}": value for name, value in equal.items()}
    if actors is not None:
        values["b_actors"] = list(actors)
    rows = tx.rows(_grants(tuple(equal), actors is not None), values)
    return [record_of(grants, row) for row in rows]


_IMPLICATIONS = sa.select(implied_roles).order_by(implied_roles.c.prior_id)


def implications(tx: Tx) -> dict[str, list[str]]:
    """Prior role → the roles it directly implies."""
    found: dict[str, list[str]] = {}
    for prior, implied in tx.rows(_IMPLICATIONS):
        found.setdefault(prior, []).append(implied)
    return found


def imply(tx: Tx, prior: str, implied: str) -> None:
    if implied not in implications(tx).get(prior, []):
        tx.run(sa.insert(implied_roles).values(prior_id=prior, implied_id=implied))


def unimply(tx: Tx, prior: str, implied: str) -> bool:
    there = implied in implications(tx).get(prior, [])
    tx.run(sa.delete(implied_roles).where(implied_roles.c.prior_id == prior, implied_roles.c.implied_id == implied))
    return there
