"""The roles of a user on a scope: the facts behind a token, read when the token is used.

Roles come from grants to the user and to the user's groups, on the target itself or inherited from the projects and the
domain above it; every role also gives the roles that it implies.
"""

from collections.abc import Iterable, Mapping

import msgspec

from moorage.model.errors import Unauthenticated
from moorage.sql import Tx
from moorage_embedded.identity import role_grants, store
from moorage_embedded.identity.store import Record
from moorage_embedded.identity.tokens import Claims

DEPTH_MAX = 32
"""Projects above a project; Keystone's limit is 5."""
SYSTEM = "all"
RULE = ("id", "service", "method", "path")


class EffectiveRoles(msgspec.Struct, frozen=True):
    user: Record
    user_domain: Record
    project: Record | None = None
    project_domain: Record | None = None
    domain: Record | None = None
    roles: tuple[tuple[str, str], ...] = ()
    """(id, name), implied ones included."""
    credential: Record | None = None
    access_rules: tuple[Record, ...] | None = None
    """What a token of the credential may call; None: whatever its roles allow."""
    trust: Record | None = None
    tokens_from: float = 0.0
    """Of a trust: since when tokens of trustor and trustee are good."""


def refused() -> Unauthenticated:
    return Unauthenticated("The request you have made requires authentication.")


def domain_of(tx: Tx, row: Record) -> Record:
    """The domain a user or project lives in; a domain is its own."""
    found = row if row.get("is_domain") else store.get(tx, "projects", row["domain_id"])
    if found is None or not found["enabled"]:
        raise refused()
    return found


def expanded(role_ids: Iterable[str], implied: Mapping[str, list[str]]) -> list[str]:
    """The roles and all they imply, each once, the given ones first."""
    found = list(dict.fromkeys(role_ids))
    for role in found:  # grows while we walk it
        found.extend(one for one in implied.get(role, ()) if one not in found)
    return found


def parents(tx: Tx, project: Record) -> list[Record]:
    """The projects above, nearest first, without the domain."""
    found: list[Record] = []
    while (above := project["parent_id"]) and above != project["domain_id"] and len(found) < DEPTH_MAX:
        parent = store.get(tx, "projects", above)
        if parent is None:
            break
        found.append(parent)
        project = parent
    return found


def direct_roles(tx: Tx, user_id: str, scope: str, scope_id: str) -> list[str]:
    """Ids of the roles a user holds on a target, without those they imply."""
    actors = [user_id, *store.groups_of(tx, user_id)]
    held = role_grants.find_grants(tx, {"target_kind": scope, "target_id": scope_id, "inherited": False}, actors=actors)
    if scope == "project" and (project := store.get(tx, "projects", scope_id)) is not None:
        above = [("project", one["id"]) for one in parents(tx, project)] + [("domain", project["domain_id"])]
        for kind, target in above:
            equal = {"target_kind": kind, "target_id": target, "inherited": True}
            held += role_grants.find_grants(tx, equal, actors=actors)
    return [grant["role_id"] for grant in held]


def roles_on(tx: Tx, user_id: str, scope: str, scope_id: str) -> tuple[tuple[str, str], ...]:
    held = direct_roles(tx, user_id, scope, scope_id)
    return named(tx, expanded(held, role_grants.implications(tx))) if held else ()


def named(tx: Tx, role_ids: list[str]) -> tuple[tuple[str, str], ...]:
    """Roles of a domain are never in effect themselves: they only bring the global ones they imply."""
    names = {role["id"]: role["name"] for role in store.find(tx, "roles", {"domain_id": ""}, ids=role_ids)}
    return tuple((role, names[role]) for role in role_ids if role in names)


def stand(tx: Tx, claims: Claims) -> EffectiveRoles:
    """The standing behind a token; raises Unauthenticated when any of it is gone, disabled or newer than the token."""
    user = store.get(tx, "users", claims.user)
    if user is None or not user["enabled"] or claims.issued_at < user["tokens_from"]:
        raise refused()
    home = domain_of(tx, user)
    if not claims.scope:
        return EffectiveRoles(user, home)
    roles = roles_on(tx, user["id"], claims.scope, claims.scope_id)
    credential = None
    if claims.application_credential:
        credential = store.get(tx, "application_credentials", claims.application_credential)
        if credential is None:
            raise refused()
        lent = set(expanded(credential["roles"], role_grants.implications(tx)))
        roles = tuple(role for role in roles if role[0] in lent)
    if not roles:
        raise refused()
    if claims.scope == "system":
        return EffectiveRoles(user, home, roles=roles)
    target = store.get(tx, "projects", claims.scope_id)
    if target is None or not target["enabled"]:
        raise refused()
    if claims.scope == "domain":
        return EffectiveRoles(user, home, domain=target, roles=roles)
    rules = None if credential is None else rules_of(tx, credential["access_rules"])
    return EffectiveRoles(
        user,
        home,
        project=target,
        project_domain=domain_of(tx, target),
        roles=roles,
        credential=credential,
        access_rules=rules,
    )


def rules_of(tx: Tx, ids: list[str] | None) -> tuple[Record, ...] | None:
    """The access rules with these ids, as a credential and its token show them."""
    if ids is None:
        return None
    rows = {row["id"]: row for row in store.find(tx, "access_rules", {}, ids=ids)}
    return tuple({name: rows[id_][name] for name in RULE} for id_ in ids if id_ in rows)
