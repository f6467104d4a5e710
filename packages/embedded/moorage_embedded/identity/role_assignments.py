"""Role assignments: which user or group has which role on what; granted, revoked and listed, as stored or in effect."""

from collections.abc import Iterator, Mapping

from starlette.responses import Response

from moorage.model.errors import Invalid, NotFound
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response
from moorage_embedded.identity import hierarchy, role_grants, schemas, store
from moorage_embedded.identity.effective_roles import SYSTEM, expanded
from moorage_embedded.identity.request import Handler, IdentityCall, Routes, listed, listing
from moorage_embedded.identity.store import Record

TABLES = {"user": "users", "group": "groups", "project": "projects", "domain": "projects", "role": "roles"}
MANAGED_ROLES = {"manager", "member", "reader"}
"""What a manager of a domain may give."""


def _grant(call: IdentityCall, actor: str, target: str, inherited: bool) -> Record:
    params = call.request.path_params
    return {
        "actor_kind": actor, "actor_id": params["actor"], "target_kind": target,
        "target_id": params.get("target", SYSTEM), "inherited": inherited,
    }  # fmt: skip


def _check(tx: Tx, call: IdentityCall, grant: Record, *, write: bool) -> None:
    """Everything named exists, and the caller may."""
    actor = store.need(tx, TABLES[grant["actor_kind"]], grant["actor_id"], grant["actor_kind"])
    home = None
    if grant["target_kind"] != "system":
        target = store.need(tx, "projects", grant["target_id"], grant["target_kind"])
        home = target["id"] if target["is_domain"] else target["domain_id"]
    home = home if home == actor["domain_id"] else None
    role = store.need(tx, "roles", grant["role_id"], "role") if "role_id" in grant else None
    if not write:
        call.require(call.may_read(home))
    else:
        call.require(call.has("admin") or (call.may_write(home) and (role or {}).get("name") in MANAGED_ROLES))


def _handlers(actor: str, target: str, inherited: bool) -> tuple[Handler, dict[str, Handler]]:
    """Of all roles, and of one."""

    def one(call: IdentityCall) -> Record:
        return {**_grant(call, actor, target, inherited), "role_id": call.path("role")}

    async def give(call: IdentityCall) -> Response:
        def work(tx: Tx) -> None:
            _check(tx, call, one(call), write=True)
            role_grants.add_grant(tx, one(call))

        await call.context.write(work)
        return empty_response()

    async def check(call: IdentityCall) -> Response:
        def work(tx: Tx) -> bool:
            _check(tx, call, one(call), write=False)
            return role_grants.has_grant(tx, one(call))

        return _if_there(call, await call.context.read(work))

    async def take(call: IdentityCall) -> Response:
        def work(tx: Tx) -> bool:
            _check(tx, call, one(call), write=True)
            return role_grants.drop_grant(tx, one(call))

        return _if_there(call, await call.context.write(work))

    async def index(call: IdentityCall) -> Response:
        def work(tx: Tx) -> list[Record]:
            grant = _grant(call, actor, target, inherited)
            _check(tx, call, grant, write=False)
            ids = [held["role_id"] for held in role_grants.find_grants(tx, grant)]
            return store.find(tx, "roles", {}, ids=ids)

        return listed(call, schemas.ROLE, await call.context.read(work))

    return index, {"PUT": give, "GET": check, "DELETE": take}


def _if_there(call: IdentityCall, there: bool) -> Response:
    if not there:
        raise NotFound(f"Could not find role assignment with role: {call.path('role')}.")
    return empty_response()


def _grant_routes() -> Iterator[tuple[str, Mapping[str, Handler]]]:
    for actor in ("user", "group"):
        for target in ("project", "domain", "system"):
            at = "system" if target == "system" else f"{target}s/{{target}}"
            for inherited in (False, True):
                if inherited and target == "system":
                    continue
                path = f"{'OS-INHERIT/' if inherited else ''}{at}/{actor}s/{{actor}}/roles"
                end = "/inherited_to_projects" if inherited else ""
                index, one = _handlers(actor, target, inherited)
                yield path + end, {"GET": index}
                yield f"{path}/{{role}}{end}", one


# ------------------------------------------------------------------------------------------------- the list


def _in_effect(tx: Tx, rows: list[Record]) -> list[Record]:
    """Groups become their members, inherited grants the projects below, roles bring those they imply."""
    implied = role_grants.implications(tx)
    in_effect = {role["id"] for role in store.find(tx, "roles", {"domain_id": ""})}
    found: dict[tuple[str, ...], Record] = {}
    for row in rows:
        actors = store.members_of(tx, row["actor_id"]) if row["actor_kind"] == "group" else [row["actor_id"]]
        targets = [(row["target_kind"], row["target_id"])]
        if row["inherited"]:
            if row["target_kind"] == "domain":
                below = store.find(tx, "projects", {"domain_id": row["target_id"], "is_domain": False})
            else:
                below = [one for children in hierarchy.below(tx, row["target_id"]).values() for one in children]
            targets = [("project", project["id"]) for project in below]
        for actor in actors:
            for kind, target in targets:
                for role in filter(in_effect.__contains__, expanded([row["role_id"]], implied)):
                    made = {
                        "actor_kind": "user", "actor_id": actor, "target_kind": kind, "target_id": target,
                        "role_id": role, "inherited": False, "group": row["actor_id"] if actor != row["actor_id"] else "",
                    }  # fmt: skip
                    found.setdefault((actor, kind, target, role), made)
    return list(found.values())


def _named(tx: Tx, kind: str, id_: str, names: bool) -> Record:
    row = store.get(tx, TABLES[kind], id_) if names else None
    if row is None:
        return {"id": id_}
    brief = {"id": id_, "name": row["name"]}
    home = row["domain_id"] if kind in {"user", "group", "project"} else ""
    if home:
        brief["domain"] = _named(tx, "domain", home, True)
    return brief


def _shown(tx: Tx, call: IdentityCall, row: Record, names: bool) -> Record:
    kind, target = row["target_kind"], row["target_id"]
    scope: Record = {"system": {"all": True}} if kind == "system" else {kind: _named(tx, kind, target, names)}
    if row["inherited"]:
        scope["OS-INHERIT:inherited_to"] = "projects"
    at = "/system" if kind == "system" else f"/{kind}s/{target}"
    by = f"/groups/{row['group']}" if row.get("group") else f"/{row['actor_kind']}s/{row['actor_id']}"
    links = {"assignment": f"{call.context.url}{at}{by}/roles/{row['role_id']}"}
    actor = _named(tx, row["actor_kind"], row["actor_id"], names)
    return {"role": _named(tx, "role", row["role_id"], names), row["actor_kind"]: actor, "scope": scope, "links": links}


def _matching(call: IdentityCall) -> dict[str, str]:
    """The query's filters, by the columns of a grant."""
    asked = {
        name: call.query(name) for name in ("user.id", "group.id", "scope.project.id", "scope.domain.id", "role.id")
    }
    if asked["user.id"] and asked["group.id"]:
        raise Invalid("Specify a user or group, not both")
    if asked["scope.project.id"] and asked["scope.domain.id"]:
        raise Invalid("Specify a domain or project, not both")
    wanted: dict[str, str] = {}
    for name, kind_column, id_column in (
        ("user.id", "actor_kind", "actor_id"),
        ("group.id", "actor_kind", "actor_id"),
        ("scope.project.id", "target_kind", "target_id"),
        ("scope.domain.id", "target_kind", "target_id"),
    ):
        if asked[name]:
            wanted[kind_column] = name.removesuffix(".id").removeprefix("scope.")
            wanted[id_column] = str(asked[name])
    if call.query("scope.system"):
        if "target_kind" in wanted:
            raise Invalid("Specify system or another scope, not both")
        wanted["target_kind"] = "system"
    if asked["role.id"]:
        wanted["role_id"] = str(asked["role.id"])
    return wanted


async def assignments(call: IdentityCall) -> Response:
    """List role assignments. Raises Invalid for effective assignments of a group."""
    wanted, effective, names = _matching(call), call.asks("effective"), call.asks("include_names")
    if not call.may_read():
        call.require(wanted.get("actor_id") == call.user_id or call.may_read(call.domain_scope))
    tree = wanted.get("target_id") if call.asks("include_subtree") else ""
    if tree is None or (tree and wanted["target_kind"] != "project"):
        raise Invalid("scope.project.id must be specified if include_subtree is also specified")
    if tree:
        del wanted["target_id"]
    if effective and wanted.get("actor_kind") == "group":
        raise Invalid("Combining effective and group filter will always result in an empty list.")

    def in_my_domain(tx: Tx, row: Record) -> bool:
        if row["target_kind"] == "system" or call.domain_scope is None:
            return False
        target = store.get(tx, "projects", row["target_id"])
        return target is not None and call.domain_scope in {target["id"], target["domain_id"]}

    def work(tx: Tx) -> list[Record]:
        rows = role_grants.find_grants(tx, {} if effective else wanted)
        if effective:
            rows = [row for row in _in_effect(tx, rows) if wanted.items() <= row.items()]
        if tree:
            under = {each["id"] for children in hierarchy.below(tx, tree).values() for each in children}
            rows = [row for row in rows if row["target_id"] in {tree, *under}]
        if call.query("scope.OS-INHERIT:inherited_to") is not None:
            rows = [row for row in rows if row["inherited"]]
        if not call.may_read() and wanted.get("actor_id") != call.user_id:
            rows = [row for row in rows if in_my_domain(tx, row)]
        return [_shown(tx, call, row, names) for row in rows]

    return listing(call, "role_assignments", await call.context.read(work))


ROUTES: Routes = {**dict(_grant_routes()), "role_assignments": {"GET": assignments}}
