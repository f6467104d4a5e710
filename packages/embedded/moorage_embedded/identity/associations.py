"""Which endpoints a project's catalog is limited to: those that it was given, one by one or by groups of them.

A group is a question and no list: whatever endpoint has the values that its filters name is in it, today.
"""

import sqlalchemy as sa

from moorage.sql import Tx
from moorage_embedded.identity import store
from moorage_embedded.identity.store import Record

ENDPOINTS, GROUPS = "project_endpoints", "project_endpoint_groups"


def exist(tx: Tx) -> bool:
    """Whether any project has an association; where none has, a catalog needs no additional query."""
    asked = (sa.select(store.table_of(name).c.project_id).limit(1) for name in (ENDPOINTS, GROUPS))
    return any(tx.row(each) is not None for each in asked)


def in_group(tx: Tx, group: Record) -> list[Record]:
    return store.find(tx, "endpoints", group["filters"] or {})


def groups_of(tx: Tx, project: str) -> list[Record]:
    ids = [row["endpoint_group_id"] for row in store.find(tx, GROUPS, {"project_id": project})]
    return store.find(tx, "endpoint_groups", {}, ids=ids) if ids else []


def of_project(tx: Tx, project: str) -> list[Record]:
    """Its endpoints, disabled ones too, each once."""
    ids = [row["endpoint_id"] for row in store.find(tx, ENDPOINTS, {"project_id": project})]
    found = {each["id"]: each for each in store.find(tx, "endpoints", {}, ids=ids)} if ids else {}
    for group in groups_of(tx, project):
        found.update({each["id"]: each for each in in_group(tx, group)})
    return list(found.values())
