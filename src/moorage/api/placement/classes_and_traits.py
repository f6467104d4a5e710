"""Resource classes and traits: the standard ones, a site's own, and the traits of each provider."""

from moorage.api.placement import schemas
from moorage.api.placement.http import Rep, Req, ordered
from moorage.model.errors import Conflict, Invalid
from moorage.model.resources import CUSTOM, STANDARD_CLASSES, STANDARD_TRAITS
from moorage.placement.service import provider_changes
from moorage.store.region.placement import provider_queries as words

NAME_MAX = 255


def _class(req: Req, name: str) -> dict[str, object]:
    return {"name": name, "links": [{"rel": "self", "href": req.url(f"/resource_classes/{name}")}]}


async def list_classes(req: Req) -> Rep:
    custom = await req.region.read(words.custom_classes)
    names = [*STANDARD_CLASSES, *sorted(custom)]
    return Rep(body={"resource_classes": [_class(req, name) for name in names]})


async def create_class(req: Req) -> Rep:
    """Make a resource class. Raises Conflict when it exists."""
    name = req.json(schemas.CLASS)["name"]
    if not await req.region.write(lambda tx: provider_changes.make_class(tx, name)):
        raise Conflict(f"Conflicting resource class already exists: {name}")
    return Rep(201, headers={"location": req.url(f"/resource_classes/{name}")}, stamped=False)


async def show_class(req: Req) -> Rep:
    name = req.path["name"]
    await req.region.read(lambda tx: provider_changes.need_class(tx, name))
    return Rep(body=_class(req, name))


async def update_class(req: Req) -> Rep:
    """Up to 1.6 it renames; since 1.7 it makes sure that the class is there."""
    name = req.path["name"]
    if not req.since(7):
        new = req.json(schemas.CLASS)["name"]
        await req.region.write(lambda tx: provider_changes.rename_class(tx, name, new))
        return Rep(body=_class(req, new), stamped=False)
    schemas.CLASS.check({"name": name}, "JSON does not validate: ")
    made = await req.region.write(lambda tx: provider_changes.make_class(tx, name))
    return Rep(201 if made else 204, headers={"location": req.url(f"/resource_classes/{name}")}, stamped=False)


async def delete_class(req: Req) -> Rep:
    await req.region.write(lambda tx: provider_changes.drop_class(tx, req.path["name"]))
    return Rep(204, stamped=False)


# ------------------------------------------------------------------------------------------------------- traits


async def list_traits(req: Req) -> Rep:
    """List traits. Raises Invalid when `associated` is neither `true` nor `false`."""
    req.check_query(schemas.LIST_TRAITS)
    traits = set(STANDARD_TRAITS) | await req.region.read(words.custom_traits)
    if (value := req.last("name")) is not None:
        traits = _named(value, traits)
    if (wanted := req.last("associated")) is not None:
        if wanted.lower() not in ("true", "false"):
            raise Invalid('The query parameter "associated" only accepts "true" or "false"')
        associated = await req.region.read(words.associated_traits)
        traits = traits & associated if wanted.lower() == "true" else traits - associated
    return Rep(body={"traits": ordered(traits)})


def _named(value: str, names: set[str]) -> set[str]:
    operator, colon, rest = value.partition(":")
    if not colon:
        raise Invalid(
            "Badly formatted name parameter. Expected name query string parameter in form: "
            f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{value}"'
        )
    if operator == "in":
        return names & set(rest.split(","))
    if operator == "startswith":
        return {name for name in names if name.startswith(rest)}
    return names


async def show_trait(req: Req) -> Rep:
    await req.region.read(lambda tx: provider_changes.need_trait(tx, req.path["name"]))
    return Rep(204)


async def put_trait(req: Req) -> Rep:
    """Make a trait, if it does not exist. Raises Invalid for a name that is not allowed."""
    name = req.path["name"]
    if len(name) > NAME_MAX or not CUSTOM.fullmatch(name):
        raise Invalid(
            f"The trait is invalid. A valid trait must be no longer than {NAME_MAX} characters, start with the prefix "
            '"CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
        )
    made = await req.region.write(lambda tx: provider_changes.make_trait(tx, name))
    return Rep(201 if made else 204, headers={"location": req.url(f"/traits/{name}")})


async def delete_trait(req: Req) -> Rep:
    await req.region.write(lambda tx: provider_changes.drop_trait(tx, req.path["name"]))
    return Rep(204, stamped=False)


async def provider_traits(req: Req) -> Rep:
    provider = await req.provider(req.path["uuid"])
    body = {"traits": ordered(provider.traits), "resource_provider_generation": provider.generation}
    return Rep(body=body, modified=provider.updated_at)


async def set_provider_traits(req: Req) -> Rep:
    data = req.json(schemas.PUT_TRAITS)
    uuid, names = req.path["uuid"], data["traits"]
    generation = await req.region.write(
        lambda tx: provider_changes.set_traits(tx, uuid, names, data["resource_provider_generation"])
    )
    return Rep(body={"traits": ordered(set(names)), "resource_provider_generation": generation})


async def clear_provider_traits(req: Req) -> Rep:
    await req.region.write(lambda tx: provider_changes.set_traits(tx, req.path["uuid"], [], None))
    return Rep(204, stamped=False)
