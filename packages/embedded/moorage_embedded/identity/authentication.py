"""Authenticates a token request: its methods prove the user, its scope names the target. The result is the facts of a
new token.
"""

import hashlib
import math
from datetime import UTC, datetime
from typing import Any, cast

from moorage.model.errors import Forbidden, Invalid, Unauthenticated, Unavailable
from moorage.sql import Tx
from moorage_embedded.identity import store
from moorage_embedded.identity.context import IdentityContext
from moorage_embedded.identity.effective_roles import SYSTEM, refused, stand
from moorage_embedded.identity.store import Record
from moorage_embedded.identity.tokens import SIGNED, Claims, new_audit_id
from moorage_embedded.identity.trust_scope import scoped_to_trust

METHODS_MAX = 4
TRUST = "OS-TRUST:trust"
"""How a scope names a trust."""
GUESSED = ("password", "application_credential")
NAME_CHARS_MAX = 255
"""Of a project or a domain: nothing is called more."""


async def authenticate(context: IdentityContext, auth: Record, address: str | None = None) -> Claims:
    """Raises Unauthenticated for wrong credentials or scope, Invalid for a malformed request, TooManyRequests after too
    many failures.

    `address`: the caller's address; None: an internal call.
    """
    account = await _owner_of(context, auth)
    if account:
        context.throttle.check(address, account)
    try:
        return await _proved(context, auth)
    except Unauthenticated:
        if account:
            context.throttle.failed(address, account)
        raise


def _account(auth: Record) -> str:
    """The account for which a secret is tried, as a bounded text; empty for tokens, which cannot be guessed."""
    identity = _object(auth, "identity")
    methods = identity.get("methods")
    tried = [identity.get(each) for each in GUESSED if isinstance(methods, list) and each in methods]
    if not tried:
        return ""
    said = [_names(each, "user", _names(each.get("user"), "domain")) for each in tried if isinstance(each, dict)]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32]


def _names(said: object, within: str = "", inside: object = None) -> list[object]:
    """What is read of that by which something is named: the id, or the name and where it is one; whatever else is said is nothing."""
    if not isinstance(said, dict):
        return []
    if isinstance(said.get("id"), str):
        return [said["id"]]
    return [said.get("name"), (inside or _names(said.get(within))) if within else None]


async def _owner_of(context: IdentityContext, auth: Record) -> str:
    """The same, and where there is such a user, the user: one account has several names."""
    account = _account(auth)
    if not account:
        return ""

    def find(tx: Tx) -> str:
        identity = _object(auth, "identity")
        kind = next(each for each in GUESSED if each in identity["methods"])
        said = _object(identity, kind)
        if kind == GUESSED[1] and isinstance(said.get("id"), str):
            lent = store.get(tx, "application_credentials", said["id"])
            return account if lent is None else str(lent["user_id"])
        user = _find_user(tx, _object(said, "user"))
        return account if user is None else str(user["id"])

    try:
        return await context.remember(("account", account), lambda: context.read(find))
    except (Invalid, Unauthenticated):
        return account


async def _proved(context: IdentityContext, auth: Record) -> Claims:
    identity = _object(auth, "identity")
    methods = identity.get("methods")
    if not isinstance(methods, list) or not methods or len(methods) > METHODS_MAX:
        raise Invalid("'methods' is a required property of 'identity' and must be a list.")
    if "application_credential" in methods and set(methods) != {"application_credential"}:
        raise refused()  # another method beside it would take its limits away
    now = context.clock()
    proved = Claims("", (), "", "", now, now + context.token_life_s, (new_audit_id(),))
    for method in dict.fromkeys(str(one) for one in methods):
        match method:
            case "password":
                user = await _by_password(context, _object(identity, "password"))
                fresh = Claims(user, ("password",), "", "", now, proved.expires_at, proved.audit_ids)
            case "token":
                fresh = await _by_token(context, _object(identity, "token"), proved)
            case "application_credential":
                fresh = await _by_credential(context, _object(identity, "application_credential"), proved)
            case _:
                raise refused()
        if proved.user and proved.user != fresh.user:
            raise refused()
        proved = _joined(proved, fresh)
    if isinstance(said := auth.get("scope"), dict) and TRUST in said:
        if len(said) > 1:
            raise Invalid("'scope' names a trust or something else, not both.")
        return await scoped_to_trust(context, proved, said[TRUST])
    return await _scoped(context, proved, auth.get("scope"))


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


async def _by_password(context: IdentityContext, method: Record) -> str:
    said = _object(method, "user")
    password = _string(said, "password")
    user = await context.read(lambda tx: _find_user(tx, said))
    if not await fits_user(context, user, password) or user is None or not user["enabled"]:
        raise refused()
    return str(user["id"])


async def fits_user(context: IdentityContext, user: Record | None, password: str) -> bool:
    """Whether it is this user's password, and the account is not locked; it takes as long for an unknown user (None).

    A hash of a lower cost than the current one is replaced, because the password is available here.
    """
    if user is not None and await context.lockout.locked(user["id"], user["options"]):
        await context.passwords.fits(password, None)
        return False
    fits = await context.passwords.fits(password, None if user is None else user["password_hash"])
    if user is None:
        return False
    if not fits:
        await context.lockout.failed(user["id"])
        return False
    await context.lockout.succeeded(user["id"])
    await _make_dear(context, "users", "password_hash", user, password)
    return True


async def _make_dear(context: IdentityContext, table: str, column: str, row: Record, secret: str) -> None:
    """Does nothing when the hash was changed meanwhile, or when the service is busy: the next login tries again."""
    stored = str(row[column])
    if not context.passwords.is_cheap(stored):
        return
    try:
        dear = await context.passwords.hash(secret)
    except Unavailable:
        return
    if await context.database.write(lambda tx: store.exchange(tx, table, row["id"], column, stored, dear)):
        context.passwords.remember(secret, dear)


async def _by_token(context: IdentityContext, method: Record, fresh: Claims) -> Claims:
    claims = await context.claims(_string(method, "id"))
    await context.standing(claims)
    if claims.application_credential or SIGNED in claims.methods:
        raise Forbidden(
            "You are not authorized to perform the requested action: Using a delegated token to create another token is"
            " not allowed."
        )
    if claims.trust:
        raise Forbidden(
            "You are not authorized to perform the requested action: Using trust-scoped token to create another token."
            " Create a new trust-scoped token instead."
        )
    chain = (fresh.audit_ids[0], claims.audit_ids[-1])
    methods = (*claims.methods, "token")
    return Claims(claims.user, methods, "", "", fresh.issued_at, claims.expires_at, chain)


async def _by_credential(context: IdentityContext, method: Record, fresh: Claims) -> Claims:
    secret = _string(method, "secret")

    def find(tx: Tx) -> Record | None:
        if isinstance(method.get("id"), str):
            return store.get(tx, "application_credentials", method["id"])
        user = _find_user(tx, _object(method, "user"))
        equal = {"name": _string(method, "name"), "user_id": "" if user is None else user["id"]}
        found = store.find(tx, "application_credentials", equal)
        return found[0] if found else None

    found = await context.read(find)
    if not await context.passwords.fits(secret, None if found is None else found["secret_hash"]) or found is None:
        raise refused()
    await _make_dear(context, "application_credentials", "secret_hash", found, secret)
    ends = min(fresh.expires_at, ends_at(found))
    if ends <= fresh.issued_at:
        raise refused()
    return Claims(
        found["user_id"], ("application_credential",), "project", found["project_id"], fresh.issued_at, ends,
        fresh.audit_ids, found["id"],
    )  # fmt: skip


def ends_at(credential: Record) -> float:
    """Until when an application credential is good."""
    if not credential["expires_at"]:
        return math.inf
    return datetime.fromisoformat(credential["expires_at"]).replace(tzinfo=UTC).timestamp()


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
    project = _object(asked, "project")
    if isinstance(project.get("id"), str):
        return "project", project["id"]
    home = _domain_id(tx, project.get("domain"))
    found = store.find(tx, "projects", {"name": _string(project, "name"), "domain_id": home})
    if not found:
        raise refused()
    return "project", str(found[0]["id"])


def _meant(said: object) -> object:
    """Of what is said as a scope, that which is read, in bounds: it is remembered. Raises Invalid."""
    if not isinstance(said, dict):
        if said != "unscoped":
            raise Invalid("'scope' must be an object.")
        return said
    asked = cast("Record", said)
    for kind in ("unscoped", "system", "domain", "project"):
        if kind not in asked:
            continue
        match kind:
            case "unscoped":
                return {kind: {}}
            case "system":
                return {kind: {"all": _object(asked, kind).get("all") is True}}
            case "domain":
                return {kind: _named(asked[kind])}
            case _:
                project = _object(asked, kind)
                home = {"domain": _named(project["domain"])} if "domain" in project else {}
                return {kind: {**home, **_named(project)}}
    raise Invalid("'project' is a required property and must be an object.")


def _named(said: object) -> Record:
    """`{"id"}` or `{"name"}`; empty for anything else, which the caller refuses. Raises Unauthenticated for an
    impossible name.
    """
    if not isinstance(said, dict):
        return {}
    found = {name: said[name] for name in ("id", "name") if isinstance(said.get(name), str)}
    if any(len(each) > NAME_CHARS_MAX for each in found.values()):
        raise refused()
    return {"id": found["id"]} if "id" in found else found


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


async def _scoped(context: IdentityContext, claims: Claims, said: object) -> Claims:
    if claims.application_credential:
        if said is not None:
            raise refused()
        scope, scope_id = claims.scope, claims.scope_id
    elif said is None:
        scope, scope_id = await context.read(lambda tx: _scope(tx, None, claims))
    else:
        meant = _meant(said)
        scope, scope_id = await context.remember(
            ("scope", claims.user, repr(meant)), lambda: context.read(lambda tx: _scope(tx, meant, claims))
        )
    final = Claims(
        claims.user, claims.methods, scope, scope_id, claims.issued_at, claims.expires_at, claims.audit_ids,
        claims.application_credential,
    )  # fmt: skip
    await context.standing(final)
    return final
