"""A token request: its methods prove who asks, its scope says for what.  The answer is the facts of a new token."""

from datetime import UTC, datetime
from typing import Any, cast

from moorage.embedded.identity import store
from moorage.embedded.identity.desk import Desk
from moorage.embedded.identity.standing import SYSTEM, refused, stand
from moorage.embedded.identity.store import Record
from moorage.embedded.identity.tokens import Claims, new_audit_id
from moorage.model.errors import Forbidden, Invalid, Unauthenticated
from moorage.sql import Tx

METHODS_MAX = 4


async def authenticate(desk: Desk, auth: Record) -> Claims:
    """Raises Unauthenticated for anything that does not fit, Invalid for what cannot be read."""
    identity = _object(auth, "identity")
    methods = identity.get("methods")
    if not isinstance(methods, list) or not methods or len(methods) > METHODS_MAX:
        raise Invalid("'methods' is a required property of 'identity' and must be a list.")
    now = desk.clock()
    proved = Claims("", (), "", "", now, now + desk.token_life_s, (new_audit_id(),))
    for method in dict.fromkeys(str(one) for one in methods):
        match method:
            case "password":
                user = await _by_password(desk, _object(identity, "password"))
                fresh = Claims(user, ("password",), "", "", now, proved.expires_at, proved.audit_ids)
            case "token":
                fresh = await _by_token(desk, _object(identity, "token"), proved)
            case "application_credential":
                fresh = await _by_credential(desk, _object(identity, "application_credential"), proved)
            case _:
                raise refused()
        if proved.user and proved.user != fresh.user:
            raise refused()
        proved = _joined(proved, fresh)
    return await _scoped(desk, proved, auth.get("scope"))


def _joined(one: Claims, other: Claims) -> Claims:
    methods = tuple(dict.fromkeys((*one.methods, *other.methods)))
    return Claims(
        other.user, methods, other.scope, other.scope_id, one.issued_at, min(one.expires_at, other.expires_at),
        other.audit_ids if len(other.audit_ids) > len(one.audit_ids) else one.audit_ids, other.application_credential,
    )  # fmt: skip


def _object(of: Record, name: str) -> Record:
    found = of.get(name)
    if not isinstance(found, dict):
        raise Invalid(f"'{name}' is a required property and must be an object.")
    return cast("Record", found)


def _string(of: Record, name: str) -> str:
    found = of.get(name)
    if not isinstance(found, str):
        raise Invalid(f"'{name}' is a required property and must be a string.")
    return found


def _domain_id(tx: Tx, named: object) -> str:
    """`{"id"}` or `{"name"}` of a domain."""
    if not isinstance(named, dict):
        raise Invalid("Expecting to find domain in the request: a name needs the domain it lives in.")
    said = cast("dict[str, Any]", named)
    if isinstance(said.get("id"), str):
        return cast("str", said["id"])
    found = store.find(tx, "projects", {"name": _string(said, "name"), "is_domain": True})
    if not found:
        raise refused()
    return str(found[0]["id"])


def _find_user(tx: Tx, said: Record) -> Record | None:
    if isinstance(said.get("id"), str):
        return store.get(tx, "users", said["id"])
    found = store.find(tx, "users", {"name": _string(said, "name"), "domain_id": _domain_id(tx, said.get("domain"))})
    return found[0] if found else None


async def _by_password(desk: Desk, method: Record) -> str:
    said = _object(method, "user")
    password = _string(said, "password")
    user = await desk.read(lambda tx: _find_user(tx, said))
    if not await desk.passwords.fits(password, None if user is None else user["password_hash"]) or user is None:
        raise refused()
    if not user["enabled"]:
        raise refused()
    return str(user["id"])


async def _by_token(desk: Desk, method: Record, fresh: Claims) -> Claims:
    claims = await desk.claims(_string(method, "id"))
    await desk.standing(claims)
    if claims.application_credential:
        raise Forbidden("A token of an application credential cannot be exchanged for another.")
    chain = (fresh.audit_ids[0], claims.audit_ids[-1])
    methods = (*claims.methods, "token")
    return Claims(claims.user, methods, "", "", fresh.issued_at, claims.expires_at, chain)


async def _by_credential(desk: Desk, method: Record, fresh: Claims) -> Claims:
    secret = _string(method, "secret")

    def find(tx: Tx) -> Record | None:
        if isinstance(method.get("id"), str):
            return store.get(tx, "application_credentials", method["id"])
        user = _find_user(tx, _object(method, "user"))
        equal = {"name": _string(method, "name"), "user_id": "" if user is None else user["id"]}
        found = store.find(tx, "application_credentials", equal)
        return found[0] if found else None

    found = await desk.read(find)
    if not await desk.passwords.fits(secret, None if found is None else found["secret_hash"]) or found is None:
        raise refused()
    ends = fresh.expires_at
    if found["expires_at"]:
        ends = min(ends, datetime.fromisoformat(found["expires_at"]).replace(tzinfo=UTC).timestamp())
        if ends <= fresh.issued_at:
            raise refused()
    return Claims(
        found["user_id"], ("application_credential",), "project", found["project_id"], fresh.issued_at, ends,
        fresh.audit_ids, found["id"],
    )  # fmt: skip


def _scope(tx: Tx, said: object, claims: Claims) -> tuple[str, str]:
    if said == "unscoped" or (isinstance(said, dict) and "unscoped" in said):
        return "", ""
    if said is None:
        return _default_scope(tx, claims)
    if not isinstance(said, dict):
        raise Invalid("'scope' must be an object.")
    asked = cast("Record", said)
    if "system" in asked:
        if _object(asked, "system").get("all") is not True:
            raise Invalid("'system' has one scope: {\"all\": true}.")
        return "system", SYSTEM
    if "domain" in asked:
        return "domain", _domain_id(tx, asked["domain"])
    if "OS-TRUST:trust" in asked:
        raise refused()
    project = _object(asked, "project")
    if isinstance(project.get("id"), str):
        return "project", project["id"]
    home = _domain_id(tx, project.get("domain"))
    found = store.find(tx, "projects", {"name": _string(project, "name"), "domain_id": home})
    if not found:
        raise refused()
    return "project", str(found[0]["id"])


def _default_scope(tx: Tx, claims: Claims) -> tuple[str, str]:
    """Without a scope: the user's default project where there is a role on it, else none."""
    user = store.get(tx, "users", claims.user)
    chosen = None if user is None else user["default_project_id"]
    if not chosen or "token" in claims.methods:
        return "", ""
    try:
        stand(tx, Claims(claims.user, (), "project", chosen, claims.issued_at, claims.expires_at, ()))
    except Unauthenticated:
        return "", ""
    return "project", str(chosen)


async def _scoped(desk: Desk, claims: Claims, said: object) -> Claims:
    if claims.application_credential:
        if said is not None:
            raise refused()
        scope, scope_id = claims.scope, claims.scope_id
    elif said is None:
        scope, scope_id = await desk.read(lambda tx: _scope(tx, None, claims))
    else:
        key = ("scope", claims.user, repr(said))
        scope, scope_id = await desk.remember(key, lambda: desk.read(lambda tx: _scope(tx, said, claims)))
    final = Claims(
        claims.user, claims.methods, scope, scope_id, claims.issued_at, claims.expires_at, claims.audit_ids,
        claims.application_credential,
    )  # fmt: skip
    await desk.standing(final)
    return final
