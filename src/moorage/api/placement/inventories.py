"""Inventories and usages of one provider."""

from moorage.api.placement import schemas
from moorage.api.placement.http import Rep, Req
from moorage.model.errors import NotFound
from moorage.model.json_types import JsonObject
from moorage.model.resources import Inventory
from moorage.placement.cache.provider import InventoryRow
from moorage.placement.service import provider_changes


def inventory_of(data: JsonObject) -> Inventory:
    """A body's inventory, with Placement's defaults."""
    return Inventory(
        total=int(data["total"]),
        reserved=int(data.get("reserved", 0)),
        ratio=float(data.get("allocation_ratio", 1.0)),
        min_unit=int(data.get("min_unit", 1)),
        max_unit=int(data.get("max_unit", 2_147_483_647)),
        step=int(data.get("step_size", 1)),
    )


def _body(stock: InventoryRow | Inventory) -> JsonObject:
    return {
        "total": stock.total,
        "reserved": stock.reserved,
        "min_unit": stock.min_unit,
        "max_unit": stock.max_unit,
        "step_size": stock.step,
        "allocation_ratio": stock.ratio,
    }


def _one(inventory: InventoryRow | Inventory, generation: int) -> JsonObject:
    body = _body(inventory)
    if generation:  # Placement leaves a generation of 0 out here
        body["resource_provider_generation"] = generation
    return body


async def index(req: Req) -> Rep:
    provider = await req.provider(req.path["uuid"])
    return Rep(
        body={
            "resource_provider_generation": provider.generation,
            "inventories": {name: _body(stock) for name, stock in sorted(provider.stocks.items())},
        },
        modified=provider.updated_at,
        dated=bool(provider.stocks),
    )


async def show(req: Req) -> Rep:
    """Show one inventory of a provider. Raises NotFound when it has none of this class."""
    provider, resource = await req.provider(req.path["uuid"]), req.path["resource_class"]
    if resource not in provider.stocks:
        raise NotFound(f"No inventory of class {resource} for {provider.uuid}")
    return Rep(body=_one(provider.stocks[resource], provider.generation), modified=provider.updated_at)


async def create(req: Req) -> Rep:
    uuid = req.path["uuid"]
    await req.provider(uuid)
    data = req.json(schemas.POST_INVENTORY)
    resource, inventory = data["resource_class"], inventory_of(data)
    generation = await req.region.write(
        lambda tx: provider_changes.add_inventory(tx, uuid, resource, inventory, full_reserve=req.since(26))
    )
    location = req.url(f"/resource_providers/{uuid}/inventories/{resource}")
    return Rep(201, _one(inventory, generation), {"location": location})


async def replace(req: Req) -> Rep:
    uuid = req.path["uuid"]
    await req.provider(uuid)
    data = req.json(schemas.PUT_INVENTORIES)
    wanted = {name: inventory_of(one) for name, one in data["inventories"].items()}
    expected = data["resource_provider_generation"]
    generation = await req.region.write(
        lambda tx: provider_changes.set_inventories(tx, uuid, wanted, expected, full_reserve=req.since(26))
    )
    inventories = {name: _body(inventory) for name, inventory in wanted.items()}
    return Rep(body={"resource_provider_generation": generation, "inventories": inventories}, dated=bool(inventories))


async def clear(req: Req) -> Rep:
    await req.region.write(lambda tx: provider_changes.set_inventories(tx, req.path["uuid"], {}, None))
    return Rep(204, stamped=False)


async def update(req: Req) -> Rep:
    uuid, resource = req.path["uuid"], req.path["resource_class"]
    await req.provider(uuid)
    data = req.json(schemas.PUT_INVENTORY)
    inventory, expected = inventory_of(data), data["resource_provider_generation"]
    generation = await req.region.write(
        lambda tx: provider_changes.update_inventory(
            tx, uuid, resource, inventory, expected, full_reserve=req.since(26)
        )
    )
    return Rep(body=_one(inventory, generation))


async def delete(req: Req) -> Rep:
    await req.region.write(lambda tx: provider_changes.drop_inventory(tx, req.path["uuid"], req.path["resource_class"]))
    return Rep(204, stamped=False)


async def usages(req: Req) -> Rep:
    provider = await req.provider(req.path["uuid"])
    used = {name: stock.used for name, stock in sorted(provider.stocks.items())}
    return Rep(body={"resource_provider_generation": provider.generation, "usages": used})
