"""Resource providers and their aggregates."""

import uuid as uuids
from collections.abc import Iterable

from moorage.api.placement import query, schemas
from moorage.api.placement.http import Rep, Req, aggregate_of, uuid_of
from moorage.model.errors import Invalid
from moorage.model.ids import ProviderId
from moorage.model.json_types import JsonObject
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider import Provider
from moorage.placement.service import provider_changes


def body_of(req: Req, provider: Provider) -> JsonObject:
    """A provider as clients see it."""
    url = req.url(f"/resource_providers/{provider.uuid}")
    rels = [("inventories", 0), ("usages", 0), ("aggregates", 1), ("traits", 6), ("allocations", 11)]
    links = [{"rel": "self", "href": url}]
    links += [{"rel": rel, "href": f"{url}/{rel}"} for rel, since in rels if req.since(since)]
    body: JsonObject = {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "links": links,
    }
    if req.since(14):
        body |= {"parent_provider_uuid": provider.parent, "root_provider_uuid": provider.root}
    return body


async def create(req: Req) -> Rep:
    """Make a resource provider. Raises Invalid when the name is missing."""
    data = req.json(schemas.POST_PROVIDER_14 if req.since(14) else schemas.POST_PROVIDER)
    uuid = uuid_of(data["uuid"]) if "uuid" in data else str(uuids.uuid4())
    if not data["name"]:
        raise Invalid(f'Unable to create resource provider "", {uuid}: name is required')
    parent = data.get("parent_provider_uuid")
    await req.region.write(lambda tx: provider_changes.create(tx, uuid, data["name"], parent))
    location = {"location": req.url(f"/resource_providers/{uuid}")}
    if not req.since(20):
        return Rep(201, headers=location, stamped=False)
    provider = await req.provider(uuid)
    return Rep(200, body_of(req, provider), location, modified=provider.updated_at)


async def show(req: Req) -> Rep:
    provider = await req.provider(req.path["uuid"])
    return Rep(body=body_of(req, provider), modified=provider.updated_at)


async def update(req: Req) -> Rep:
    uuid = req.path["uuid"]
    await req.provider(uuid)
    data = req.json(schemas.PUT_PROVIDER_14 if req.since(14) else schemas.PUT_PROVIDER)
    parent = data.get("parent_provider_uuid")
    reparent, has_parent = req.since(37), "parent_provider_uuid" in data

    await req.region.write(
        lambda tx: provider_changes.update(
            tx, uuid, data["name"], parent=parent, reparent=reparent, has_parent=has_parent
        )
    )
    provider = await req.provider(uuid)
    return Rep(body=body_of(req, provider), modified=provider.updated_at)


async def delete(req: Req) -> Rep:
    await req.region.write(lambda tx: provider_changes.delete(tx, req.path["uuid"]))
    return Rep(204, stamped=False)


async def index(req: Req) -> Rep:
    """List resource providers. Raises Invalid for unknown resource classes and traits."""
    req.check_query(schemas.pick(schemas.LIST_PROVIDERS, req.version[1]))
    required, forbidden = query.traits(req, "required")
    aggregates, not_aggregates = query.member_of(req, "member_of")
    resources = query.amounts(req.last("resources") or "") if req.last("resources") is not None else {}
    names = {name for each in required for name in each} | forbidden
    if missing := await req.region.read(lambda tx: provider_changes.unknown_traits(tx, sorted(names))):
        raise Invalid(f'Invalid trait(s) in "required" parameter: No such trait(s): {", ".join(missing)}.')
    if unknown := await req.region.read(lambda tx: provider_changes.unknown_classes(tx, sorted(resources))):
        raise Invalid(f"Invalid resource class in resources parameter: No such resource class {unknown[0]}.")
    await req.engine.catch_up()
    picture = req.engine.picture
    providers = [
        provider
        for provider in _selected(req, picture)
        if all(each & provider.traits for each in required)
        and not forbidden & provider.traits
        and all(each & provider.aggregates for each in aggregates)
        and not not_aggregates & provider.aggregates
        and all(has_room(provider, resource, amount) for resource, amount in resources.items())
    ]
    modified = max((provider.updated_at for provider in providers), default=None)
    return Rep(body={"resource_providers": [body_of(req, provider) for provider in providers]}, modified=modified)


def _selected(req: Req, picture: ProviderCache) -> Iterable[Provider]:
    """By uuid, by name, by tree."""
    uuid, name, tree = req.last("uuid"), req.last("name"), req.last("in_tree")
    providers: Iterable[Provider] | None = None
    if uuid is not None:
        one = picture.providers.get(ProviderId(uuid))
        providers = [] if one is None else [one]
    if tree is not None:
        member = picture.providers.get(ProviderId(tree))
        root = None if member is None else member.root
        everybody = [] if root is None else list(picture.trees[root].values())
        providers = everybody if providers is None else [provider for provider in providers if provider.root == root]
    if name is not None:
        providers = (
            picture.providers.named(name) if providers is None else [one for one in providers if one.name == name]
        )
    return picture.providers.values() if providers is None else providers


def has_room(provider: Provider, resource: str, amount: int) -> bool:
    """Whether so much could be allocated now, in one portion."""
    stock = provider.stocks.get(resource)
    return (
        stock is not None
        and stock.used + amount <= stock.cap
        and stock.min_unit <= amount <= stock.max_unit
        and amount % stock.step == 0
    )


async def aggregates(req: Req) -> Rep:
    return _aggregates(req, await req.provider(req.path["uuid"]))


async def set_aggregates(req: Req) -> Rep:
    uuid = req.path["uuid"]
    await req.provider(uuid)
    data = req.json(schemas.PUT_AGGREGATES_19 if req.since(19) else schemas.PUT_AGGREGATES)
    wanted = data["aggregates"] if req.since(19) else data
    names = [aggregate_of(name) for name in wanted]
    expected = data["resource_provider_generation"] if req.since(19) else None
    await req.region.write(lambda tx: provider_changes.set_aggregates(tx, uuid, names, expected))
    rep = _aggregates(req, await req.provider(uuid))
    rep.body["aggregates"] = list(dict.fromkeys(names))  # in the order of the request
    return rep


def _aggregates(req: Req, provider: Provider) -> Rep:
    body: JsonObject = {"aggregates": sorted(provider.aggregates)}
    if req.since(19):
        body["resource_provider_generation"] = provider.generation
    return Rep(body=body)
