"""`/limits`, `/os-quota-sets` and `/os-quota-class-sets`: what a project may have, and has.

While the identity service's limits hold, these show them, and as in Nova's driver a change is accepted and changes nothing.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from moorage.api.call import AnyCall, Call, Response
from moorage.api.routes import TEXT, Params, Route
from moorage.api.schema import Body, Limit32, NovaBool
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.model.quota import DEFAULT_LIMITS
from moorage.model.unified_limits import UnifiedLimits
from moorage.operations.records import quotas as writes
from moorage.store.region import quotas as reads

SETS = "os_compute_api:os-quota-sets:"
CLASSES = "os_compute_api:os-quota-class-sets:"
LIMITS = "os_compute_api:limits"
CLASS_NAME_MAX_CHARS = 255


class QuotaLimits(Body):
    """Every resource, as any version names them."""

    instances: Limit32 | None = None
    cores: Limit32 | None = None
    ram: Limit32 | None = None
    fixed_ips: Limit32 | None = None
    floating_ips: Limit32 | None = None
    metadata_items: Limit32 | None = None
    injected_files: Limit32 | None = None
    injected_file_content_bytes: Limit32 | None = None
    injected_file_path_bytes: Limit32 | None = None
    key_pairs: Limit32 | None = None
    security_groups: Limit32 | None = None
    security_group_rules: Limit32 | None = None
    server_groups: Limit32 | None = None
    server_group_members: Limit32 | None = None

    never_null: ClassVar[Mapping[str, str]] = dict.fromkeys(DEFAULT_LIMITS, "'integer', 'string'")

    def given(self) -> dict[str, int]:
        values = ((name, getattr(self, name)) for name in DEFAULT_LIMITS)
        return {name: int(value) for name, value in values if value is not None}


class ForcibleLimits(QuotaLimits):
    force: NovaBool = NovaBool(False)


class UpdateQuotaBody(Body):
    quota_set: ForcibleLimits


class UpdateClassBody(Body):
    quota_class_set: QuotaLimits


def _in_order(limits: Mapping[str, Any]) -> JsonObject:
    return {name: limits[name] for name in DEFAULT_LIMITS}


async def _project(call: AnyCall) -> str:
    """The project of the path, if identity knows it (when there is an identity client to ask)."""
    project = call.path["id"]
    exists = call.context.project_exists
    if exists is not None and not await exists(project, call.token):
        raise Invalid(f"Project ID {project} is not a valid project.")
    return project


def _user(call: AnyCall) -> str | None:
    """The user whose limits are meant; None: those of the project."""
    return call.first("user_id") or None


# ------------------------------------------------------------------------------------------------ quota sets


async def _limits(call: AnyCall, project: str, user: str | None) -> dict[str, int]:
    config = await call.context.limits_of(project)
    if isinstance(config, UnifiedLimits):
        return config.shown(DEFAULT_LIMITS)
    return await call.context.region.read(
        lambda tx: reads.user_limits(tx, project, user, config) if user else reads.limits(tx, project, config)
    )


async def _class_limits(call: AnyCall, name: str) -> dict[str, int]:
    """The identity service knows one class: its registered limits."""
    config = await call.context.limits_of("")
    if isinstance(config, UnifiedLimits):
        return config.shown(DEFAULT_LIMITS, defaults=True)
    return await call.context.region.read(lambda tx: reads.class_limits(tx, name, config))


async def show(call: Call[None]) -> Response:
    call.require(SETS + "show", {"project_id": call.path["id"]})
    project = await _project(call)
    limits = await _limits(call, project, _user(call))
    return Response(body={"quota_set": {"id": project, **_in_order(limits)}})


async def detail(call: Call[None]) -> Response:
    call.require(SETS + "detail", {"project_id": call.path["id"]})
    project, user = await _project(call), _user(call)
    limits = await _limits(call, project, user)
    if user is None or call.context.unified_limits is not None:
        used = await call.context.region.read(lambda tx: writes.used_of(tx, project))
    else:
        used = await writes.used_by(call.context.region, call.context.cells, project, user)
    rows = {name: {"limit": limits[name], "in_use": used.get(name, 0), "reserved": 0} for name in DEFAULT_LIMITS}
    return Response(body={"quota_set": {"id": project, **rows}})


async def defaults(call: Call[None]) -> Response:
    call.require(SETS + "defaults", {"project_id": call.path["id"]})
    project = await _project(call)
    limits = await _class_limits(call, reads.DEFAULT_CLASS)
    return Response(body={"quota_set": {"id": project, **_in_order(limits)}})


async def update(call: Call[UpdateQuotaBody]) -> Response:
    call.require(SETS + "update", {"project_id": call.path["id"]})
    project, user = await _project(call), _user(call)
    quotas, region, config = call.body.quota_set, call.context.region, call.context.config.quotas
    given, force = quotas.given(), bool(quotas.force)
    unified = call.context.unified_limits is not None
    if not unified and user is None:
        await writes.set_limits(region, project, given, force=force, defaults=config)
    elif not unified and user is not None:
        cells = call.context.cells
        await writes.set_user_limits(region, cells, project, user, given, force=force, defaults=config)
    return Response(body={"quota_set": _in_order(await _limits(call, project, user))})


async def delete(call: Call[None]) -> Response:
    call.require(SETS + "delete", {"project_id": call.path["id"]})
    user = _user(call)
    if call.context.unified_limits is not None:
        return Response(202)
    if user is None:
        await writes.forget_limits(call.context.region, call.path["id"])
    else:
        await writes.forget_user_limits(call.context.region, call.path["id"], user)
    return Response(202)


# ------------------------------------------------------------------------------------------------ classes


async def show_class(call: Call[None]) -> Response:
    call.require(CLASSES + "show", {})
    name = call.path["id"]
    limits = await _class_limits(call, name)
    return Response(body={"quota_class_set": {"id": name, **_in_order(limits)}})


async def update_class(call: Call[UpdateClassBody]) -> Response:
    """Change the default quotas (quota class). Raises Invalid for a name that is too long."""
    call.require(CLASSES + "update", {})
    name = call.path["id"]
    if len(name) > CLASS_NAME_MAX_CHARS:
        raise Invalid(f"quota_class_name has {len(name)} characters, more than {CLASS_NAME_MAX_CHARS}.")
    if call.context.unified_limits is None:
        await writes.set_class_limits(call.context.region, name, call.body.quota_class_set.given())
    limits = await _class_limits(call, name)
    return Response(body={"quota_class_set": _in_order(limits)})


# ------------------------------------------------------------------------------------------------ limits


async def limits(call: Call[None]) -> Response:
    call.require(LIMITS, {})
    project = call.first("tenant_id")
    if project is None:
        project = call.project
    else:
        call.require(LIMITS + ":other_project")
    whose, most = project, await _limits(call, project, None)
    used = await call.context.region.read(lambda tx: writes.used_of(tx, whose))
    absolute = {
        "maxImageMeta": most["metadata_items"],
        "maxPersonality": most["injected_files"],
        "maxPersonalitySize": most["injected_file_content_bytes"],
        "maxSecurityGroupRules": most["security_group_rules"],
        "maxSecurityGroups": most["security_groups"],
        "maxServerGroupMembers": most["server_group_members"],
        "maxServerGroups": most["server_groups"],
        "maxServerMeta": most["metadata_items"],
        "maxTotalCores": most["cores"],
        "maxTotalFloatingIps": most["floating_ips"],
        "maxTotalInstances": most["instances"],
        "maxTotalKeypairs": most["key_pairs"],
        "maxTotalRAMSize": most["ram"],
        "totalCoresUsed": used["cores"],
        "totalFloatingIpsUsed": 0,
        "totalInstancesUsed": used["instances"],
        "totalRAMUsed": used["ram"],
        "totalSecurityGroupsUsed": 0,
        "totalServerGroupsUsed": used["server_groups"],
    }
    return Response(body={"limits": {"rate": [], "absolute": absolute}})


_OF_USER = Params({"user_id": TEXT}, strict=(2, 75))

ROUTES = (
    Route("GET", "/limits", limits, params=Params({"tenant_id": TEXT}, strict=(2, 75))),
    Route("GET", "/os-quota-sets/{id}", show, params=_OF_USER),
    Route("PUT", "/os-quota-sets/{id}", update, takes=UpdateQuotaBody, params=_OF_USER),
    Route("DELETE", "/os-quota-sets/{id}", delete, params=_OF_USER),
    Route("GET", "/os-quota-sets/{id}/detail", detail, params=_OF_USER),
    Route("GET", "/os-quota-sets/{id}/defaults", defaults, params=Params(strict=None)),
    Route("GET", "/os-quota-class-sets/{id}", show_class),
    Route("PUT", "/os-quota-class-sets/{id}", update_class, takes=UpdateClassBody),
)
