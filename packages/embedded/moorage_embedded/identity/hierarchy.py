"""What a query asks of projects beside their columns: those above and below one, and those with certain tags."""

from typing import Any

from moorage.model.errors import Invalid
from moorage.sql import Tx
from moorage_embedded.http_kit.paging import TAG_FILTERS, has_tags
from moorage_embedded.identity import store
from moorage_embedded.identity.auth_routes import reachable
from moorage_embedded.identity.effective_roles import DEPTH_MAX, parents
from moorage_embedded.identity.request import IdentityCall
from moorage_embedded.identity.schemas import PROJECT, shown
from moorage_embedded.identity.store import Record


def tagged(call: IdentityCall, row: Record) -> bool:
    """Whether a project has the tags that are asked for, and has not those that are not wanted."""
    wanted = {name: said.split(",") for name in TAG_FILTERS if (said := call.query(name)) is not None}
    return has_tags(row["tags"] or (), wanted)


async def relatives(call: IdentityCall, row: Record) -> Record:
    """`parents` and `subtree` of a project: as nested ids, or as a list of projects on which the caller has a role.

    Raises Invalid when both forms are requested.
    """
    ways = {kind: [how for how in ("list", "ids") if call.asks(f"{kind}_as_{how}")] for kind in ("parents", "subtree")}
    for kind, how in ways.items():
        if len(how) > 1:
            raise Invalid(f"Cannot use {kind}_as_list and {kind}_as_ids query params at the same time.")

    def work(tx: Tx) -> Record:
        found: Record = {}
        if ways["parents"] == ["ids"]:
            found["parents"] = _above(tx, row)
        elif ways["parents"]:
            found["parents"] = _mine(tx, call, parents(tx, row))
        if ways["subtree"]:
            under = below(tx, row["id"])
            each = [child for children in under.values() for child in children]
            found["subtree"] = _tree(under, row["id"]) if ways["subtree"] == ["ids"] else _mine(tx, call, each)
        return found

    return await call.context.read(work) if any(ways.values()) else {}


def _above(tx: Tx, row: Record) -> Record | None:
    """Each in the one below it, up to the domain."""
    found: Record | None = None
    chain = [one["id"] for one in parents(tx, row)]
    for id_ in reversed([*chain, row["domain_id"]] if row["parent_id"] else []):
        found = {id_: found}
    return found


def below(tx: Tx, id_: str) -> dict[str, list[Record]]:
    """The children of a project, of its children and so on, by their parents."""
    found: dict[str, list[Record]] = {}
    level = [id_]
    for _ in range(DEPTH_MAX):
        for parent in level:
            found[parent] = store.find(tx, "projects", {"parent_id": parent})
        level = [child["id"] for parent in level for child in found[parent]]
        if not level:
            break
    return found


def _tree(under: dict[str, list[Record]], id_: str) -> Any:
    return {child["id"]: _tree(under, child["id"]) for child in under.get(id_, [])} or None


def _mine(tx: Tx, call: IdentityCall, rows: list[Record]) -> list[Record]:
    mine = {one["id"] for one in reachable(tx, call.user_id, domains=False)}
    return [{"project": shown(PROJECT, one, call.context.url)} for one in rows if one["id"] in mine]
