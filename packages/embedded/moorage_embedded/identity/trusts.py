"""`/v3/OS-TRUST/trusts`: a user lends roles on a project to another one, who gets tokens for them (`trust_scope`)."""

import uuid
from typing import Any, cast

from starlette.responses import Response

from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.http_kit.values import moment_of
from moorage_embedded.identity import store
from moorage_embedded.identity.context import iso
from moorage_embedded.identity.request import IdentityCall, Routes, listing
from moorage_embedded.identity.schemas import ROLE, shown
from moorage_embedded.identity.store import Record
from moorage_embedded.identity.trust_chain import (
    REDELEGATIONS_MAX,
    chain_of,
    check_redelegation,
    held_roles,
    trust_in_effect,
)

TRUSTS_MAX = 200
"""Of one trustor."""
ROLES_MAX = 100
USES_MAX = 2**31 - 1


def _shown(call: IdentityCall, row: Record) -> Record:
    ends = row["expires_at"]
    fields = {name: each for name, each in row.items() if name not in {"roles", "expires_at"}}
    here = f"{call.context.url}/OS-TRUST/trusts/{row['id']}"
    return fields | {"expires_at": None if ends is None else iso(ends), "deleted_at": None, "links": {"self": here}}


def _with_roles(call: IdentityCall, row: Record, roles: list[Record]) -> Record:
    """With its roles; lists leave them out."""
    links = {"self": f"{call.context.url}/OS-TRUST/trusts/{row['id']}/roles", "next": None, "previous": None}
    return _shown(call, row) | {
        "roles": [shown(ROLE, role, call.context.url) for role in roles],
        "roles_links": links,
    }


def _roles(tx: Tx, row: Record) -> list[Record]:
    return store.find(tx, "roles", {}, ids=row["roles"])


# ------------------------------------------------------------------------------------------------------------- create


def _number(said: Record, name: str, least: int) -> int | None:
    value = said.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= USES_MAX:
        raise Invalid(f"Invalid input for field '{name}': {value!r} is not a number from {least} on.")
    return value


def _requested_roles(said: Record) -> list[Record]:
    roles = said.get("roles", [])
    fits = isinstance(roles, list) and len(roles) <= ROLES_MAX
    for each in roles if fits else ():
        one = isinstance(each, dict) and len(each) == 1 and set(each) <= {"id", "name"}
        fits = fits and one and all(isinstance(value, str) for value in each.values())
    if not fits:
        raise Invalid(
            f"Invalid input for field 'roles': it is a list of at most {ROLES_MAX} objects with 'id' or 'name'."
        )
    return cast("list[Record]", roles)


def _ends(said: Record, now: float) -> float | None:
    value = said.get("expires_at")
    if value is None:
        return None
    try:
        moment = moment_of(cast("str", value)).timestamp()
    except (ValueError, TypeError):
        raise Invalid("Invalid input for field 'expires_at': it is no time in ISO 8601.") from None
    if moment <= now:
        raise Invalid("The 'expires_at' must not be before now.")
    return moment


def _new_trust(said: Record, now: float) -> Record:
    """The row that a body asks for, its roles and its place in a chain left out. Raises Invalid."""
    for name in ("trustor_user_id", "trustee_user_id"):
        if not isinstance(said.get(name), str):
            raise Invalid(f"'{name}' is a required property and must be a string.")
    if not isinstance(said.get("impersonation"), bool):
        raise Invalid("'impersonation' is a required property and must be a boolean.")
    if not isinstance(said.get("project_id"), str | None):
        raise Invalid("Invalid input for field 'project_id': it is a string.")
    if not isinstance(said.get("allow_redelegation"), bool | None):
        raise Invalid("Invalid input for field 'allow_redelegation': it is a boolean.")
    uses, depth = _number(said, "remaining_uses", 1), _number(said, "redelegation_count", 0)
    if not said.get("allow_redelegation") or depth == 0:
        depth = 0
    elif depth is not None and depth > REDELEGATIONS_MAX:
        raise Forbidden(f"Requested redelegation depth of {depth} is greater than allowed {REDELEGATIONS_MAX}")
    elif uses is not None:
        raise Invalid("remaining_uses must not be set if redelegation is allowed")
    return {
        "id": uuid.uuid4().hex,
        "trustor_user_id": said["trustor_user_id"],
        "trustee_user_id": said["trustee_user_id"],
        "project_id": said.get("project_id") or None,
        "impersonation": said["impersonation"],
        "expires_at": _ends(said, now),
        "remaining_uses": uses,
        "redelegated_trust_id": None,
        "redelegation_count": depth,
        "roles": [],
    }


def _redelegate(tx: Tx, row: Record, source: str, now: float) -> str:
    """Make it a trust that came from the caller's own; returns the first trustor. Raises Forbidden and NotFound."""
    parent = trust_in_effect(tx, source, now)
    left, asked = parent["redelegation_count"] - 1, row["redelegation_count"]
    if asked and asked != left:
        raise Forbidden(
            'Modifying "redelegation_count" upon redelegation is forbidden. Omitting this parameter is advised.'
        )
    row["redelegated_trust_id"] = source
    row["redelegation_count"] = left if asked is None else asked
    row["expires_at"] = parent["expires_at"] if row["expires_at"] is None else row["expires_at"]
    if row["project_id"] != parent["project_id"]:
        raise Forbidden("Some of requested roles are not in redelegated trust")
    chain = chain_of(tx, parent)
    for each in chain:
        check_redelegation(each, row)
    return str(chain[-1]["trustor_user_id"])


def _role_ids(tx: Tx, said: list[Record]) -> list[str]:
    found: list[str] = []
    for each in said:
        if "id" in each:
            found.append(str(store.need(tx, "roles", each["id"], "role")["id"]))
            continue
        named = store.find(tx, "roles", {"name": each["name"], "domain_id": ""})
        if not named:
            raise NotFound(f"Could not find role: {each['name'][:64]}.")
        found.append(str(named[0]["id"]))
    return list(dict.fromkeys(found))


async def create(call: IdentityCall) -> Response:
    """Only the trustor makes a trust; with a token of a trust it is passed on. Raises Forbidden, Invalid, NotFound, Conflict."""
    said, now = await call.body("trust"), call.context.clock()
    row, roles, source = _new_trust(said, now), _requested_roles(said), call.claims.trust
    call.require(row["trustor_user_id"] == call.user_id, "create_trust")
    call.require_own_session()
    if row["project_id"] and not roles:
        raise Forbidden("At least one role should be specified")

    def work(tx: Tx) -> list[Record]:
        store.need(tx, "users", row["trustee_user_id"], "user")
        if row["project_id"]:
            store.need(tx, "projects", row["project_id"], "project")
        row["roles"] = _role_ids(tx, roles)
        trustor = _redelegate(tx, row, source, now) if source else row["trustor_user_id"]
        if row["redelegation_count"] is None:
            row["redelegation_count"] = REDELEGATIONS_MAX
        for missing in sorted(set(row["roles"]) - held_roles(tx, trustor, row["project_id"])):
            raise NotFound(f"Could not find role: {missing}.")
        _keep(tx, row, now)
        return _roles(tx, row)

    found = await call.context.write(work)
    return json_response({"trust": _with_roles(call, row, found)}, 201)


def _keep(tx: Tx, row: Record, now: float) -> None:
    """Raises Conflict: there are too many, or one that is the same and ends at the same moment."""
    theirs = store.find(tx, "trusts", {"trustor_user_id": row["trustor_user_id"]})
    over = [each for each in theirs if each["expires_at"] is not None and each["expires_at"] < now]
    for each in over:
        store.remove(tx, "trusts", each["id"], "trust")
    if len(theirs) - len(over) >= TRUSTS_MAX:
        raise Conflict(f"A user has at most {TRUSTS_MAX} trusts.")
    same = ("trustee_user_id", "project_id", "impersonation", "expires_at")
    if row["expires_at"] is not None and any(all(each[name] == row[name] for name in same) for each in theirs):
        raise Conflict("Conflict occurred attempting to store trust - Duplicate entry.")
    store.insert(tx, "trusts", row, "trust")


# --------------------------------------------------------------------------------------------------- read and delete


async def index(call: IdentityCall) -> Response:
    """The caller's own as trustor or trustee; for callers who may read the system, all."""
    equal: dict[str, Any] = {}
    for name in ("trustor", "trustee"):
        if not equal and (whose := call.query(f"{name}_user_id")):
            equal = {f"{name}_user_id": whose}
            call.require(whose == call.user_id or call.may_read(), f"list_trusts_for_{name}")
    if not equal:
        call.require(call.may_read(), "list_trusts")
    call.require_own_session()
    rows = await call.context.read(lambda tx: store.find(tx, "trusts", equal))
    return listing(call, "trusts", [_shown(call, row) for row in rows])


async def _seen(call: IdentityCall, action: str) -> tuple[Record, list[Record]]:
    """The trust and its roles. Raises NotFound before it is asked whether the caller may see it, as in Keystone."""

    def work(tx: Tx) -> tuple[Record, list[Record]]:
        row = trust_in_effect(tx, call.path("id"), call.context.clock())
        chain_of(tx, row)
        return row, _roles(tx, row)

    row, roles = await call.context.read(work)
    own = call.user_id in {row["trustor_user_id"], row["trustee_user_id"]}
    call.require(own or call.may_read(), action)
    call.require_own_session()
    return row, roles


async def show(call: IdentityCall) -> Response:
    row, roles = await _seen(call, "get_trust")
    return json_response({"trust": _with_roles(call, row, roles)})


async def list_roles(call: IdentityCall) -> Response:
    row, roles = await _seen(call, "list_roles_for_trust")
    whole = _with_roles(call, row, roles)
    return json_response({"roles": whole["roles"], "links": whole["roles_links"]})


async def show_role(call: IdentityCall) -> Response:
    """One role of a trust. Raises NotFound for a role that it does not lend."""
    _, roles = await _seen(call, "get_role_for_trust")
    for role in roles:
        if role["id"] == call.path("role"):
            return json_response({"role": shown(ROLE, role, call.context.url)})
    raise NotFound(f"Could not find role: {call.path('role')[:64]}.")


async def delete(call: IdentityCall) -> Response:
    """The trust and all that came from it, and with them their tokens."""

    def work(tx: Tx) -> None:
        row = trust_in_effect(tx, call.path("id"), call.context.clock())
        call.require(row["trustor_user_id"] == call.user_id or call.has("admin"), "delete_trust")
        call.require_own_session()
        gone = [row["id"]]
        for id_ in gone:  # grows while we walk it
            gone.extend(each["id"] for each in store.find(tx, "trusts", {"redelegated_trust_id": id_}))
            store.remove(tx, "trusts", id_, "trust")

    await call.context.write(work)
    return empty_response()


ROUTES: Routes = {
    "OS-TRUST/trusts": {"GET": index, "POST": create},
    "OS-TRUST/trusts/{id}": {"GET": show, "DELETE": delete},
    "OS-TRUST/trusts/{id}/roles": {"GET": list_roles},
    "OS-TRUST/trusts/{id}/roles/{role}": {"GET": show_role},
}
