"""`GET /allocation_candidates`: the engine's answer, in the shape of the version asked for."""

from collections.abc import Iterable

import msgspec

from moorage.api.placement import query, schemas
from moorage.api.placement.http import Rep, Req, ordered
from moorage.model.errors import Invalid
from moorage.model.ids import ProviderId
from moorage.model.json_types import JsonObject
from moorage.model.provider_tree import Answer, GroupDemand
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider import Provider
from moorage.placement.service import provider_changes as service_providers
from moorage.placement.service.candidates import find, find_alone
from moorage.sql import Tx

SHOWN_KINDS_MAX = 4


async def index(req: Req) -> Rep:
    """List allocation candidates. Raises Invalid for unknown resource classes and traits."""
    req.check_query(schemas.pick(schemas.CANDIDATES, req.version[1]))
    rules = query.rules(req)
    groups = query.groups(req, rules)
    classes = sorted({name for group in groups.values() for name in group.resources})
    traits = {name for g in groups.values() for each in g.required for name in each}
    traits |= {name for g in groups.values() for name in g.forbidden} | rules.root_required | rules.root_forbidden

    def read(tx: Tx) -> tuple[list[str], list[str]]:
        return service_providers.unknown_classes(tx, classes), service_providers.unknown_traits(tx, sorted(traits))

    unknown, missing = ([], []) if service_providers.all_standard(classes, traits) else await req.region.read(read)
    if unknown:
        raise Invalid(f"Invalid resource class in resources parameter: No such resource class {unknown[0]}.")
    if missing:
        raise Invalid(f"No such trait(s): {', '.join(missing)}.")
    await req.engine.catch_up()
    picture, demands = req.engine.picture, list(groups.values())
    if not _bare_as_placement_does(demands, picture):
        return Rep(raw=_raw([], req, (), classes))
    if req.since(12) and (alone := find_alone(picture, demands, rules)) is not None:
        return Rep(raw=_raw(_fragments(req, demands[0], alone), req, alone, classes))
    answers = find(picture, demands, rules)
    requests = [msgspec.json.encode(_request(req, one)) for one in answers]
    return Rep(raw=_raw(requests, req, _concerned(req, answers), classes))


def _bare_as_placement_does(groups: list[GroupDemand], picture: ProviderCache) -> bool:
    """Groups without resources: Placement finds providers for one by a wanted trait or aggregate alone, and does not look at
    `in_tree` if there is such a tree. False when one of them can find none."""
    for group in groups:
        if group.resources:
            continue
        if group.in_tree is not None and ProviderId(group.in_tree) in picture.providers:
            group.in_tree = None
        if not group.required and not group.member_of:
            return False
    return True


def _raw(requests: list[bytes], req: Req, providers: Iterable[Provider], classes: list[str]) -> bytes:
    """Build the body from its parts; the part of each provider is cached until the provider changes."""
    kind = (req.since(29), req.since(17), None if req.since(27) else tuple(classes))
    summaries = []
    for provider in providers:
        summary = None if provider.shown is None else provider.shown.get(kind)
        if summary is None:
            if provider.shown is None or len(provider.shown) >= SHOWN_KINDS_MAX:
                provider.shown = {}
            body = msgspec.json.encode(_summary(req, provider, classes))
            summary = provider.shown[kind] = b'"%s":%s' % (provider.uuid.encode(), body)
        summaries.append(summary)
    parts = b",".join(requests), b",".join(summaries)
    return b'{"allocation_requests":[%s],"provider_summaries":{%s}}' % parts


def _fragments(req: Req, group: GroupDemand, providers: Iterable[Provider]) -> list[bytes]:
    """Requests that one provider serves alone: all alike but for its id."""
    placeholder = ProviderId("@")
    amounts = {(placeholder, name): amount for name, amount in group.resources.items()}
    like = msgspec.json.encode(_request(req, Answer(amounts, {group.suffix: frozenset([placeholder])})))
    parts = like.split(b'"@"')
    return [(b'"%s"' % provider.uuid.encode()).join(parts) for provider in providers]


def _request(req: Req, one: Answer) -> JsonObject:
    by_provider: dict[str, dict[str, int]] = {}
    for (provider, resource), amount in one.amounts.items():
        by_provider.setdefault(provider, {})[resource] = amount
    if not req.since(12):
        listed = [{"resource_provider": {"uuid": uuid}, "resources": r} for uuid, r in by_provider.items()]
        return {"allocations": listed}
    body: JsonObject = {"allocations": {uuid: {"resources": r} for uuid, r in by_provider.items()}}
    if req.since(34):
        body["mappings"] = {suffix: sorted(uuids) for suffix, uuids in one.mappings.items()}
    return body


def _concerned(req: Req, answers: list[Answer]) -> Iterable[Provider]:
    """Every provider of the trees concerned; before 1.29 only those that give something."""
    picture = req.engine.picture
    used = {uuid for one in answers for uuid, _ in one.amounts}
    wanted: dict[str, Provider] = {}
    for uuid in used:
        provider = picture.providers[uuid]
        members = picture.trees[provider.root].values() if req.since(29) else [provider]
        wanted.update((member.uuid, member) for member in members)
    return wanted.values()


def _summary(req: Req, provider: Provider, classes: list[str]) -> JsonObject:
    stocks = provider.stocks.items()
    body: JsonObject = {
        "resources": {
            name: {"capacity": stock.cap, "used": stock.used}
            for name, stock in stocks
            if req.since(27) or name in classes
        }
    }
    if req.since(17):
        body["traits"] = ordered(provider.traits)
    if req.since(29):
        body |= {"parent_provider_uuid": provider.parent, "root_provider_uuid": provider.root}
    return body
