"""Domains, projects with their tags, roles and what they imply, and the catalog's services, endpoints and regions."""

from starlette.responses import Response

from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import hierarchy, role_grants, schemas, store
from moorage_embedded.identity.crud import Ways, plain
from moorage_embedded.identity.request import IdentityCall, Routes
from moorage_embedded.identity.schemas import fresh
from moorage_embedded.identity.store import Record

TAGS_MAX = 80
INTERFACES = {"public", "internal", "admin"}


async def _prepare_project(call: IdentityCall, values: Record) -> None:
    if "parent_id" not in values:
        return
    if values["is_domain"]:
        if values["parent_id"] or values["domain_id"]:
            raise Invalid("A project that is a domain has no parent and is in no domain.")
        values["domain_id"] = ""
        return
    home = call.domain_scope or call.standing.user_domain["id"]
    parent = values["parent_id"]
    above = None if parent is None else await call.context.read(lambda tx: store.get(tx, "projects", parent))
    if parent is not None and above is None:
        raise NotFound(f"Could not find project: {parent}.")
    if above is not None:
        home = above["id"] if above["is_domain"] else above["domain_id"]
        if values["domain_id"] not in {None, home}:
            raise Invalid("A project lives in the domain of its parent.")
    values["domain_id"] = values["domain_id"] or home
    values["parent_id"] = parent or values["domain_id"]


async def _prepare_domain(_call: IdentityCall, values: Record) -> None:
    values.setdefault("domain_id", "")


def need_domain(tx: Tx, row: Record) -> None:
    """The row's domain. Raises NotFound when it does not exist."""
    found = store.get(tx, "projects", row["domain_id"])
    if found is None or not found["is_domain"]:
        raise NotFound(f"Could not find domain: {row['domain_id']}.")


def _check_project(tx: Tx, row: Record) -> None:
    if not row["is_domain"]:
        need_domain(tx, row)


def _before_project(tx: Tx, row: Record) -> None:
    if row["is_domain"]:
        _before_domain(tx, row)
        return
    if store.find(tx, "projects", {"parent_id": row["id"]}):
        raise Forbidden(f"Cannot delete the project {row['id']} since it is not a leaf in the hierarchy.")


def _before_domain(tx: Tx, row: Record) -> None:
    if row["enabled"]:
        raise Forbidden("Cannot delete a domain that is enabled, please disable it first.")
    for table in ("users", "groups", "projects", "roles"):
        for inside in store.find(tx, table, {"domain_id": row["id"]}):
            store.remove(tx, table, inside["id"], table)


async def _prepare_role(_call: IdentityCall, values: Record) -> None:
    if "domain_id" in values:
        values["domain_id"] = values["domain_id"] or ""


async def _prepare_endpoint(call: IdentityCall, values: Record) -> None:
    """`region` is the older word for `region_id`, and makes the region when it is new."""
    region = values.pop("region", None)
    if region is None or values.get("region_id") is not None:
        return
    call.require(call.may_write())
    wanted = fresh(schemas.REGION, {"id": region})
    values["region_id"] = region

    def work(tx: Tx) -> None:
        if store.get(tx, "regions", region) is None:
            store.insert(tx, "regions", wanted, "region")

    await call.context.write(work)


def _check_endpoint(tx: Tx, row: Record) -> None:
    if row["interface"] not in INTERFACES:
        raise Invalid(f"Invalid input for field 'interface': {row['interface']!r} is not one of {sorted(INTERFACES)}.")
    store.need(tx, "services", row["service_id"], "service")
    if row["region_id"] is not None:
        store.need(tx, "regions", row["region_id"], "region")


def _before_service(tx: Tx, row: Record) -> None:
    for endpoint in store.find(tx, "endpoints", {"service_id": row["id"]}):
        store.remove(tx, "endpoints", endpoint["id"], "endpoint")  # with the projects that it is of


def _before_region(tx: Tx, row: Record) -> None:
    if store.find(tx, "endpoints", {"region_id": row["id"]}):
        raise Conflict(f"Region {row['id']} still has endpoints.")


def _of_resource(tx: Tx, table: str, row: Record) -> list[Record]:
    """The limits of the same resource of the same service and region."""
    return store.find(tx, table, {name: row[name] for name in ("service_id", "region_id", "resource_name")})


def _check_registered_limit(tx: Tx, row: Record) -> None:
    if (stored := store.get(tx, "registered_limits", row["id"])) is not None:
        _before_registered_limit(tx, stored)
    if any(each["id"] != row["id"] for each in _of_resource(tx, "registered_limits", row)):
        raise Conflict("Conflict occurred attempting to store registered_limit - Duplicate entry.")


def _before_registered_limit(tx: Tx, row: Record) -> None:
    if _of_resource(tx, "limits", row):
        raise Forbidden(
            f"Unable to update or delete registered limit {row['id']} because there are project limits associated with it."
        )


def _check_limit(tx: Tx, row: Record) -> None:
    store.need(tx, "services", row["service_id"], "service")
    if store.get(tx, "limits", row["id"]) is not None:
        return
    if not _of_resource(tx, "registered_limits", row):
        raise Forbidden("Unable to create a limit that has no corresponding registered limit.")
    owner = (row["project_id"], row["domain_id"])
    if any((each["project_id"], each["domain_id"]) == owner for each in _of_resource(tx, "limits", row)):
        raise Conflict("Conflict occurred attempting to store limit - Duplicate entry.")


async def _project(call: IdentityCall, *, write: bool) -> Record:
    row = await call.context.read(lambda tx: store.need(tx, "projects", call.path("id"), "project"))
    mine = call.claims.scope == "project" and call.claims.scope_id == row["id"]
    call.require(call.may_write(row["domain_id"]) if write else mine or call.may_read(row["domain_id"]))
    return row


async def tags(call: IdentityCall) -> Response:
    return json_response({"tags": (await _project(call, write=False))["tags"] or []})


async def tag_check(call: IdentityCall) -> Response:
    """Check a tag of a project. Raises NotFound when it is missing."""
    row = await _project(call, write=False)
    if call.path("tag") not in (row["tags"] or []):
        raise NotFound(f"Could not find project tag: {call.path('tag')}.")
    return empty_response()


async def _keep_tags(call: IdentityCall, row: Record, kept: list[str]) -> None:
    if len(kept) > TAGS_MAX or any(not 0 < len(tag) <= 255 or "/" in tag or "," in tag for tag in kept):
        raise Invalid(f"A project has at most {TAGS_MAX} tags, each of 1 to 255 characters without ',' and '/'.")
    await call.context.write(lambda tx: store.change(tx, "projects", row["id"], {"tags": kept}, "project"))


async def tags_replace(call: IdentityCall) -> Response:
    """Replace all tags of a project. Raises Invalid when they are not a list of strings."""
    row = await _project(call, write=True)
    said = (await call.document()).get("tags")
    if not isinstance(said, list) or not all(isinstance(tag, str) for tag in said):
        raise Invalid("'tags' must be a list of strings.")
    kept = list(dict.fromkeys(str(tag) for tag in said))
    await _keep_tags(call, row, kept)
    return json_response({"tags": kept})


async def tag_add(call: IdentityCall) -> Response:
    row = await _project(call, write=True)
    await _keep_tags(call, row, list(dict.fromkeys([*(row["tags"] or []), call.path("tag")])))
    return Response(status_code=201)


async def tag_drop(call: IdentityCall) -> Response:
    """Remove a tag of a project. Raises NotFound when it is missing."""
    row = await _project(call, write=True)
    if call.path("tag") not in (row["tags"] or []):
        raise NotFound(f"Could not find project tag: {call.path('tag')}.")
    await _keep_tags(call, row, [tag for tag in row["tags"] if tag != call.path("tag")])
    return empty_response()


async def tags_clear(call: IdentityCall) -> Response:
    await _keep_tags(call, await _project(call, write=True), [])
    return empty_response()


# ------------------------------------------------------------------------------------------------ implied roles


def _pair(call: IdentityCall, prior: Record, implied: list[Record]) -> Record:
    def brief(role: Record) -> Record:
        return {"id": role["id"], "name": role["name"], "links": {"self": f"{call.context.url}/roles/{role['id']}"}}

    return {"prior_role": brief(prior), "implies": [brief(role) for role in implied]}


async def inferences(call: IdentityCall) -> Response:
    call.require(call.may_read())

    def work(tx: Tx) -> list[Record]:
        known = {role["id"]: role for role in store.find(tx, "roles", {})}
        pairs = role_grants.implications(tx).items()
        return [_pair(call, known[prior], [known[one] for one in implied]) for prior, implied in pairs]

    links = {"self": f"{call.context.url}/role_inferences"}
    return json_response({"role_inferences": await call.context.read(work), "links": links})


async def implied(call: IdentityCall) -> Response:
    call.require(call.may_read())

    def work(tx: Tx) -> Record:
        prior = store.need(tx, "roles", call.path("id"), "role")
        ids = role_grants.implications(tx).get(prior["id"], [])
        return _pair(call, prior, store.find(tx, "roles", {}, ids=ids))

    links = {"self": f"{call.context.url}/roles/{call.path('id')}/implies"}
    return json_response({"role_inference": await call.context.read(work), "links": links})


async def imply(call: IdentityCall) -> Response:
    call.require(call.has("admin"))

    def work(tx: Tx) -> Record:
        prior = store.need(tx, "roles", call.path("id"), "role")
        other = store.need(tx, "roles", call.path("implied"), "role")
        if other["name"] == "admin":
            raise Forbidden("The role admin cannot be an implied role.")
        if other["domain_id"] and not prior["domain_id"]:
            raise Forbidden("A global role cannot imply a role of a domain.")
        role_grants.imply(tx, prior["id"], other["id"])
        pair = _pair(call, prior, [other])
        return {"prior_role": pair["prior_role"], "implies": pair["implies"][0]}

    links = {"self": f"{call.context.url}/roles/{call.path('id')}/implies/{call.path('implied')}"}
    return json_response({"role_inference": await call.context.write(work), "links": links}, 201)


async def implication(call: IdentityCall) -> Response:
    call.require(call.may_read())

    def work(tx: Tx) -> Record:
        prior = store.need(tx, "roles", call.path("id"), "role")
        other = store.need(tx, "roles", call.path("implied"), "role")
        if other["id"] not in role_grants.implications(tx).get(prior["id"], []):
            raise NotFound(f"{prior['id']} does not imply {other['id']}.")
        pair = _pair(call, prior, [other])
        return {"prior_role": pair["prior_role"], "implies": pair["implies"][0]}

    found = await call.context.read(work)
    links = {"self": f"{call.context.url}/roles/{call.path('id')}/implies/{call.path('implied')}"}
    return (
        empty_response() if call.request.method == "HEAD" else json_response({"role_inference": found, "links": links})
    )


async def unimply(call: IdentityCall) -> Response:
    """Remove an implied role. Raises NotFound when the role does not imply it."""
    call.require(call.has("admin"))
    if not await call.context.write(lambda tx: role_grants.unimply(tx, call.path("id"), call.path("implied"))):
        raise NotFound(f"{call.path('id')} does not imply {call.path('implied')}.")
    return empty_response()


async def limit_model(call: IdentityCall) -> Response:
    said = "Limit enforcement and validation does not take project hierarchy into consideration."
    return json_response({"model": {"name": "flat", "description": said}})


def _own_project(call: IdentityCall, row: Record) -> bool:
    mine = call.claims.scope == "project" and call.claims.scope_id == row["id"]
    return mine or call.may_read(row["domain_id"])


def _own_limit(call: IdentityCall, row: Record) -> bool:
    return call.may_read() or (
        bool(call.claims.scope) and call.claims.scope_id in {row["project_id"], row["domain_id"]}
    )


def _own_domain(call: IdentityCall, row: Record) -> bool:
    return call.may_read(row["id"]) or call.standing.user_domain["id"] == row["id"]


ROUTES: Routes = {
    "limits/model": {"GET": limit_model},
    "projects/{id}/tags": {"GET": tags, "PUT": tags_replace, "DELETE": tags_clear},
    "projects/{id}/tags/{tag}": {"GET": tag_check, "PUT": tag_add, "DELETE": tag_drop},
    "role_inferences": {"GET": inferences},
    "roles/{id}/implies": {"GET": implied},
    "roles/{id}/implies/{implied}": {"PUT": imply, "GET": implication, "DELETE": unimply},
    **plain(
        schemas.PROJECT,
        Ways(
            prepare=_prepare_project,
            check=_check_project,
            before_delete=_before_project,
            may_see=_own_project,
            of_domain=True,
            keep=hierarchy.tagged,
            more=hierarchy.relatives,
        ),
    ),
    **plain(schemas.DOMAIN, Ways(prepare=_prepare_domain, before_delete=_before_domain, may_see=_own_domain)),
    **plain(
        schemas.ROLE,
        Ways(
            prepare=_prepare_role,
            may_see=lambda call, row: call.may_read() or (call.has("manager") and not row["domain_id"]),
            may_list=lambda call: call.may_read() or call.has("manager"),
        ),
    ),
    **plain(
        schemas.REGION,
        Ways(before_delete=_before_region, may_see=lambda c, r: True, may_list=lambda c: True),
    ),
    **plain(schemas.SERVICE, Ways(before_delete=_before_service)),
    **plain(schemas.ENDPOINT, Ways(prepare=_prepare_endpoint, check=_check_endpoint)),
    **plain(schemas.POLICY, Ways()),
    **plain(
        schemas.REGISTERED_LIMIT,
        Ways(
            check=_check_registered_limit,
            before_delete=_before_registered_limit,
            may_see=lambda call, row: True,
            may_list=lambda call: True,
        ),
    ),
    **plain(schemas.LIMIT, Ways(check=_check_limit, may_see=_own_limit, may_list=lambda call: True)),
}
