"""Users with their passwords and application credentials, groups and their members."""

import secrets
import uuid

from starlette.responses import Response

from moorage.model.errors import Conflict, Invalid, NotFound, Unauthenticated
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.http_kit.values import moment_of
from moorage_embedded.identity import access_rules, schemas, store
from moorage_embedded.identity.auth_routes import reachable
from moorage_embedded.identity.authentication import fits_user
from moorage_embedded.identity.crud import Ways, plain
from moorage_embedded.identity.effective_roles import rules_of
from moorage_embedded.identity.request import IdentityCall, Routes, listed, listing
from moorage_embedded.identity.resources import need_domain
from moorage_embedded.identity.store import Record

CREDENTIALS_MAX = 100
"""Application credentials of one user."""


async def _prepare_user(call: IdentityCall, values: Record) -> None:
    if "domain_id" in values:
        values["domain_id"] = values["domain_id"] or call.domain_scope or call.standing.user_domain["id"]
    if "password" in values:
        password = values.pop("password")
        values["password_hash"] = None if password is None else await call.context.passwords.hash(password)
        values["tokens_from"] = call.context.clock()
    if values.get("enabled") is False:
        values["tokens_from"] = call.context.clock()


async def _prepare_group(call: IdentityCall, values: Record) -> None:
    if "domain_id" in values:
        values["domain_id"] = values["domain_id"] or call.domain_scope or call.standing.user_domain["id"]


async def change_password(call: IdentityCall) -> Response:
    """Change the password, authenticated by the old one, not by a token: so an expired password can be changed.

    Raises Invalid for missing fields, Unauthenticated for a wrong old password.
    """
    said = await call.body("user")
    old, new = said.get("original_password"), said.get("password")
    if not isinstance(old, str) or not isinstance(new, str):
        raise Invalid("'original_password' and 'password' are required properties.")
    call.context.throttle.check(call.address, call.path("id"))
    user = await call.context.read(lambda tx: store.get(tx, "users", call.path("id")))
    if not await fits_user(call.context, user, old) or user is None:
        call.context.throttle.failed(call.address, call.path("id"))
        raise Unauthenticated("The request you have made requires authentication.")
    values = {"password_hash": await call.context.passwords.hash(new), "tokens_from": call.context.clock()}
    await call.context.write(lambda tx: store.change(tx, "users", user["id"], values, "user"))
    return empty_response()


async def _user(call: IdentityCall) -> Record:
    """The user in the path, for that user and for callers who may read users."""
    if call.path("id") != call.user_id:
        call.require(call.may_read(call.domain_scope))
    row = await call.context.read(lambda tx: store.need(tx, "users", call.path("id"), "user"))
    call.require(row["id"] == call.user_id or call.may_read(row["domain_id"]))
    return row


async def user_projects(call: IdentityCall) -> Response:
    user = await _user(call)
    found = await call.context.read(lambda tx: reachable(tx, user["id"], domains=False))
    return listed(call, schemas.PROJECT, found)


async def user_groups(call: IdentityCall) -> Response:
    user = await _user(call)
    found = await call.context.read(lambda tx: store.find(tx, "groups", {}, ids=store.groups_of(tx, user["id"])))
    return listed(call, schemas.GROUP, found)


# ------------------------------------------------------------------------------------------------- membership


async def _group(call: IdentityCall, *, write: bool) -> Record:
    row = await call.context.read(lambda tx: store.need(tx, "groups", call.path("id"), "group"))
    call.require(call.may_write(row["domain_id"]) if write else call.may_read(row["domain_id"]))
    return row


async def members(call: IdentityCall) -> Response:
    group = await _group(call, write=False)
    found = await call.context.read(lambda tx: store.find(tx, "users", {}, ids=store.members_of(tx, group["id"])))
    return listed(call, schemas.USER, found)


async def member_check(call: IdentityCall) -> Response:
    """Check a group's member. Raises NotFound when the user is no member."""
    group = await _group(call, write=False)
    if call.path("user") not in await call.context.read(lambda tx: store.members_of(tx, group["id"])):
        raise NotFound(f"Could not find user {call.path('user')} in group {group['id']}.")
    return empty_response()


async def member_add(call: IdentityCall) -> Response:
    group = await _group(call, write=True)

    def work(tx: Tx) -> None:
        store.need(tx, "users", call.path("user"), "user")
        store.join_group(tx, group["id"], call.path("user"))

    await call.context.write(work)
    return empty_response()


async def member_drop(call: IdentityCall) -> Response:
    """Remove a group's member. Raises NotFound when the user is no member."""
    group = await _group(call, write=True)
    if not await call.context.write(lambda tx: store.leave_group(tx, group["id"], call.path("user"))):
        raise NotFound(f"Could not find user {call.path('user')} in group {group['id']}.")
    return empty_response()


# ------------------------------------------------------------------------------------- application credentials


def _credential(tx: Tx, call: IdentityCall, row: Record, roles: dict[str, str]) -> Record:
    kept = {name: value for name, value in row.items() if name not in {"secret_hash", "roles", "access_rules"}}
    url = f"{call.context.url}/users/{row['user_id']}/application_credentials/{row['id']}"
    brief = [{"id": id_, "name": roles.get(id_, ""), "domain_id": None} for id_ in row["roles"]]
    shown_rules = rules_of(tx, row["access_rules"])
    rules = {} if shown_rules is None else {"access_rules": shown_rules}
    return {**kept, "roles": brief, "system": None, **rules, "links": {"self": url}}


def _roles(tx: Tx) -> dict[str, str]:
    return {role["id"]: role["name"] for role in store.find(tx, "roles", {})}


def _ends(said: object) -> str | None:
    if said is None:
        return None
    try:
        return moment_of(str(said)).strftime("%Y-%m-%dT%H:%M:%S.%f")
    except ValueError as failure:
        raise Invalid("Invalid input for field 'expires_at': not an ISO 8601 time.") from failure


def _chosen(said: object, held: list[str], names: dict[str, str]) -> list[str]:
    """The roles to lend: those named, each of which the user must hold; all of them when none is named."""
    if not said:
        return held
    if not isinstance(said, list):
        raise Invalid("'roles' must be a list.")
    by_name = {name: id_ for id_, name in names.items()}
    chosen = [one.get("id") or by_name.get(str(one.get("name"))) for one in said if isinstance(one, dict)]
    missing = [one for one in chosen if one not in held]
    if missing or len(chosen) != len(said):
        raise Invalid("Could not find role assignment with role: it must be held on the project of the token.")
    return [str(one) for one in chosen]


async def credential_create(call: IdentityCall) -> Response:
    """Create an application credential. Raises Invalid for missing fields, Conflict when the user has too many."""
    call.require(call.path("id") == call.user_id and call.claims.scope == "project")
    call.require_unrestricted()
    said = await call.body("application_credential")
    name, secret = said.get("name"), said.get("secret") or secrets.token_urlsafe(64)
    if not isinstance(name, str) or not 0 < len(name) <= 255 or not isinstance(secret, str):
        raise Invalid("'name' is a required property of 'application_credential'.")
    rules = access_rules.requested_rules(said.get("access_rules"))
    held = [id_ for id_, _ in call.standing.roles]
    row: Record = {
        "id": uuid.uuid4().hex, "name": name, "user_id": call.user_id, "project_id": call.claims.scope_id,
        "description": said.get("description"), "secret_hash": await call.context.passwords.hash(secret),
        "unrestricted": said.get("unrestricted") is True, "expires_at": _ends(said.get("expires_at")),
    }  # fmt: skip

    def work(tx: Tx) -> Record:
        if len(store.find(tx, "application_credentials", {"user_id": call.user_id})) >= CREDENTIALS_MAX:
            raise Conflict(f"A user has at most {CREDENTIALS_MAX} application credentials.")
        names = _roles(tx)
        row["roles"] = _chosen(said.get("roles"), held, names)
        row["access_rules"] = access_rules.rule_ids(tx, call.user_id, rules)
        store.insert(tx, "application_credentials", row, "application credential")
        return _credential(tx, call, row, names)

    return json_response({"application_credential": {**await call.context.write(work), "secret": secret}}, 201)


async def credentials(call: IdentityCall) -> Response:
    call.require_application_credentials()
    user = await _user(call)
    equal: Record = {"user_id": user["id"]}
    if (name := call.query("name")) is not None:
        equal["name"] = name

    def work(tx: Tx) -> list[Record]:
        names = _roles(tx)
        return [_credential(tx, call, row, names) for row in store.find(tx, "application_credentials", equal)]

    return listing(call, "application_credentials", await call.context.read(work))


def _own_credential(tx: Tx, call: IdentityCall) -> Record:
    row = store.need(tx, "application_credentials", call.path("credential"), "application credential")
    if row["user_id"] != call.path("id"):
        raise NotFound(f"Could not find application credential: {row['id']}.")
    return row


async def credential_show(call: IdentityCall) -> Response:
    call.require_application_credentials()
    await _user(call)
    found = await call.context.read(lambda tx: _credential(tx, call, _own_credential(tx, call), _roles(tx)))
    return json_response({"application_credential": found})


async def credential_delete(call: IdentityCall) -> Response:
    call.require(call.path("id") == call.user_id or call.has("admin"))
    call.require_unrestricted()

    def work(tx: Tx) -> None:
        row = _own_credential(tx, call)
        store.remove(tx, "application_credentials", row["id"], "application credential")

    await call.context.write(work)
    return empty_response()


ROUTES: Routes = {
    "users/{id}/password": {"POST": change_password},
    "users/{id}/projects": {"GET": user_projects},
    "users/{id}/groups": {"GET": user_groups},
    "users/{id}/application_credentials": {"POST": credential_create, "GET": credentials},
    "users/{id}/application_credentials/{credential}": {"GET": credential_show, "DELETE": credential_delete},
    "groups/{id}/users": {"GET": members},
    "groups/{id}/users/{user}": {"GET": member_check, "PUT": member_add, "DELETE": member_drop},
    **plain(
        schemas.USER,
        Ways(
            prepare=_prepare_user,
            of_domain=True,
            check=need_domain,
            may_see=lambda call, row: row["id"] == call.user_id or call.may_read(row["domain_id"]),
        ),
    ),
    **plain(schemas.GROUP, Ways(prepare=_prepare_group, of_domain=True, check=need_domain)),
}
