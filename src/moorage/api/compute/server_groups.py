"""`/os-server-groups`: servers that want to be together, or apart."""

import uuid
from collections.abc import Mapping
from typing import ClassVar, Literal

from moorage.api.call import AnyCall, Call, Response
from moorage.api.routes import LIMIT, TEXT, Params, Route
from moorage.api.schema import Body, Name, Positive
from moorage.api.timestamps import now_us
from moorage.model.errors import Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.model.quota import count_limit
from moorage.model.server_group import ServerGroup
from moorage.model.unified_limits import UnifiedLimits
from moorage.operations.records import server_groups as writes
from moorage.store.region import quotas, user_quotas
from moorage.store.region import server_groups as reads

RULE = "os_compute_api:os-server-groups:"


class Rules(Body):
    never_null: ClassVar[Mapping[str, str]] = {"max_server_per_host": "'integer', 'string'"}

    max_server_per_host: Positive | None = None


class NewGroup(Body):
    never_null: ClassVar[Mapping[str, str]] = {"rules": "'object'"}

    name: Name
    policy: Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]
    rules: Rules | None = None


class CreateServerGroupBody(Body):
    server_group: NewGroup


def _shown(group: ServerGroup) -> JsonObject:
    return {
        "id": group.id,
        "name": group.name,
        "policy": group.policy,
        "rules": {} if group.max_per_host is None else {"max_server_per_host": group.max_per_host},
        "members": list(group.members),
        "project_id": group.project,
        "user_id": group.user,
    }


async def create(call: Call[CreateServerGroupBody]) -> Response:
    """Make a server group. Raises Invalid when a policy other than anti-affinity has rules."""
    call.require(RULE + "create", {"project_id": call.principal.project})
    project = call.project
    new = call.body.server_group
    most_per_host = None if new.rules is None else new.rules.max_server_per_host
    if most_per_host is not None and new.policy != "anti-affinity":
        raise Invalid("Only anti-affinity policy supports rules.")
    user, config = call.principal.user, await call.context.limits_of(project)
    limits, own = await call.context.region.read(
        lambda tx: (
            quotas.limits(tx, project, config),
            {} if isinstance(config, UnifiedLimits) else user_quotas.own_limits(tx, project, user),
        )
    )
    group = ServerGroup(
        id=str(uuid.uuid4()),
        name=str(new.name),
        project=project,
        user=call.principal.user,
        policy=new.policy,
        max_per_host=None if most_per_host is None else int(most_per_host),
        created_at=now_us(call.context.clock),
    )
    await writes.create(
        call.context.region, group, count_limit(config, "server_groups", limits), own.get("server_groups")
    )
    return Response(body={"server_group": _shown(group)})


async def index(call: Call[None]) -> Response:
    call.require(RULE + "index", {"project_id": call.principal.project})
    project: str | None = call.project
    if call.first("all_projects") is not None and call.is_admin:
        call.require(RULE + "index:all_projects", {"project_id": project})
        project = None
    limit, _ = call.page()
    limit = limit or call.context.config.page_max_rows
    offset = call.number("offset")
    groups = await call.context.region.read(lambda tx: reads.listed(tx, project, limit, offset))
    return Response(body={"server_groups": [_shown(group) for group in groups]})


async def _find(call: AnyCall, rule: str) -> ServerGroup:
    group = await call.context.region.read(lambda tx: reads.get(tx, call.path["id"]))
    if group is None:
        raise NotFound(f"Instance group {call.path['id']} could not be found.")
    call.require(RULE + rule, {"project_id": group.project})
    return group


async def show(call: Call[None]) -> Response:
    return Response(body={"server_group": _shown(await _find(call, "show"))})


async def delete(call: Call[None]) -> Response:
    group = await _find(call, "delete")
    await writes.delete(call.context.region, group.id)
    return Response(204)


ROUTES = (
    Route(
        "GET",
        "/os-server-groups",
        index,
        params=Params({"all_projects": TEXT, "limit": LIMIT, "offset": LIMIT}, strict=(2, 75)),
    ),
    Route("POST", "/os-server-groups", create, takes=CreateServerGroupBody),
    Route("GET", "/os-server-groups/{id}", show),
    Route("DELETE", "/os-server-groups/{id}", delete),
)
