"""What a new cloud starts with: applied at every start, and again without harm."""

import asyncio
import uuid

import msgspec

from moorage.sql import Tx
from moorage_embedded.identity import role_grants, store
from moorage_embedded.identity.context import IdentityContext
from moorage_embedded.identity.effective_roles import SYSTEM
from moorage_embedded.identity.store import Record

DEFAULT_DOMAIN = "default"
ROLES = ("admin", "manager", "member", "reader", "service")
IMPLIED = (("admin", "manager"), ("manager", "member"), ("member", "reader"))


class FirstUser(msgspec.Struct, frozen=True):
    name: str
    password: str
    roles: tuple[tuple[str, str], ...] = ()
    """(project name, role name)."""
    system_roles: tuple[str, ...] = ()
    default_project: str = ""


class FirstService(msgspec.Struct, frozen=True):
    type: str
    name: str
    url: str
    """May hold `%(project_id)s`."""
    interfaces: tuple[str, ...] = ("public", "internal", "admin")
    description: str = ""


class Bootstrap(msgspec.Struct, frozen=True):
    users: tuple[FirstUser, ...]
    services: tuple[FirstService, ...] = ()
    projects: tuple[str, ...] = ("admin", "service", "demo")
    region: str = "RegionOne"


async def bootstrap(context: IdentityContext, first: Bootstrap) -> None:
    """Make what is missing; passwords and URLs become those given, all else stays as people have changed it."""
    known = await context.read(
        lambda tx: {row["name"]: row for row in store.find(tx, "users", {"domain_id": DEFAULT_DOMAIN})}
    )
    hashes: dict[str, str] = {}

    async def hash_of(user: FirstUser) -> None:
        stored = known.get(user.name, {}).get("password_hash")
        fits = stored is not None and await context.passwords.fits(user.password, stored)
        if not fits or context.passwords.is_cheap(str(stored)):
            hashes[user.name] = await context.passwords.hash(user.password)

    await asyncio.gather(*map(hash_of, first.users))
    await context.write(lambda tx: _apply(tx, first, hashes))


def _ensure(tx: Tx, table: str, equal: Record, rest: Record, *, id_: str | None = None) -> Record:
    found = store.find(tx, table, equal) if id_ is None else [row for row in [store.get(tx, table, id_)] if row]
    if found:
        return found[0]
    made = {"id": id_ or uuid.uuid4().hex, **equal, **rest}
    store.insert(tx, table, made, table)
    return made


def _apply(tx: Tx, first: Bootstrap, hashes: dict[str, str]) -> None:
    bare: Record = {"description": "", "options": {}}
    whole = {**bare, "enabled": True, "is_domain": True, "tags": [], "parent_id": None}
    _ensure(tx, "projects", {"name": "Default", "domain_id": ""}, whole, id_=DEFAULT_DOMAIN)
    inside = {**whole, "is_domain": False, "parent_id": DEFAULT_DOMAIN}
    projects = {
        name: _ensure(tx, "projects", {"name": name, "domain_id": DEFAULT_DOMAIN}, inside)["id"]
        for name in first.projects
    }
    given = [role for user in first.users for _, role in user.roles]
    roles = {
        name: _ensure(tx, "roles", {"name": name, "domain_id": ""}, bare)["id"]
        for name in dict.fromkeys((*ROLES, *given))
    }
    for prior, implied in IMPLIED:
        role_grants.imply(tx, roles[prior], roles[implied])
    for user in first.users:
        _apply_user(tx, user, projects, roles, hashes.get(user.name))
    _ensure(tx, "regions", {}, {"description": "", "parent_region_id": None}, id_=first.region)
    for service in first.services:
        _apply_service(tx, service, first.region)


def _apply_user(
    tx: Tx, user: FirstUser, projects: dict[str, str], roles: dict[str, str], password_hash: str | None
) -> None:
    values: Record = {
        "enabled": True, "options": {}, "tokens_from": 0.0, "default_project_id": projects.get(user.default_project)
    }  # fmt: skip
    row = _ensure(tx, "users", {"name": user.name, "domain_id": DEFAULT_DOMAIN}, values)
    if password_hash is not None:
        store.change(tx, "users", row["id"], {"password_hash": password_hash}, "user")
    held = [("project", projects[project], roles[role]) for project, role in user.roles]
    held += [("system", SYSTEM, roles[role]) for role in user.system_roles]
    for kind, target, role in held:
        grant = {"actor_kind": "user", "actor_id": row["id"], "target_kind": kind, "target_id": target}
        role_grants.add_grant(tx, {**grant, "role_id": role, "inherited": False})


def _apply_service(tx: Tx, service: FirstService, region: str) -> None:
    same = {"type": service.type, "name": service.name}
    row = _ensure(tx, "services", same, {"enabled": True, "description": service.description})
    for interface in service.interfaces:
        at = {"service_id": row["id"], "interface": interface, "region_id": region}
        made = _ensure(tx, "endpoints", at, {"url": service.url, "enabled": True})
        if made["url"] != service.url:
            store.change(tx, "endpoints", made["id"], {"url": service.url}, "endpoint")
