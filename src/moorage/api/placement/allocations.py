"""Allocations by consumer and by provider, usages by project, and the reshaper."""

from typing import Any

from moorage.api.placement import schemas
from moorage.api.placement.http import Rep, Req, is_uuid, uuid_of
from moorage.api.placement.inventories import inventory_of
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.model.resources import AMOUNT_MAX
from moorage.placement.service import allocation_changes as writes
from moorage.placement.service.allocation_changes import WantedAllocations
from moorage.store.region.placement import provider_queries as reads

NOBODY = "00000000-0000-0000-0000-000000000000"
"""Project and user of consumers made before 1.8."""
TOO_MUCH = AMOUNT_MAX + 1
"""More than any inventory's `max_unit`; larger numbers need not be distinguished, and would not fit into the database."""


async def show(req: Req) -> Rep:
    consumer = req.path["consumer"]

    def read(tx: Any) -> tuple[Any, Any]:
        return reads.held_with_generations(tx, consumer), reads.consumer(tx, consumer)

    rows, owner = await req.region.read(read)
    allocations: JsonObject = {}
    for row in rows:
        provider, generation, resource, used = row[0], row[1], row[2], row[3]
        one = allocations.setdefault(provider, {"resources": {}, "generation": generation})
        one["resources"][resource] = used
    body: JsonObject = {"allocations": allocations}
    if allocations and owner is not None and req.since(12):
        body |= {"project_id": owner.project, "user_id": owner.user_id}
        if req.since(28):
            body["consumer_generation"] = owner.generation
        if req.since(38):
            body["consumer_type"] = owner.type
    return Rep(body=body, modified=None if owner is None else owner.updated_at)


async def of_provider(req: Req) -> Rep:
    provider = await req.provider(req.path["uuid"])
    rows: Any = await req.region.read(lambda tx: reads.holdings(tx, provider.uuid))
    allocations: JsonObject = {}
    for row in rows:
        consumer, resource, used, generation = row
        one = allocations.setdefault(consumer, {"resources": {}})
        one["resources"][resource] = used
        if req.since(28):
            one["consumer_generation"] = generation
    return Rep(body={"allocations": allocations, "resource_provider_generation": provider.generation})


def _wanted(req: Req, data: JsonObject) -> WantedAllocations:
    """One consumer of a body, in any of the forms over time."""
    raw = data["allocations"]
    if isinstance(raw, list):
        raw = {one["resource_provider"]["uuid"]: one for one in raw}
    return WantedAllocations(
        amounts={
            uuid: {name: min(int(amount), TOO_MUCH) for name, amount in one["resources"].items()}
            for uuid, one in raw.items()
        },
        project=data.get("project_id", NOBODY),
        user=data.get("user_id", NOBODY),
        type=data.get("consumer_type"),
        check_generation=req.since(28),
        generation=data.get("consumer_generation"),
    )


async def put(req: Req) -> Rep:
    """Replace the allocations of one consumer. Raises Invalid when the consumer's id is not a UUID."""
    if not is_uuid(req.path["consumer"]):
        raise Invalid(f"Malformed consumer_uuid: {req.path['consumer']}")
    consumer = uuid_of(req.path["consumer"])
    wanted = {consumer: _wanted(req, req.json(schemas.pick(schemas.PUT_ALLOCATIONS, req.version[1])))}
    await req.writes.put(wanted)
    return Rep(204, stamped=False)


async def post(req: Req) -> Rep:
    data = req.json(schemas.pick(schemas.POST_ALLOCATIONS, req.version[1]))
    wanted = {uuid: _wanted(req, one) for uuid, one in data.items()}
    await req.writes.put(wanted)
    return Rep(204, stamped=False)


async def delete(req: Req) -> Rep:
    req.engine.settle(await req.region.write(lambda tx: writes.delete(tx, req.path["consumer"])))
    return Rep(204, stamped=False)


async def reshape(req: Req) -> Rep:
    data = req.json(schemas.pick(schemas.RESHAPER, req.version[1]))
    inventories = {
        uuid: (one["resource_provider_generation"], {n: inventory_of(i) for n, i in one["inventories"].items()})
        for uuid, one in data["inventories"].items()
    }
    wanted = {uuid: _wanted(req, one) for uuid, one in data["allocations"].items()}
    await req.region.write(lambda tx: writes.reshape(tx, inventories, wanted))
    return Rep(204, stamped=False)


async def total_usages(req: Req) -> Rep:
    req.check_query(schemas.USAGES_38 if req.since(38) else schemas.USAGES)
    project, user, kind = req.last("project_id") or "", req.last("user_id"), req.last("consumer_type")

    def read(tx: Any) -> tuple[Any, dict[str, int]]:
        return reads.usages(tx, project, user, kind), reads.consumer_counts(tx, project, user, kind)

    rows, counts = await req.region.read(read)
    if not req.since(38):
        total: dict[str, int] = {}
        for _, resource, used in rows:
            total[resource] = total.get(resource, 0) + used
        return Rep(body={"usages": total})
    by_type: dict[str, dict[str, int]] = {}
    for name, resource, used in rows:
        group = "all" if kind == "all" else name
        one = by_type.setdefault(group, {})
        one[resource] = one.get(resource, 0) + used
    for group, one in by_type.items():
        one["consumer_count"] = sum(counts.values()) if group == "all" else counts.get(group, 0)
    return Rep(body={"usages": by_type})
