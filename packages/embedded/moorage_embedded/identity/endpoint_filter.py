"""`/v3/OS-EP-FILTER`: groups of endpoints, and the projects whose catalog is limited to some of them."""

import uuid
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import associations, schemas, store
from moorage_embedded.identity.associations import ENDPOINTS, GROUPS
from moorage_embedded.identity.request import IdentityCall, Routes, listed, listing
from moorage_embedded.identity.resources import INTERFACES
from moorage_embedded.identity.schemas import TEXT_MAX_CHARS
from moorage_embedded.identity.store import Record

FILTERS = ("service_id", "region_id", "interface")
GROUPS_MAX = 1000
OF_A_PROJECT_MAX = 1000
"""Associations of one kind that a project may have."""
PREFIX = "/v3/OS-EP-FILTER"
WORD = "Endpoint Group"


def _filters(said: Any) -> Record:
    """What an endpoint must be to be in the group. Raises Invalid."""
    if not isinstance(said, dict):
        raise Invalid("Invalid input for field 'filters': it must be an object.")
    found: Record = {}
    for name, value in said.items():
        if name not in FILTERS:
            raise Invalid(
                f"Expecting to find {' or '.join(FILTERS)} in endpoint_group. The server could not comply with the request"
                " since it is either malformed or otherwise incorrect. The client is assumed to be in error."
            )
        if not (isinstance(value, str) and len(value) <= 255) and not (value is None and name == "region_id"):
            raise Invalid(f"Invalid input for field '{name}': it must be a string of at most 255 characters.")
        if name == "interface" and value not in INTERFACES:
            raise Invalid(f"Invalid input for field 'interface': it is not one of {sorted(INTERFACES)}.")
        found[name] = value
    return found


def _checked(said: Record) -> Record:
    """The columns that a body names. Raises Invalid."""
    for name in said:
        if name not in {"name", "description", "filters"}:
            raise Invalid(f"Invalid input for field 'endpoint_group': '{name[:100]}' is not one of its properties.")
    values = dict(said)
    name, description = said.get("name", "some"), said.get("description")
    if not isinstance(name, str) or not name.strip() or len(name) > 255:
        raise Invalid("Invalid input for field 'name': it must be a string of 1 to 255 characters.")
    if description is not None and (not isinstance(description, str) or len(description) > TEXT_MAX_CHARS):
        raise Invalid(
            f"Invalid input for field 'description': it must be a string of at most {TEXT_MAX_CHARS} characters."
        )
    if "filters" in said:
        values["filters"] = _filters(said["filters"])
    return values


def _linked(call: IdentityCall, row: Record) -> Record:
    return {**row, "links": {"self": f"{call.context.url}/OS-EP-FILTER/endpoint_groups/{row['id']}"}}


def _group(tx: Tx, call: IdentityCall) -> Record:
    return store.need(tx, "endpoint_groups", call.path("group"), WORD)


async def create(call: IdentityCall) -> Response:
    """Create an endpoint group. Raises Invalid for missing fields, Conflict when there are too many."""
    call.require(call.has("admin"))
    said = await call.body("endpoint_group")
    if "name" not in said:
        raise Invalid("Invalid input for field 'endpoint_group': 'name' is a required property.")
    values = _checked(said)
    if not values.get("filters"):
        raise Invalid("filters field is required and cannot be empty")
    row: Record = {"id": uuid.uuid4().hex, "description": None, **values}

    def work(tx: Tx) -> None:
        if len(store.find(tx, "endpoint_groups", {})) >= GROUPS_MAX:
            raise Conflict(f"There are at most {GROUPS_MAX} endpoint groups.")
        store.insert(tx, "endpoint_groups", row, WORD)

    await call.context.write(work)
    return json_response({"endpoint_group": _linked(call, row)}, 201)


async def index(call: IdentityCall) -> Response:
    """List endpoint groups. Raises Invalid for unknown query parameters."""
    call.require(call.may_read())
    for unknown in set(call.request.query_params) - {"name"}:
        raise Invalid(f"Additional properties are not allowed ('{unknown[:100]}' was unexpected)")
    name = call.query("name")
    rows = await call.context.read(lambda tx: store.find(tx, "endpoint_groups", {} if name is None else {"name": name}))
    return listing(call, "endpoint_groups", [_linked(call, row) for row in rows])


async def show(call: IdentityCall) -> Response:
    call.require(call.may_read())
    return json_response({"endpoint_group": _linked(call, await call.context.read(lambda tx: _group(tx, call)))})


async def update(call: IdentityCall) -> Response:
    """Change an endpoint group. Raises Invalid when the body changes nothing."""
    call.require(call.has("admin"))
    values = _checked(await call.body("endpoint_group"))
    if not values:
        raise Invalid("Invalid input for field 'endpoint_group': it must name what changes.")
    id_ = call.path("group")
    row = await call.context.write(lambda tx: store.change(tx, "endpoint_groups", id_, values, WORD))
    return json_response({"endpoint_group": _linked(call, row)})


async def delete(call: IdentityCall) -> Response:
    call.require(call.has("admin"))
    await call.context.write(lambda tx: store.remove(tx, "endpoint_groups", call.path("group"), WORD))
    return empty_response()


# ------------------------------------------------------------------------------------------------- who has what


def _projects(tx: Tx, table: str, equal: Record) -> list[Record]:
    ids = [row["project_id"] for row in store.find(tx, table, equal)]
    return store.find(tx, "projects", {}, ids=ids) if ids else []


async def group_endpoints(call: IdentityCall) -> Response:
    call.require(call.may_read())
    rows = await call.context.read(lambda tx: associations.in_group(tx, _group(tx, call)))
    return listed(call, schemas.ENDPOINT, rows)


async def group_projects(call: IdentityCall) -> Response:
    """Of a group that is not there: none, as Keystone says."""
    call.require(call.may_read())
    rows = await call.context.read(lambda tx: _projects(tx, GROUPS, {"endpoint_group_id": call.path("group")}))
    return listed(call, schemas.PROJECT, rows)


async def endpoint_projects(call: IdentityCall) -> Response:
    call.require(call.may_read())

    def work(tx: Tx) -> list[Record]:
        endpoint = store.need(tx, "endpoints", call.path("endpoint"), "endpoint")
        return _projects(tx, ENDPOINTS, {"endpoint_id": endpoint["id"]})

    return listed(call, schemas.PROJECT, await call.context.read(work))


async def _of_project(call: IdentityCall, find: Callable[[Tx, str], list[Record]]) -> list[Record]:
    call.require(call.may_read())
    project = call.path("project")
    return await call.context.read(lambda tx: find(tx, store.need(tx, "projects", project, "project")["id"]))


async def project_endpoints(call: IdentityCall) -> Response:
    return listed(call, schemas.ENDPOINT, await _of_project(call, associations.of_project))


async def project_groups(call: IdentityCall) -> Response:
    rows = await _of_project(call, associations.groups_of)
    return listing(call, "endpoint_groups", [_linked(call, row) for row in rows])


# ------------------------------------------------------------------------------------------------- giving and taking


def _pair(call: IdentityCall, tx: Tx) -> tuple[str, Record]:
    """The table and row that the path names; raises NotFound unless both are there."""
    if "group" in call.request.path_params:
        project = store.need(tx, "projects", call.path("project"), "project")
        return GROUPS, {"endpoint_group_id": _group(tx, call)["id"], "project_id": project["id"]}
    endpoint = store.need(tx, "endpoints", call.path("endpoint"), "endpoint")
    project = store.need(tx, "projects", call.path("project"), "project")
    return ENDPOINTS, {"endpoint_id": endpoint["id"], "project_id": project["id"]}


def _held(tx: Tx, table: str, row: Record) -> Record:
    if not store.find(tx, table, row):
        if table == GROUPS:
            raise NotFound("Endpoint Group Project Association not found")
        raise NotFound(f"Endpoint {row['endpoint_id']} not found in project {row['project_id']}")
    return row


async def add(call: IdentityCall) -> Response:
    call.require(call.has("admin"))

    def work(tx: Tx) -> None:
        table, row = _pair(call, tx)
        if store.find(tx, table, row):
            raise Conflict(f"Conflict occurred attempting to store {table.removesuffix('s')} - Duplicate entry.")
        if len(store.find(tx, table, {"project_id": row["project_id"]})) >= OF_A_PROJECT_MAX:
            raise Conflict(f"A project has at most {OF_A_PROJECT_MAX} of these.")
        store.link(tx, table, row)

    await call.context.write(work)
    return empty_response()


async def check(call: IdentityCall) -> Response:
    call.require(call.may_read())
    row = await call.context.read(lambda tx: _held(tx, *_pair(call, tx)))
    if "endpoint_id" in row:
        return empty_response()
    # Keystone's link is without the service's address here.
    here = f"/OS-EP-FILTER/endpoint_groups/{row['endpoint_group_id']}/projects/{row['project_id']}"
    return json_response({"project_endpoint_group": {**row, "links": {"self": here}}})


async def take(call: IdentityCall) -> Response:
    """An endpoint or project that is not there is just not associated."""
    call.require(call.has("admin"))

    def work(tx: Tx) -> None:
        if "group" in call.request.path_params:
            table, row = _pair(call, tx)
        else:
            table, row = ENDPOINTS, {"endpoint_id": call.path("endpoint"), "project_id": call.path("project")}
        store.unlink(tx, table, _held(tx, table, row))

    await call.context.write(work)
    return empty_response()


_PAIR = {"GET": check, "PUT": add, "DELETE": take}
_BELOW: Routes = {
    "endpoint_groups": {"POST": create, "GET": index},
    "endpoint_groups/{group}": {"GET": show, "PATCH": update, "DELETE": delete},
    "endpoint_groups/{group}/endpoints": {"GET": group_endpoints},
    "endpoint_groups/{group}/projects": {"GET": group_projects},
    "endpoint_groups/{group}/projects/{project}": _PAIR,
    "endpoints/{endpoint}/projects": {"GET": endpoint_projects},
    "projects/{project}/endpoints": {"GET": project_endpoints},
    "projects/{project}/endpoints/{endpoint}": _PAIR,
    "projects/{project}/endpoint_groups": {"GET": project_groups},
}
ROUTES: Routes = {f"OS-EP-FILTER/{path}": handlers for path, handlers in _BELOW.items()}
