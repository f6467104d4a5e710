"""List, show, create, update and delete, the same for every noun; each runs whole inside one transaction."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from moorage_embedded.network import listing, networks, security_groups
from moorage_embedded.network.faults import NeutronFault, bad, forbidden, not_found
from moorage_embedded.network.request import NetworkCall, NetworkRequest, touched
from moorage_embedded.network.resources import ADDRESS_GROUP, GROUP, PORT, SUBNET, ResourceType
from moorage_embedded.network.store import Doc

BULK_MAX = 1_000
PARENTS_MAX = 500
_REVISION = re.compile(r"^\s*revision_number=(\d{1,18})\s*$")


def find(call: NetworkCall, noun: ResourceType, id: str, *, lock: bool = False) -> Doc:
    """The resource. Raises Fault (404) also for a caller who may not see it."""
    doc = call.store.get(noun.name, id, lock=lock)
    if doc is None or not noun.visible(call, doc):
        raise not_found(noun.name, id)
    return doc


def show(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {noun.name: listing.only(noun.view(call, find(call, noun, ask.path["id"])), ask.fields)}


def _in_sql(call: NetworkCall, noun: ResourceType, query: listing.ListQuery) -> tuple[dict[str, list[str]], list[str]]:
    where: dict[str, list[str]] = {}
    done = [name for name in noun.columns if name in query.filters and _may_ask(call, noun, name)]
    for name in done:
        where[noun.columns[name]] = query.filters[name]
    if noun is PORT and (ips := query.filters.get("fixed_ips")):
        kinds = {each.partition("=")[0] for each in ips}
        if kinds == {"ip_address"}:
            where["address"] = [listing._canonical(each.partition("=")[2]) for each in ips]
        elif kinds == {"subnet_id"}:
            where["subnet"] = [each.partition("=")[2] for each in ips]
    return where, done


def _may_ask(call: NetworkCall, noun: ResourceType, name: str) -> bool:
    """A filter on what the caller may not see would tell it all the same; left to the view, it matches nothing."""
    rule = noun.attrs[name].may_read
    return rule is None or rule(call.who)


def index(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    if not noun.may_list(call.who):
        return {noun.plural: []}
    query = listing.parse(ask.pairs, noun.attrs, *noun.filters)
    longest = call.settings.list_page_max
    where, done = _in_sql(call, noun, query)
    seen_by = None if call.who.everywhere else (call.who.project or "")
    if noun is GROUP:
        _ensure_default(call, where)
    shared = query.filters.pop("shared", None) if noun is SUBNET else None
    plain = (
        shared is None and not query.tags and not query.sort and not query.reverse and set(query.filters) <= set(done)
    )
    if plain:
        limit = min(query.limit or longest, longest)
        docs = call.store.many(noun.name, where=where, seen_by=seen_by, after=query.marker, limit=limit + 1)
        more = len(docs) > limit
        shown = _views(call, noun, docs[:limit])
    else:
        docs = call.store.many(noun.name, where=where, seen_by=seen_by)
        if shared is not None:
            docs = _on_shared(call, docs, shared)
        shown, more = listing.page(listing.sift(_views(call, noun, docs), query, done), query, longest)
    answer: Doc = {noun.plural: [listing.only(each, query.fields) for each in shown]}
    if found := listing.links(ask.url, query, shown, more=more):
        answer[f"{noun.plural}_links"] = found
    return answer


def _on_shared(call: NetworkCall, docs: list[Doc], said: Sequence[str]) -> list[Doc]:
    """Subnets are shared as their networks are, and do not say so themselves."""
    open_ones = {each["id"] for each in call.store.many("network") if networks.shared_with(call.who, each)}
    wanted = {each.lower() in {"true", "1"} for each in said}
    return [doc for doc in docs if (doc["network_id"] in open_ones) in wanted]


def _views(call: NetworkCall, noun: ResourceType, docs: list[Doc]) -> list[Doc]:
    """As the caller may see them; the rules of all groups are read at once."""
    if noun is not GROUP or not docs:
        return [noun.view(call, doc) for doc in docs]
    rules: dict[str, list[Doc]] = {doc["id"]: [] for doc in docs}
    narrow = {"parent": list(rules)} if len(docs) <= PARENTS_MAX else {}
    for rule in call.store.many("security_group_rule", where=narrow):
        if rule["security_group_id"] in rules:
            rules[rule["security_group_id"]].append(rule)
    return [security_groups.view_with(doc, rules[doc["id"]]) for doc in docs]


def _ensure_default(call: NetworkCall, where: dict[str, list[str]]) -> None:
    """Make the default group of the project that is asked for. Not for a service's own project: it has no servers, and
    administrators find the group of another one by its name.
    """
    if call.who.service and "project" not in where:
        return
    for project in where.get("project", [call.who.project or ""])[:1]:
        if project and (call.who.admin or call.who.owns(project)):
            security_groups.ensure_default(call, project)


def create(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    """One under the noun's name, or many under its plural: all or none."""
    if noun.create is None:
        raise not_found("", "")
    if noun.plural in ask.body:
        many = ask.body[noun.plural]
        if not isinstance(many, list) or not many:
            raise bad(f"Unable to find '{noun.name}' in request body")
        if len(many) > BULK_MAX:
            raise bad(f"more than {BULK_MAX} in one request")
        bodies = [each[noun.name] if isinstance(each, dict) and set(each) == {noun.name} else each for each in many]
        return {noun.plural: [noun.view(call, doc) for doc in noun.create(call, bodies)]}
    return {noun.name: noun.view(call, noun.create(call, [ask.inner(noun.name)])[0])}


def check_revision(doc: Doc, if_match: str | None) -> None:
    """Check the `If-Match` header. Raises NeutronFault: 400 for another form, 412 for another revision."""
    if if_match is None:
        return
    found = _REVISION.match(if_match)
    if found is None:
        raise bad("Invalid If-Match header: only revision_number=N is understood")
    if int(found[1]) != doc.get("revision_number"):
        text = f"Constrained to {found[1]}, but current revision is {doc.get('revision_number')}"
        raise NeutronFault(412, "RevisionNumberConstraintFailed", text)


def update(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    if noun.update is None:
        raise not_found("", "")
    said = ask.inner(noun.name)
    doc = find(call, noun, ask.path["id"], lock=True)
    if noun not in (ADDRESS_GROUP, PORT, SUBNET) and "project_id" in doc and not call.who.writes(doc["project_id"]):
        raise forbidden(f"update_{noun.name}")
    if noun.name in {"segment", "agent"} and not call.who.admin:
        raise forbidden(f"update_{noun.name}")
    check_revision(doc, ask.if_match)
    doc = noun.update(call, doc, said)
    noun.put(call, touched(doc) if noun.revised else doc)
    return {noun.name: noun.view(call, doc)}


def delete(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> None:
    if noun.delete is None:
        raise not_found("", "")
    doc = find(call, noun, ask.path["id"], lock=True)
    if noun.name in {"network", "segment", "agent"} and not call.who.writes(doc.get("project_id")):
        raise forbidden(f"delete_{noun.name}")
    check_revision(doc, ask.if_match)
    noun.delete(call, doc)


def act(
    noun: ResourceType, action: Callable[[NetworkCall, Doc, Any], Doc], call: NetworkCall, ask: NetworkRequest
) -> Doc:
    """Do to one, which is locked, what the body says."""
    return action(call, find(call, noun, ask.path["id"], lock=True), ask.body)
