"""`/os-aggregates` and its actions; `/os-availability-zone`."""

import uuid
from typing import Annotated

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Uuid
from moorage.api.compute.server_lookup import service_of
from moorage.api.compute.service_proxy import images_of
from moorage.api.host_view import every_host, host_named, is_up, zone_of, zones_of
from moorage.api.routes import Params, Route
from moorage.api.schema import Body, Name, ZoneName
from moorage.api.timestamps import micros, now_us
from moorage.bus.agent_calls import HostAddress
from moorage.model.aggregate import ZONE_KEY, Aggregate
from moorage.model.errors import Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.operations.records import aggregates as writes
from moorage.store.region import aggregates as reads
from moorage.store.region import conductors

RULE = "os_compute_api:os-aggregates:"
ZONES = "os_compute_api:os-availability-zone:"
INTERNAL_ZONE = "internal"
IMAGES_MAX = 100
"""Of one request to keep images."""
UNSET = msgspec.UNSET
UnsetType = msgspec.UnsetType


class NewAggregate(Body):
    name: Name
    availability_zone: ZoneName | None = None


class CreateAggregateBody(Body):
    aggregate: NewAggregate


class ChangedAggregate(Body):
    name: Name | UnsetType = UNSET
    availability_zone: ZoneName | UnsetType | None = UNSET


class UpdateAggregateBody(Body):
    aggregate: ChangedAggregate


class OneHost(Body):
    host: str


class AddHostBody(Body):
    add_host: OneHost


class RemoveHostBody(Body):
    remove_host: OneHost


class AggregateMetadata(Body):
    metadata: dict[str, str | None]


class WantedImage(Body):
    id: Uuid


class CacheBody(Body):
    cache: Annotated[list[WantedImage], Meta(min_length=1, max_length=IMAGES_MAX)]


class SetMetadataBody(Body):
    set_metadata: AggregateMetadata


async def _changed(call: AnyCall, aggregate: Aggregate | None = None) -> Response:
    """Show the change to this process's scheduler at once; other processes read aggregates every few seconds."""
    if call.context.reload_aggregates is not None:
        await call.context.reload_aggregates()
    return Response(200) if aggregate is None else Response(body={"aggregate": _shown(aggregate)})


def _shown(aggregate: Aggregate) -> JsonObject:
    return {
        "id": aggregate.number,
        "uuid": aggregate.id,
        "name": aggregate.name,
        "availability_zone": aggregate.zone,
        "hosts": list(aggregate.hosts),
        "metadata": dict(aggregate.metadata),
        "created_at": micros(aggregate.created_at),
        "updated_at": micros(aggregate.updated_at),
        "deleted": False,
        "deleted_at": None,
    }


def _number(call: AnyCall) -> int:
    number_text = call.path["id"]
    if not number_text.removeprefix("-").isdecimal() or len(number_text) > 18:
        raise Invalid(f"id must be an integer, not {number_text[:64]}")
    return int(number_text)


async def _must_be_there(call: AnyCall) -> None:
    """Check first that the aggregate exists, before other errors. Raises NotFound."""
    number = _number(call)
    await call.context.region.read(lambda tx: reads.get(tx, number))


async def index(call: Call[None]) -> Response:
    call.require(RULE + "index", {})
    aggregates = await call.context.region.read(reads.every)
    return Response(body={"aggregates": [_shown(each) for each in aggregates]})


async def show(call: Call[None]) -> Response:
    call.require(RULE + "show", {})
    number = _number(call)
    return Response(body={"aggregate": _shown(await call.context.region.read(lambda tx: reads.get(tx, number)))})


async def create(call: Call[CreateAggregateBody]) -> Response:
    call.require(RULE + "create", {})
    fields = call.body.aggregate
    metadata = {ZONE_KEY: str(fields.availability_zone)} if fields.availability_zone is not None else {}
    new = Aggregate(0, str(uuid.uuid4()), str(fields.name), metadata, (), now_us(call.context.clock))
    shown = _shown(await writes.create(call.context.region, new))
    del shown["hosts"], shown["metadata"]
    return Response(body={"aggregate": shown})


async def update(call: Call[UpdateAggregateBody]) -> Response:
    """Change an aggregate's name or zone.

    Raises Invalid for an empty change, and for a zone that its hosts do not allow.
    """
    call.require(RULE + "update", {})
    fields = call.body.aggregate
    if fields.name is UNSET and fields.availability_zone is UNSET:
        raise Invalid("Invalid input for field/attribute aggregate. Value: {}. 'name' is a required property")
    metadata: dict[str, str | None] = {}
    if not isinstance(fields.availability_zone, UnsetType):
        if fields.availability_zone is None:
            await _must_be_there(call)
            reason = "does not support empty named availability zone"
            raise Invalid(f"Cannot update aggregate {call.path['id']}. Reason: Aggregate {call.path['id']} {reason}.")
        metadata[ZONE_KEY] = str(fields.availability_zone)
    name = None if isinstance(fields.name, UnsetType) else str(fields.name)
    changed = await writes.update(
        call.context.region, call.context.cells, _number(call), now_us(call.context.clock), name=name, metadata=metadata
    )
    return await _changed(call, changed)


async def delete(call: Call[None]) -> Response:
    call.require(RULE + "delete", {})
    await writes.delete(call.context.region, _number(call))
    return await _changed(call)


async def add_host(call: Call[AddHostBody]) -> Response:
    """Add a host to an aggregate. Raises NotFound when no compute service runs on that host."""
    call.require(RULE + "add_host", {})
    number, name = _number(call), call.body.add_host.host
    try:
        await host_named(call, name)
    except NotFound as failure:
        raise NotFound(f"Compute host {name} could not be found.") from failure
    changed = await writes.add_host(call.context.region, call.context.cells, number, name, now_us(call.context.clock))
    return await _changed(call, changed)


async def remove_host(call: Call[RemoveHostBody]) -> Response:
    call.require(RULE + "remove_host", {})
    number, name = _number(call), call.body.remove_host.host
    changed = await writes.remove_host(
        call.context.region, call.context.cells, number, name, now_us(call.context.clock)
    )
    return await _changed(call, changed)


async def set_metadata(call: Call[SetMetadataBody]) -> Response:
    """Set and remove metadata of an aggregate. Raises Invalid for an empty zone name, and for keys that are too long."""
    call.require(RULE + "set_metadata", {})
    metadata = call.body.set_metadata.metadata
    for key, value in metadata.items():
        if not 1 <= len(key) <= 255 or (value is not None and len(value) > 255):
            raise Invalid(f"Invalid input for field/attribute metadata. Value: {metadata}. '{key[:64]}' is too long")
    if ZONE_KEY in metadata and not metadata[ZONE_KEY]:  # null, too: a zone is not taken away
        await _must_be_there(call)
        raise Invalid(
            f"Cannot update metadata of aggregate {call.path['id']}. Reason: Aggregate does not support empty named "
            "availability zone."
        )
    changed = await writes.update(
        call.context.region, call.context.cells, _number(call), now_us(call.context.clock), metadata=metadata
    )
    return await _changed(call, changed)


async def images(call: Call[CacheBody]) -> Response:
    """Let the hosts that are up and enabled fetch images in the background; every image is looked up first.

    Raises Invalid for images that are named twice or do not exist.
    """
    call.require("compute:aggregates:images", {})
    number, wanted = _number(call), [each.id for each in call.body.cache]
    if len(set(wanted)) < len(wanted):
        raise Invalid("Duplicate images in request")
    aggregate = await call.context.region.read(lambda tx: reads.get(tx, number))
    for image in wanted:
        try:
            await images_of(call).show(image, call.token)
        except NotFound as missing:
            raise Invalid(missing.public) from missing
    hosts, _ = await every_host(call)
    willing = [each for each in hosts if each.host in aggregate.hosts and is_up(call, each) and not each.disabled]
    service_of(call).cache_images([HostAddress(each.cell, each.host) for each in willing], wanted)
    return Response(202)


# ------------------------------------------------------------------------------------------------ zones


async def zones(call: Call[None]) -> Response:
    call.require(ZONES + "list", {})
    hosts, _ = await every_host(call)
    by_host = await zones_of(call)
    enabled = {zone_of(call, host, by_host) for host in hosts if not host.disabled}
    disabled = {zone_of(call, host, by_host) for host in hosts} - enabled
    rows = [
        {"zoneName": name, "zoneState": {"available": available}, "hosts": None}
        for names, available in ((enabled, True), (disabled, False))
        for name in sorted(names)
    ]
    return Response(body={"availabilityZoneInfo": rows})


async def zones_detail(call: Call[None]) -> Response:
    call.require(ZONES + "detail", {})
    hosts, _ = await every_host(call)
    by_host = await zones_of(call)
    dispatcher = await call.context.region.read(conductors.listed)
    inside = {
        name: {
            binary: {"available": True, "active": True, "updated_at": micros(int((until_s - conductors.LEASE_S) * 1e6))}
            for binary in ("nova-conductor", "nova-scheduler")
        }
        for name, lives, until_s in dispatcher
        if lives
    }
    enabled: dict[str, JsonObject] = {}
    for host in hosts:
        if not host.disabled:
            state = {"available": is_up(call, host), "active": True, "updated_at": micros(host.seen_at)}
            enabled.setdefault(zone_of(call, host, by_host), {})[host.host] = {"nova-compute": state}
    disabled = {zone_of(call, host, by_host) for host in hosts} - enabled.keys()
    rows: list[JsonObject] = (
        [{"zoneName": INTERNAL_ZONE, "zoneState": {"available": True}, "hosts": inside}] if inside else []
    )
    rows += [{"zoneName": name, "zoneState": {"available": True}, "hosts": enabled[name]} for name in sorted(enabled)]
    rows += [{"zoneName": name, "zoneState": {"available": False}, "hosts": None} for name in sorted(disabled)]
    return Response(body={"availabilityZoneInfo": rows})


_ACTION = "/os-aggregates/{id}/action"
ROUTES = (
    Route("GET", "/os-aggregates", index),
    Route("POST", "/os-aggregates", create, takes=CreateAggregateBody),
    Route("GET", "/os-aggregates/{id}", show),
    Route("PUT", "/os-aggregates/{id}", update, takes=UpdateAggregateBody),
    Route("DELETE", "/os-aggregates/{id}", delete),
    Route("POST", _ACTION, add_host, takes=AddHostBody, action="add_host"),
    Route("POST", _ACTION, remove_host, takes=RemoveHostBody, action="remove_host"),
    Route("POST", _ACTION, set_metadata, takes=SetMetadataBody, action="set_metadata"),
    Route("POST", "/os-aggregates/{id}/images", images, takes=CacheBody),
    Route("GET", "/os-availability-zone", zones, params=Params()),
    Route("GET", "/os-availability-zone/detail", zones_detail, params=Params()),
)
