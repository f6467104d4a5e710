"""Checks that can refuse a boot before anything is written: flavor, key, group, zone, networks and counts."""

import msgspec

from moorage.clients.network.nic_validation import RequestedNics
from moorage.model.boot_request import BootRequest, NicWish
from moorage.model.errors import Conflict, Forbidden, Invalid
from moorage.model.flavor import Flavor
from moorage.model.keypair import KeyPair
from moorage.model.network import NICS_MAX, CheckedNics, NicAsk
from moorage.model.principal import Principal
from moorage.model.server_group import ServerGroup
from moorage.operations import flavor_cache
from moorage.operations.boot.hostnames import sanitized_hostname
from moorage.operations.context import SagaContext
from moorage.sql import Tx, label
from moorage.store.region import keypairs, server_groups

SECURITY_GROUPS_MAX = 100
AUTO_REFUSED = "auto_allocate_refused"
NOVAS_AUTO_REFUSAL = 400


class BootRights(msgspec.Struct, frozen=True):
    """What policy allows the caller; decided by the API."""

    may_force_host: bool = False
    may_request_host: bool = False
    may_zero_disk: bool = False
    may_external_network: bool = False
    sees_all_flavors: bool = False
    may_wait: bool = False
    """Servers of theirs may wait for a host."""
    is_admin: bool = False
    """The caller sees the servers and server groups of every project (`context_is_admin`)."""


class References(msgspec.Struct, frozen=True):
    """The region's records of what a request names."""

    flavor: Flavor
    key: KeyPair | None
    group: ServerGroup | None


class RequestedPlace(msgspec.Struct, frozen=True):
    """Where the request wants the server to be."""

    zone: str | None = None
    host: str | None = None
    node: str | None = None


async def resolve_references(
    context: SagaContext, principal: Principal, project: str, request: BootRequest, rights: BootRights
) -> References:
    flavor = await _flavor(context, project, request.flavor_ref, rights)
    group_id, key_name = request.hints.get("group"), request.key_name
    if group_id is None and key_name is None:
        return References(flavor, None, None)

    def work(tx: Tx) -> References:
        key = None if key_name is None else keypairs.get(tx, principal.user, key_name)
        if key_name is not None and key is None:
            raise Invalid(f"Invalid key_name provided: there is no key pair {key_name}.")
        return References(flavor, key, _group(tx, group_id, project, rights.is_admin))

    with label("accept"):
        return await context.region.read(work)


async def _flavor(context: SagaContext, project: str, reference: str, rights: BootRights) -> Flavor:
    """The cached flavor if the boot may use it; a refusal is always decided by a new read."""
    flavor = flavor_cache.cached(context.region, reference)
    if not _usable(flavor, project, rights):
        flavor = await flavor_cache.read(context.region, reference)
    if flavor is None or not _usable(flavor, project, rights):
        raise Invalid(f"Flavor {reference} could not be found.")
    return flavor


def _usable(flavor: Flavor | None, project: str, rights: BootRights) -> bool:
    return flavor is not None and not flavor.disabled and (rights.sees_all_flavors or flavor.usable_by(project))


def _group(tx: Tx, group_id: str | list[str] | None, project: str, administrator: bool) -> ServerGroup | None:
    if group_id is None:
        return None
    if not isinstance(group_id, str):
        raise Invalid("The hint group must name one server group.")
    group = server_groups.get(tx, group_id)
    if group is None or (group.project != project and not administrator):
        raise Invalid(f"Server group {group_id} could not be found.")
    return group


async def requested_place(context: SagaContext, request: BootRequest, rights: BootRights) -> RequestedPlace:
    """Return where the request wants the server to be.

    Raises Forbidden when policy does not allow the caller to name a host, Invalid for an unknown host or zone.
    """
    world = context.placement.world()
    zone, host, node = request.availability_zone, request.host, request.hypervisor_hostname
    forced = False
    if (host or node) and not rights.may_request_host:
        raise Forbidden("Policy doesn't allow compute:servers:create:requested_destination to be performed.")
    if zone and ":" in zone:
        zone, _, rest = zone.partition(":")
        if not rights.may_force_host:
            raise Forbidden("Policy doesn't allow os_compute_api:servers:create:forced_host to be performed.")
        host, _, node = rest.partition(":")
        zone, forced = _zone_if_it_is_theirs(context, zone, host), bool(host)
    if host and host not in world.slots_by_name:
        raise Invalid(f"Compute host {host} could not be found.")
    if node and node not in world.nodes:
        raise Invalid(f"Compute host {node} could not be found.")
    if zone and not forced:
        await check_zone(context, zone)
    return RequestedPlace(zone or None, host or None, node or None)


async def check_zone(context: SagaContext, zone: str) -> None:
    """Raises Invalid unless a host that is in service is in this zone; the cache is refreshed before a refusal."""
    engine = context.placement
    if not engine.world().has_zone(zone):
        await engine.catch_up()  # the host may have been put into service a moment ago
    if not engine.world().has_zone(zone):
        raise Invalid("The requested availability zone is not available")


def _zone_if_it_is_theirs(context: SagaContext, zone: str, host: str) -> str:
    """A zone named together with a host: the host decides, as in Nova, and a zone that is not the host's is ignored."""
    world = context.placement.world()
    at = world.slots_by_name.get(host)
    theirs = context.settings.default_availability_zone if at is None else world.zone_names[int(world.zone[at])]
    return zone if zone == theirs else ""


def _wanted(request: BootRequest) -> RequestedNics:
    if isinstance(request.nics, str):
        return request.nics
    return tuple(_nic(index, wish) for index, wish in enumerate(request.nics))


def _nic(index: int, wish: NicWish) -> NicAsk:
    return NicAsk(
        index=index,
        network=wish.network or "",
        port=wish.port,
        address=wish.address,
        tag=wish.tag,
        ours=wish.port is None,
    )


async def checked_nics(
    context: SagaContext, token: str, project: str, request: BootRequest, rights: BootRights
) -> CheckedNics:
    """Check the requested NICs at the network service, with the user's token.

    Raises what the service refuses: Invalid, Forbidden, Conflict (a port in use), NotFound; Unavailable when it does
    not answer. A refused `auto` is Conflict, or Invalid where `auto_refusal` says so.
    """
    try:
        return await context.network.check(
            token,
            project,
            _wanted(request),
            security_groups=request.security_groups,
            servers=request.min_count,
            hostname=request.hostname or sanitized_hostname(request.name, ""),
            external_allowed=rights.may_external_network,
        )
    except Conflict as refused:
        if refused.code == AUTO_REFUSED and context.settings.auto_refusal == NOVAS_AUTO_REFUSAL:
            raise Invalid(refused.public, private=refused.private, code=refused.code) from refused
        raise


async def with_pools(context: SagaContext, checked: CheckedNics) -> CheckedNics:
    """Copy the address pools of routed networks into placement before a host is chosen; a network without a free
    address is read again.
    """
    if context.draw_segments is None or not any(each.routed for each in checked.networks.values()):
        return checked
    return msgspec.structs.replace(checked, networks=await context.draw_segments(checked.networks))


def check_guarantees(request: BootRequest, checked: CheckedNics) -> None:
    """Refuse ports with a guarantee below 2.72, as Nova does; guarantees of a network's policy are never refused (N5).

    Raises Invalid.
    """
    if not request.qos_ports_allowed and any(port.resource_request for port in checked.ports.values()):
        raise Invalid(
            "Creating servers with ports having resource requests, like a port with a QoS minimum bandwidth policy, is not "
            "supported until microversion 2.72."
        )


def check_counts(request: BootRequest) -> None:
    """Check the counts of a request before any service is called. Raises Invalid when one is over its limit."""
    if not isinstance(request.nics, str) and len(request.nics) > NICS_MAX:
        raise Invalid(f"A server has at most {NICS_MAX} network interfaces, and {len(request.nics)} were requested.")
    if len(request.security_groups) > SECURITY_GROUPS_MAX:
        many = len(request.security_groups)
        raise Invalid(f"A server has at most {SECURITY_GROUPS_MAX} security groups, and {many} were requested.")
    if request.max_count == 1 or isinstance(request.nics, str):
        return
    if any(nic.port for nic in request.nics):
        raise Invalid("Unable to launch multiple servers with a single configured port: a port belongs to one server.")
    if any(nic.address for nic in request.nics):
        raise Invalid("Invalid fixed address: one address cannot be given to several servers.")
