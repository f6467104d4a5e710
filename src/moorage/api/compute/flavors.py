"""`/flavors`: create, list, show, describe, delete; who may use private ones."""

import re
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.routes import LIMIT, TEXT, Param, Params, Route
from moorage.api.schema import FALSE, TRUE, Body, Name, NotNegative32, NovaBool, Positive32
from moorage.api.timestamps import now_us
from moorage.api.version_changes import v2_007
from moorage.model.errors import Invalid, NotFound
from moorage.model.flavor import Flavor
from moorage.model.ids import FlavorId
from moorage.model.json_types import JsonObject
from moorage.operations.records import flavors as writes
from moorage.store.region import flavors as reads

MANAGE = "os_compute_api:os-flavor-manage:"
ACCESS = "os_compute_api:os-flavor-access"
SPECS_RULE = "os_compute_api:os-flavor-extra-specs:index"
ID_FORM = re.compile(r"^(?! )[a-zA-Z0-9. _-]+(?<! )$")
FACTOR_FORM = re.compile(r"^[0-9]+(\.[0-9]+)?$")
FACTOR_MAX = 3.40282e38
DESCRIPTION_MAX_CHARS = 65_535
SORT_KEYS: dict[str, str] = {
    "created_at": "created_at",
    "description": "description",
    "disabled": "disabled",
    "ephemeral_gb": "ephemeral_gib",
    "flavorid": "id",
    "id": "number",
    "is_public": "is_public",
    "memory_mb": "ram_mib",
    "name": "name",
    "root_gb": "disk_gib",
    "rxtx_factor": "rxtx_factor",
    "swap": "swap_mib",
    "updated_at": "updated_at",
    "vcpu_weight": "number",
    "vcpus": "vcpus",
}


class NewFlavor(Body):
    name: Name
    ram: Positive32
    vcpus: Positive32
    disk: NotNegative32
    id: str | int | float | None = None
    ephemeral: NotNegative32 = msgspec.field(name="OS-FLV-EXT-DATA:ephemeral", default=NotNegative32(0))
    swap: NotNegative32 = NotNegative32(0)
    rxtx_factor: float | str = 1.0
    is_public: NovaBool = msgspec.field(name="os-flavor-access:is_public", default_factory=lambda: NovaBool(True))
    description: str | None = None


class CreateFlavorBody(Body):
    flavor: NewFlavor


class Described(Body):
    description: str | None


class UpdateFlavorBody(Body):
    flavor: Described


class Tenant(Body):
    tenant: str


class AddAccessBody(Body):
    access: Tenant = msgspec.field(name="addTenantAccess")


class RemoveAccessBody(Body):
    access: Tenant = msgspec.field(name="removeTenantAccess")


# ------------------------------------------------------------------------------------------------ shapes


def brief(call: AnyCall, flavor: Flavor) -> JsonObject:
    return {
        "id": flavor.id,
        "name": flavor.name,
        "links": call.links(f"flavors/{flavor.id}"),
        "description": flavor.description,
    }


def full(call: AnyCall, flavor: Flavor, *, with_specs: bool) -> JsonObject:
    """All that any version shows."""
    shown: JsonObject = {
        "id": flavor.id,
        "name": flavor.name,
        "ram": flavor.ram_mib,
        "disk": flavor.disk_gib,
        "swap": flavor.swap_mib,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gib,
        "OS-FLV-DISABLED:disabled": flavor.disabled,
        "vcpus": flavor.vcpus,
        "os-flavor-access:is_public": flavor.is_public,
        "rxtx_factor": flavor.rxtx_factor,
        "links": call.links(f"flavors/{flavor.id}"),
        "description": flavor.description,
    }
    if with_specs:
        shown["extra_specs"] = dict(flavor.extra_specs)
    return shown


def _one(call: AnyCall, flavor: Flavor) -> Response:
    return Response(body={"flavor": full(call, flavor, with_specs=call.allows(SPECS_RULE))})


# ------------------------------------------------------------------------------------------------ handlers


def _printable(description: str | None) -> str | None:
    if description is None:
        return None
    if len(description) > DESCRIPTION_MAX_CHARS:
        raise Invalid("Invalid input for field/attribute description. Value: (long). It is too long")
    if not description.isprintable():
        raise Invalid(
            f"Invalid input for field/attribute description. Value: {description}. {description!r} does not match "
            "the form of printable text"
        )
    return description


def _minted(requested_id: str | float | None) -> FlavorId:
    if requested_id is None or requested_id == "":
        if requested_id == "":
            raise Invalid("Invalid input for field/attribute id. Value: . '' is too short")
        return FlavorId(str(uuid.uuid4()))
    text = str(requested_id)
    if isinstance(requested_id, str) and (len(text) > 255 or not ID_FORM.match(text)):
        raise Invalid(
            f"Invalid input for field/attribute id. Value: {text}. {text!r} does not match '{ID_FORM.pattern}'"
        )
    return FlavorId(text)


def _factor(value: str | float) -> float:
    if isinstance(value, str) and not FACTOR_FORM.match(value):
        raise Invalid(
            f"Invalid input for field/attribute rxtx_factor. Value: {value}. {value!r} does not match '{FACTOR_FORM.pattern}'"
        )
    factor = float(value)
    if not 0 < factor <= FACTOR_MAX:
        raise Invalid(
            f"Invalid input for field/attribute rxtx_factor. Value: {value}. {value!r} is not above 0 and up to {FACTOR_MAX}"
        )
    return factor


async def create(call: Call[CreateFlavorBody]) -> Response:
    fields = call.body.flavor
    new = Flavor(
        number=0,
        id=_minted(fields.id),
        name=str(fields.name),
        vcpus=int(fields.vcpus),
        ram_mib=int(fields.ram),
        disk_gib=int(fields.disk),
        ephemeral_gib=int(fields.ephemeral),
        swap_mib=int(fields.swap),
        rxtx_factor=_factor(fields.rxtx_factor),
        is_public=bool(fields.is_public),
        description=_printable(fields.description),
        created_at=now_us(call.context.clock),
    )
    call.require(MANAGE + "create", {})
    return _one(call, await writes.create(call.context.region, new))


async def update(call: Call[UpdateFlavorBody]) -> Response:
    call.require(MANAGE + "update", {})
    description = _printable(call.body.flavor.description)
    now = now_us(call.context.clock)
    return _one(call, await writes.describe(call.context.region, call.path["id"], description, now))


async def delete(call: Call[None]) -> Response:
    call.require(MANAGE + "delete", {})
    await writes.delete(call.context.region, call.path["id"])
    return Response(202)


async def find(call: AnyCall, flavor: str) -> Flavor:
    """The flavor if the caller may see it.  Raises NotFound."""
    return await call.context.region.read(
        lambda tx: reads.visible(tx, flavor, project=call.principal.project, everything=call.is_admin)
    )


async def show(call: Call[None]) -> Response:
    return _one(call, await find(call, call.path["id"]))


def _wanted_publicity(call: Call[None]) -> bool | None:
    """Administrators may ask for public, private (False) or all (None) flavors."""
    text = call.first("is_public")
    if text is None:
        return True
    if text.strip().lower() in {"none", ""}:
        return None
    if text.lower() in {each.lower() for each in TRUE} | {"t", "y"}:
        return True
    if text.lower() in {each.lower() for each in FALSE} | {"f", "n"}:
        return False
    raise Invalid(f"Invalid is_public filter [{text}]")


def _least(call: Call[None], name: str) -> int:
    text = call.first(name)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError as failure:
        raise Invalid(f"Invalid {name} filter [{text}]") from failure


def _passes(call: Call[None], flavors: Sequence[Flavor]) -> list[Flavor]:
    project = call.principal.project
    wanted = _wanted_publicity(call) if call.is_admin else True
    if wanted is None:
        kept = list(flavors)
    elif wanted:
        kept = [each for each in flavors if each.usable_by(project)]
    else:
        kept = [each for each in flavors if not each.is_public]
    if not call.is_admin:
        kept = [each for each in kept if not each.disabled]
    ram, disk, name = _least(call, "minRam"), _least(call, "minDisk"), call.first("name")
    return [
        each for each in kept if each.ram_mib >= ram and each.disk_gib >= disk and (name is None or each.name == name)
    ]


def _sorted(call: Call[None], flavors: list[Flavor]) -> list[Flavor]:
    key = SORT_KEYS[call.first("sort_key") or "flavorid"]

    def rank(flavor: Flavor) -> tuple[Any, ...]:
        value = getattr(flavor, key)
        return (value is not None, value if value is not None else 0, flavor.number)

    return sorted(flavors, key=rank, reverse=call.first("sort_dir") == "desc")


async def _page(call: Call[None]) -> tuple[list[Flavor], int]:
    limit, marker = call.page()
    flavors = _sorted(call, _passes(call, await call.context.region.read(reads.every)))
    if marker is not None:
        at = next((index for index, each in enumerate(flavors) if each.id == marker), None)
        if at is None:
            raise Invalid(f"marker [{marker}] not found")
        flavors = flavors[at + 1 :]
    return flavors[:limit], limit


def _listed(call: Call[None], path: str, rows: list[JsonObject], limit: int) -> Response:
    body: JsonObject = {"flavors": rows}
    if rows and (links := call.next_links(path, rows, rows[-1]["id"], limit)):
        body["flavors_links"] = links
    return Response(body=body)


async def index(call: Call[None]) -> Response:
    flavors, limit = await _page(call)
    return _listed(call, "flavors", [brief(call, each) for each in flavors], limit)


async def detail(call: Call[None]) -> Response:
    flavors, limit = await _page(call)
    with_specs = call.allows(SPECS_RULE)
    return _listed(call, "flavors/detail", [full(call, each, with_specs=with_specs) for each in flavors], limit)


# ------------------------------------------------------------------------------------------------ access


def _access(flavor: Flavor) -> Response:
    rows = [{"flavor_id": flavor.id, "tenant_id": project} for project in flavor.projects]
    return Response(body={"flavor_access": rows})


async def access(call: Call[None]) -> Response:
    """List the projects that may use a private flavor. Raises NotFound for a public flavor."""
    flavor = await find(call, call.path["id"])
    if flavor.is_public:
        raise NotFound("Access list not available for public flavors.")
    return _access(flavor)


async def _known_project(call: AnyCall, project: str) -> str:
    """A project that identity knows (when there is an identity client to ask).  Raises Invalid."""
    if not 1 <= len(project) <= 255:
        raise Invalid(f"Invalid input for field/attribute tenant. Value: {project}. It must have 1 to 255 characters")
    exists = call.context.project_exists
    if exists is not None and not await exists(project, call.token):
        raise Invalid(f"Project ID {project} is not a valid project.")
    return project


async def add_access(call: Call[AddAccessBody]) -> Response:
    call.require(ACCESS + ":add_tenant_access", {})
    project = await _known_project(call, call.body.access.tenant)
    refuse_public = call.version >= v2_007.PUBLIC_FLAVORS_REFUSED
    now = now_us(call.context.clock)
    return _access(
        await writes.open_to(call.context.region, call.path["id"], project, now, refuse_public=refuse_public)
    )


async def remove_access(call: Call[RemoveAccessBody]) -> Response:
    call.require(ACCESS + ":remove_tenant_access", {})
    now = now_us(call.context.clock)
    return _access(await writes.close_to(call.context.region, call.path["id"], call.body.access.tenant, now))


_SORT_FORM = "^(" + "|".join(SORT_KEYS) + ")$"
LISTING = Params(
    {
        "limit": LIMIT,
        "marker": TEXT,
        "is_public": TEXT,
        "minRam": TEXT,
        "minDisk": TEXT,
        "sort_key": Param(form=_SORT_FORM),
        "sort_dir": Param(form="^(asc|desc)$"),
        "name": Param(since=(2, 102)),
    },
    strict=(2, 75),
)

ROUTES = (
    Route("GET", "/flavors", index, params=LISTING),
    Route("GET", "/flavors/detail", detail, params=LISTING),
    Route("POST", "/flavors", create, takes=CreateFlavorBody),
    Route("GET", "/flavors/{id}", show),
    Route("PUT", "/flavors/{id}", update, takes=UpdateFlavorBody),
    Route("DELETE", "/flavors/{id}", delete),
    Route("GET", "/flavors/{id}/os-flavor-access", access, rule=ACCESS),
    Route("POST", "/flavors/{id}/action", add_access, takes=AddAccessBody, action="addTenantAccess"),
    Route("POST", "/flavors/{id}/action", remove_access, takes=RemoveAccessBody, action="removeTenantAccess"),
)
