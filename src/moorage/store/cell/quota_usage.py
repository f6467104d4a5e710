"""What the servers of a cell use of quotas."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from moorage.sql import Tx
from moorage.store.cell.servers import servers
from moorage.store.servers import charged_to_projects, charged_to_user, classes_charged


def charged(tx: Tx, *, without: Collection[str]) -> dict[str, dict[str, int]]:
    """The quota that the servers of this cell use in each project; without the servers in `without`, whose record here
    is hidden.
    """
    return charged_to_projects(tx, servers, *_but(without))


def charged_by(tx: Tx, project: str, user: str, *, without: Collection[str]) -> dict[str, int]:
    """The quota that one user's servers of this cell use in one project."""
    return charged_to_user(tx, servers, project, user, *_but(without))


def classes_used(tx: Tx, project: str | None) -> set[str]:
    """The classes of resources that servers of this cell use; None: those of all projects."""
    return set(classes_charged(tx, servers, *(() if project is None else (servers.c.project == project,))))


def classes_of_project(tx: Tx, project: str, *, without: Collection[str]) -> dict[str, int]:
    """What the project's servers of this cell use of each class of resources."""
    return classes_charged(tx, servers, servers.c.project == project, *_but(without))


def _but(without: Collection[str]) -> Sequence[sa.ColumnElement[bool]]:
    return (servers.c.id.not_in(without),) if without else ()
