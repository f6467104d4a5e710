"""Writes the inventories of hosts and segments from their reports; only what differs is written, and never `used`."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from moorage.model.errors import Conflict
from moorage.model.ids import CellId, HostId, ProviderId, SegmentId
from moorage.model.image_requirements import HostKind
from moorage.model.local_disks import DRIVER_TRAITS
from moorage.model.request_groups import VirtualFunction
from moorage.model.resources import DISABLED_TRAIT, IPV4_ADDRESS, Inventory
from moorage.sql import Tx
from moorage.store.region.placement import cells, provider_queries, provider_statements, virtual_functions
from moorage.store.region.placement.tables import Stamp, stamp

HOSTS_NAMESPACE = uuid.UUID("6f1a8a0e-8f4d-5b43-9c0b-6d2f4f6f9e11")
REPORTED_BY_NEUTRON = "Neutron segment id "
"""How names of providers begin that Neutron's `segments` plug-in makes; it counts their addresses itself."""
SEGMENTS_NAMESPACE = uuid.UUID("0c9c2f35-52c1-5d7e-8f57-3a9d4d0f7b52")


class HostInventory(msgspec.Struct, frozen=True, kw_only=True):
    """A host's report about itself."""

    host: str
    node: str = ""
    """The hypervisor hostname; empty: the same as the host's name."""
    cell: CellId
    inventories: dict[str, Inventory]
    initial: dict[str, tuple[Literal["reserved", "allocation_ratio"], ...]] = {}
    """Resource class → those of its values that count only where the provider has none yet."""
    traits: tuple[str, ...] = ()
    zone: str = "nova"
    physnets: tuple[str, ...] | None = None
    """Physical networks to which it is wired; None: unknown."""
    level: int = 3
    kind: HostKind | None = None
    """What it is; None: keep what is known."""
    enabled: bool | None = None
    """None: keep what the administrator set."""


class SegmentReport(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of a routed network: its addresses, and the hosts wired to it."""

    segment: SegmentId
    name: str
    total: int
    reserved: int = 0
    hosts: tuple[str, ...] = ()
    """Names of hosts."""


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """A provider below a host: a bridge, an interface, or the agent that has them."""

    hypervisor: str
    """The name of the provider below which it is, at any depth."""
    id: ProviderId
    name: str
    parent: ProviderId | None = None
    """None: directly below the hypervisor."""
    inventories: dict[str, Inventory] = {}
    traits: tuple[str, ...] = ()
    children: frozenset[ProviderId] | None = None
    """All its direct children, so that others can be removed; None: unknown."""
    functions: tuple[VirtualFunction, ...] | None = None
    """Its virtual functions; None: it never has any."""


def _begin(tx: Tx, *uuids: str) -> Stamp:
    """Lock providers before their inventories, as claims do, so that both cannot deadlock."""
    provider_statements.lock(tx, uuids)
    return stamp(tx)


def host_id(name: str) -> HostId:
    """The provider id of a host (by hypervisor hostname) that has none yet: always the same for the same name."""
    return HostId(str(uuid.uuid5(HOSTS_NAMESPACE, name)))


def segment_aggregate(segment: str) -> str:
    """The aggregate that links a segment's provider to its hosts."""
    return str(uuid.uuid5(SEGMENTS_NAMESPACE, segment))


def report_host(tx: Tx, report: HostInventory) -> HostId:
    """Create or correct the host's provider; nothing is written when nothing differs.

    Raises Conflict when the reported node belongs to another host: a host may only report about itself.
    """
    node = report.node or report.host
    known = provider_statements.find_by_name(tx, node)
    provider = host_id(node) if known is None else HostId(known.uuid)
    have = provider_statements.host_row(tx, provider)
    if have is not None and have["host"] != report.host:
        raise Conflict(f"host {report.host} reports node {node}, which is host {have['host']}'s")
    if (
        known is not None
        and have is None
        and (known.parent or IPV4_ADDRESS in provider_statements.inventories_of(tx, provider))
    ):
        raise Conflict(f"host {report.host} reports node {node}, which is no host's provider")
    other = provider_statements.node_of(tx, report.host, report.cell) if have is None else ""
    if other not in ("", node):  # another conductor may have recorded its own node meanwhile, from the same report
        raise Conflict(
            f"host {report.host} reports node {node}, and has node {other} already: delete its compute service first"
        )
    came = {} if have and have["cell"] == report.cell else {"cell_disabled": cells.come_in(tx, report.cell)}
    at: Stamp | None = None
    if known is None:
        at = stamp(tx)
        provider_statements.ensure_root(tx, provider, node, at)
    at = _inventories(tx, provider, report.inventories, at, initial=report.initial)
    at = _traits(tx, provider, report, at)
    facts = {
        "host": report.host,
        "node": node,
        "cell": report.cell,
        "zone": report.zone,
        "physnets": None if report.physnets is None else ",".join(sorted(report.physnets)),
        "level": report.level,
        **({} if report.kind is None else {"kind": msgspec.json.encode(report.kind).decode()}),
        **came,
    }
    if have is None or any(have[name] != value for name, value in facts.items()):
        at = at or stamp(tx)
        provider_statements.put_host(tx, provider, facts)
    if at is not None and known is not None:
        provider_statements.advance(tx, provider, at)
    return provider


def _inventories(
    tx: Tx,
    provider: str,
    reported: dict[str, Inventory],
    at: Stamp | None,
    *,
    initial: Mapping[str, Sequence[str]] | None = None,
) -> Stamp | None:
    """The host decides the inventories of standard classes; custom ones are the administrator's, unless it reports them."""
    have = provider_statements.inventories_of(tx, provider)
    want = {
        resource: _merged(inventory, have[resource][0], (initial or {}).get(resource, ()))
        if resource in have
        else inventory
        for resource, inventory in reported.items()
    }
    for resource, inventory in want.items():
        if resource not in have or have[resource][0] != inventory:
            at = at or _begin(tx, provider)
            provider_statements.put_inventory(tx, provider, resource, inventory, at)
    if unwanted := {name for name in have if not name.startswith("CUSTOM_")} - set(want):
        at = at or _begin(tx, provider)
        provider_statements.drop_inventories(
            tx, provider, unwanted
        )  # those in use stay until they are free; the next report tries again
    return at


def _merged(reported: Inventory, now: Inventory, initial: Sequence[str]) -> Inventory:
    """What is reported, with those values of now for which the host has no setting: an operator may have set them (Nova's
    `initial_cpu_allocation_ratio`).
    """
    return msgspec.structs.replace(
        reported,
        reserved=min(now.reserved, reported.total) if "reserved" in initial else reported.reserved,
        ratio=now.ratio if "allocation_ratio" in initial else reported.ratio,
    )


def _traits(tx: Tx, provider: HostId, report: HostInventory, at: Stamp | None) -> Stamp | None:
    """The host decides standard traits, and those of its driver; other custom ones and those of the administrator are kept."""
    have = provider_statements.traits_of(tx, provider)
    kept = {name for name in have if name.startswith("CUSTOM_") or name == DISABLED_TRAIT} - DRIVER_TRAITS
    if report.enabled is not None:
        kept = kept - {DISABLED_TRAIT} if report.enabled else kept | {DISABLED_TRAIT}
    want = kept | set(report.traits)
    if frozenset(want) == have:
        return at
    at = at or stamp(tx)
    for name in sorted((DRIVER_TRAITS & want) - have):
        provider_queries.create_name(tx, "trait", name)
    provider_statements.set_traits(tx, provider, have, want)
    return at


def set_enabled(tx: Tx, provider: HostId, enabled: bool, version: int | None = None) -> bool:
    """Enable or disable the host. Returns False when there is no such host, or not at this version."""
    if provider_statements.find(tx, provider) is None:
        return False
    if version is not None and provider_statements.lock(tx, (provider,)).get(ProviderId(provider)) != version:
        return False
    have = provider_statements.traits_of(tx, provider)
    want = have - {DISABLED_TRAIT} if enabled else have | {DISABLED_TRAIT}
    if want != have:
        at = stamp(tx)
        provider_statements.set_traits(tx, provider, have, want)
        provider_statements.advance(tx, provider, at)
    return True


def report_device(tx: Tx, report: DeviceReport) -> bool:
    """Create or correct a provider below a host. Returns False when the host does not exist yet."""
    root = provider_statements.find_by_name(tx, report.hypervisor)
    if root is None:
        return False
    known = provider_statements.find(tx, report.id)
    at: Stamp | None = None
    if known is None:
        at = stamp(tx)
        provider_statements.ensure_child(tx, report.id, report.name, report.parent or root.uuid, root.root, at)
    at = _inventories(tx, report.id, report.inventories, at)
    have = provider_statements.traits_of(tx, report.id)
    if frozenset(report.traits) != have:
        at = at or stamp(tx)
        provider_statements.set_traits(tx, report.id, have, report.traits)
    if report.functions is not None:
        virtual_functions.put(tx, report.id, report.functions)
    if report.children is not None and known is not None:
        at = _retire(tx, provider_statements.children(tx, report.id) - report.children, at)
    if at is not None and known is not None:
        provider_statements.advance(tx, report.id, at)
    return True


def _retire(tx: Tx, devices: set[ProviderId], at: Stamp | None) -> Stamp | None:
    """Retire devices that no longer exist: nothing of them is offered, and unused ones are removed."""
    for device in sorted(devices):
        at = _inventories(tx, device, {}, at)
        if (
            at is not None
            and not provider_statements.in_use(tx, device)
            and not provider_statements.children(tx, device)
        ):
            provider_statements.delete(tx, device, at)
        elif at is not None:
            provider_statements.advance(tx, device, at)
    return at


def report_segment(tx: Tx, report: SegmentReport) -> ProviderId:
    """Create or correct the segment's provider (with the segment's id), and link it to its hosts by an aggregate.

    A provider that Neutron made is left alone: if two counted the same addresses, they would count twice.
    """
    provider = ProviderId(report.segment)
    known = provider_statements.find(tx, provider)
    at: Stamp | None = None
    if known is None:
        at = stamp(tx)
        provider_statements.ensure_root(tx, provider, report.name, at)
    elif known.name.startswith(REPORTED_BY_NEUTRON):
        return provider
    inventory = Inventory(total=report.total, reserved=report.reserved, max_unit=1)
    have = provider_statements.inventories_of(tx, provider)
    if IPV4_ADDRESS not in have or have[IPV4_ADDRESS][0] != inventory:
        at = at or _begin(tx, provider)
        provider_statements.put_inventory(tx, provider, IPV4_ADDRESS, inventory, at)
    aggregate = segment_aggregate(report.segment)
    want = {provider, *(ProviderId(host) for host in provider_statements.providers_named_hosts(tx, report.hosts))}
    tied = provider_statements.members(tx, aggregate)
    for member in sorted(want ^ tied):
        at = at or stamp(tx)
        aggregates = provider_statements.aggregates_of(tx, member)
        changed = aggregates | {aggregate} if member in want else aggregates - {aggregate}
        provider_statements.set_aggregates(tx, member, aggregates, changed)
        provider_statements.advance(tx, member, at)
    if at is not None and known is not None and provider not in want ^ tied:
        provider_statements.advance(tx, provider, at)
    return provider


def drop_segment(tx: Tx, segment: SegmentId) -> bool:
    """Remove the segment and its link to the hosts. Returns False when its addresses are still held, and it stays.

    Only Neutron deletes providers that Neutron made.
    """
    provider = ProviderId(segment)
    known = provider_statements.find(tx, provider)
    if known is not None and known.name.startswith(REPORTED_BY_NEUTRON):
        return True
    if known is not None and provider_statements.in_use(tx, provider):
        return False
    aggregate = segment_aggregate(segment)
    tied = provider_statements.members(tx, aggregate) - {provider}
    if known is None and not tied:
        return True
    at = stamp(tx)
    for member in sorted(tied):
        aggregates = provider_statements.aggregates_of(tx, member)
        provider_statements.set_aggregates(tx, member, aggregates, aggregates - {aggregate})
        provider_statements.advance(tx, member, at)
    if known is not None:
        provider_statements.delete(tx, provider, at)
    return True
