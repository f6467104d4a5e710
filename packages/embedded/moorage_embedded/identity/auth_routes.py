"""`/v3/auth`: tokens issued, shown and revoked, and where a token may be exchanged for."""

from typing import Any

from starlette.responses import Response

from moorage.model.errors import Forbidden, NotFound, Unauthenticated
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import role_grants, store
from moorage_embedded.identity.authentication import authenticate
from moorage_embedded.identity.context import IdentityContext, iso
from moorage_embedded.identity.effective_roles import EffectiveRoles, direct_roles
from moorage_embedded.identity.request import IdentityCall, Routes, listed
from moorage_embedded.identity.schemas import DOMAIN, PROJECT
from moorage_embedded.identity.store import Record
from moorage_embedded.identity.tokens import Claims

CHAIN_LIFE_S = 86_400.0


def _brief(row: Record) -> Record:
    return {"id": row["id"], "name": row["name"]}


def _url(template: str, standing: EffectiveRoles, user: str) -> str | None:
    """An endpoint's URL for this token; None when it needs a project and there is none."""
    project = None if standing.project is None else standing.project["id"]
    known = {"project_id": project, "tenant_id": project, "user_id": user}
    for name, value in known.items():
        for mark in (f"%({name})s", f"$({name})s"):
            if mark in template:
                if value is None:
                    return None
                template = template.replace(mark, value)
    return template


async def _catalog(context: IdentityContext, standing: EffectiveRoles, user: str) -> list[Record]:
    """A project that has endpoints of its own sees those, and only services that have one of them."""
    own = frozenset[str]() if standing.project is None else await context.endpoints_of(standing.project["id"])
    found: list[Record] = []
    for service in await context.catalog():
        endpoints = [
            {"id": one["id"], "interface": one["interface"], "region_id": one["region_id"], "region": one["region_id"],
             "url": url}
            for one in service["endpoints"]
            if (not own or one["id"] in own) and (url := _url(one["url"], standing, user)) is not None
        ]  # fmt: skip
        if endpoints or not own:
            found.append(
                {"id": service["id"], "type": service["type"], "name": service["name"], "endpoints": endpoints}
            )
    return found


def _scope_part(claims: Claims, standing: EffectiveRoles) -> Record:
    part: Record = {}
    if standing.project is not None and standing.project_domain is not None:
        part["project"] = {**_brief(standing.project), "domain": _brief(standing.project_domain)}
        if standing.trust is None:
            part["is_domain"] = bool(standing.project["is_domain"])
    elif standing.domain is not None:
        part["domain"] = _brief(standing.domain)
    elif claims.scope == "system":
        part["system"] = {"all": True}
    if claims.scope:
        part["roles"] = [{"id": id_, "name": name} for id_, name in standing.roles]
    if (trust := standing.trust) is not None:
        part["OS-TRUST:trust"] = {
            "id": trust["id"],
            "trustor_user": {"id": trust["trustor_user_id"]},
            "trustee_user": {"id": trust["trustee_user_id"]},
            "impersonation": trust["impersonation"],
        }
    if standing.credential is not None:
        lent = standing.credential
        rules = {} if standing.access_rules is None else {"access_rules": list(standing.access_rules)}
        part["application_credential"] = {**_brief(lent), "restricted": not lent["unrestricted"], **rules}
    return part


async def rendered(call: IdentityCall, claims: Claims) -> Record:
    """What is said of a token, with the catalog of its scope."""
    standing = await call.context.standing(claims)
    token: Record = {
        "methods": list(claims.methods),
        "user": {
            **_brief(standing.user),
            "domain": _brief(standing.user_domain),
            "password_expires_at": None,
        },
        "audit_ids": list(claims.audit_ids),
        "expires_at": iso(claims.expires_at),
        "issued_at": iso(claims.issued_at),
        **_scope_part(claims, standing),
    }
    if claims.scope and "nocatalog" not in call.request.query_params:
        token["catalog"] = await _catalog(call.context, standing, claims.user)
    return {"token": token}


async def issue(call: IdentityCall) -> Response:
    claims = await authenticate(call.context, await call.body("auth"), call.address)
    return json_response(await rendered(call, claims), 201, {"x-subject-token": call.context.seal.seal(claims)})


def _supports_access_rules(call: IdentityCall) -> bool:
    try:
        return float(call.request.headers.get("openstack-identity-access-rules", "0")) >= 1.0
    except ValueError:
        return False


async def _subject(call: IdentityCall) -> tuple[str, Claims]:
    token = call.request.headers.get("x-subject-token", "")
    try:
        claims = await call.context.claims(token)
        await call.context.standing(claims)
    except Unauthenticated as failure:
        raise NotFound("Could not find token.") from failure
    return token, claims


async def show(call: IdentityCall) -> Response:
    """Show the token. Raises NotFound for one whose access rules the caller does not support."""
    token, claims = await _subject(call)
    call.require(claims.user == call.user_id or call.may_read() or call.has("service"))
    if (await call.context.standing(claims)).access_rules is not None and not _supports_access_rules(call):
        raise NotFound("Could not find token.")  # whoever asks would let it do everything
    return json_response(await rendered(call, claims), headers={"x-subject-token": token})


async def revoke(call: IdentityCall) -> Response:
    """The token and, as it may be the first of a chain, all that came from it."""
    _, claims = await _subject(call)
    call.require(claims.user == call.user_id or call.has("admin"))
    now = call.context.clock()
    until = max(claims.expires_at, now + CHAIN_LIFE_S)
    await call.context.write(lambda tx: store.revoke(tx, claims.audit_ids[0], until, now))
    return empty_response()


async def catalog(call: IdentityCall) -> Response:
    """The catalog of the token's scope. Raises Forbidden for an unscoped token."""
    if not call.claims.scope:
        raise Forbidden("A scoped token is required to produce a service catalog.")
    found = await _catalog(call.context, call.standing, call.user_id)
    return json_response({"catalog": found, "links": {"self": f"{call.context.url}/auth/catalog"}})


def reachable(tx: Tx, user_id: str, *, domains: bool) -> list[Record]:
    """The enabled projects (or domains) a user has a role on, by inheritance too."""
    actors = [user_id, *store.groups_of(tx, user_id)]
    held = role_grants.find_grants(tx, {}, actors=actors)
    if domains:
        ids = {one["target_id"] for one in held if one["target_kind"] == "domain" and not one["inherited"]}
    else:
        ids = {one["target_id"] for one in held if one["target_kind"] == "project" and not one["inherited"]}
        if any(one["inherited"] for one in held):
            candidates = store.find(tx, "projects", {"is_domain": False})
            ids |= {one["id"] for one in candidates if direct_roles(tx, user_id, "project", one["id"])}
    return [
        one for one in store.find(tx, "projects", {"enabled": True}, ids=sorted(ids)) if one["is_domain"] == domains
    ]


async def projects(call: IdentityCall) -> Response:
    found = await call.context.read(lambda tx: reachable(tx, call.user_id, domains=False))
    return listed(call, PROJECT, found)


async def domains(call: IdentityCall) -> Response:
    found = await call.context.read(lambda tx: reachable(tx, call.user_id, domains=True))
    return listed(call, DOMAIN, found)


async def system(call: IdentityCall) -> Response:
    held = await call.context.read(lambda tx: direct_roles(tx, call.user_id, "system", "all"))
    content: dict[str, Any] = {"system": [{"all": True}] if held else []}
    return json_response({**content, "links": {"self": f"{call.context.url}/auth/system"}})


ROUTES: Routes = {
    "auth/tokens": {"POST": issue, "GET": show, "DELETE": revoke},
    "auth/catalog": {"GET": catalog},
    "auth/projects": {"GET": projects},
    "auth/domains": {"GET": domains},
    "auth/system": {"GET": system},
}
