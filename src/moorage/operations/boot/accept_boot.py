"""What is decided before a boot's first step: names become ids, MACs are minted, rights and quota are looked at, once.

The user's token is used here, while the request is answered, and nowhere after (RULES §7).
"""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NoReturn

import msgspec

from moorage.clients.http import Json
from moorage.clients.http import request_id as carried
from moorage.clients.network.nic_validation import Wanted
from moorage.model.boot_request import BootRequest, NicWish
from moorage.model.errors import Conflict, Forbidden, Invalid, OverQuota
from moorage.model.flavor import Flavor
from moorage.model.ids import HostId, ImageId, NetworkId, ServerId, new_uuid
from moorage.model.keypair import KeyPair
from moorage.model.network import NICS_MAX, CheckedNics, NicAsk, mint_mac
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.quota import DEFAULT_LIMITS, Over, Shortfall
from moorage.model.resources import Needs, needs_of
from moorage.model.server import FlavorCopy, Nic, Server
from moorage.model.server_group import ServerGroup
from moorage.model.world import GroupAsk
from moorage.operations import flavor_cache
from moorage.operations.accept import accepted, dispatch, persist
from moorage.operations.boot import boot_devices
from moorage.operations.boot.boot import BOOT, BOOT_WITH_VOLUMES, Boot, NoRoom, ask_of
from moorage.operations.boot.boot_devices import BootDevices
from moorage.operations.boot.expected_ports import guaranteed, ports_expected, rules_of
from moorage.operations.boot.scheduler_hints import hinted_hosts
from moorage.operations.context import SagaContext
from moorage.operations.disk_config import disk_config_of
from moorage.operations.gates import Gates
from moorage.operations.image_checks import base_of
from moorage.operations.preview import Previewed
from moorage.operations.request_secrets import encrypted
from moorage.operations.steps import config_drives
from moorage.sql import Tx, label
from moorage.store.region import keypairs, quotas, server_groups, volume_intents
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

SERVERS_AT_ONCE_MAX = 1000
NUMBER_MAX = 2**31 - 1
"""Whoever asks for more servers than that is counted as asking for so many."""
SECURITY_GROUPS_MAX = 100
HOSTNAME_CHARACTERS_MAX = 63
NAME_CHARACTERS_MAX = 255
AUTO_REFUSED = "auto_allocate_refused"
NOVAS_AUTO_REFUSAL = 400
MIB_PER_GIB = 1024


class BootRights(msgspec.Struct, frozen=True):
    """What policy says of who asks; judged by the front desk."""

    may_force_host: bool = False
    may_request_host: bool = False
    may_zero_disk: bool = False
    may_external_network: bool = False
    sees_all_flavors: bool = False
    is_admin: bool = False
    """Sees the servers and server groups of every project (`context_is_admin`)."""


class _Known(msgspec.Struct, frozen=True):
    """What the region knows of the things a request names."""

    flavor: Flavor
    key: KeyPair | None
    group: ServerGroup | None


class _Place(msgspec.Struct, frozen=True):
    """Where the server may be, as asked."""

    zone: str | None = None
    host: str | None = None
    node: str | None = None


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    request: BootRequest,
    rights: BootRights,
    request_id: str = "",
) -> tuple[Server, ...]:
    """Accept the boot of one or more servers, in one commit, or refuse all of it with a reason.

    Raises Invalid (unknown flavor, image, key, zone, network …), Forbidden, OverQuota, Conflict (a port in use, `auto`
    refused), and Unavailable when a neighbour that must be asked is out.
    """
    project = principal.project
    if project is None:
        raise Forbidden("A server belongs to a project, and this token is for none.")
    if not 1 <= request.min_count <= request.max_count:
        raise Invalid("min_count must be <= max_count, and at least 1")
    _check_counts(request)
    known = await _resolve_references(context, principal, project, request, rights)
    refuse_devices(known.flavor)
    if request.min_count > SERVERS_AT_ONCE_MAX:
        await _refuse_so_many(context, principal, project, request, known.flavor)
    request = msgspec.structs.replace(request, max_count=min(request.max_count, SERVERS_AT_ONCE_MAX))
    found = await boot_devices.understood(
        context, principal, token, request, known.flavor, may_zero_disk=rights.may_zero_disk
    )
    place = await _place(context, request, rights)
    same, different = await hinted_hosts(context, request.hints, None if rights.is_admin else project)
    checked = await _checked(context, token, project, request, rights)
    _check_guarantees(request, checked)
    checked = await with_pools(context, checked)
    user_data, files = await encrypted(context, request.user_data, request.files)
    request = msgspec.structs.replace(request, user_data=user_data, files=files)
    gates = context.gates()
    rules = await rules_of(context, checked) if request.max_count > 1 or not gates.early_ports else {}
    if guaranteed(checked, rules):
        gates = gates.made_early()
    judged = _Judged(principal, project, request, request_id, known, found, place, checked, gates, same, different)
    boots = _boots(context, judged)
    fit = await _that_have_room(context, boots, rules)
    if not context.preview:
        boots = await boot_devices.with_volumes(context, principal, token, boots)
    return await _accept(context, judged, boots, fit)


async def _refuse_so_many(
    context: SagaContext, principal: Principal, project: str, request: BootRequest, flavor: Flavor
) -> NoReturn:
    """More than one request may make: the quota is what forbids it in Nova, so it is asked first, and nothing is built for it.

    Raises OverQuota.
    """
    many = min(request.min_count, NUMBER_MAX)
    amounts = {"instances": many, "cores": many * flavor.vcpus, "ram": many * flavor.ram_mib}
    defaults = {**DEFAULT_LIMITS, **(context.settings.quota or {})}

    def work(tx: Tx) -> Shortfall | None:
        tx.refuse(quotas.reserve(tx, project, amounts, defaults, principal.user))

    short = await context.region.write(work)
    if short is not None:
        raise short.problem()
    raise OverQuota(f"At most {SERVERS_AT_ONCE_MAX} servers may be asked for in one request.")


# ------------------------------------------------------------------------------------------------- looking up


async def _resolve_references(
    context: SagaContext, principal: Principal, project: str, request: BootRequest, rights: BootRights
) -> _Known:
    flavor = await _flavor(context, project, request.flavor_ref, rights)
    group_id, key_name = request.hints.get("group"), request.key_name
    if group_id is None and key_name is None:
        return _Known(flavor, None, None)

    def work(tx: Tx) -> _Known:
        key = None if key_name is None else keypairs.get(tx, principal.user, key_name)
        if key_name is not None and key is None:
            raise Invalid(f"Invalid key_name provided: there is no key pair {key_name}.")
        return _Known(flavor, key, _group(tx, group_id, project, rights.is_admin))

    with label("accept"):
        return await context.region.read(work)


async def _flavor(context: SagaContext, project: str, reference: str, rights: BootRights) -> Flavor:
    """As kept a moment ago where that will do; a refusal is told only from what was read now."""
    found = flavor_cache.cached(context.region, reference)
    if not _usable(found, project, rights):
        found = await flavor_cache.read(context.region, reference)
    if found is None or not _usable(found, project, rights):
        raise Invalid(f"Flavor {reference} could not be found.")
    return found


def _usable(flavor: Flavor | None, project: str, rights: BootRights) -> bool:
    return flavor is not None and not flavor.disabled and (rights.sees_all_flavors or flavor.usable_by(project))


def _group(tx: Tx, group_id: str | list[str] | None, project: str, administrator: bool) -> ServerGroup | None:
    if group_id is None:
        return None
    if not isinstance(group_id, str):
        raise Invalid("The hint group names one server group.")
    group = server_groups.get(tx, group_id)
    if group is None or (group.project != project and not administrator):
        raise Invalid(f"Server group {group_id} could not be found.")
    return group


async def _place(context: SagaContext, request: BootRequest, rights: BootRights) -> _Place:
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
    return _Place(zone or None, host or None, node or None)


async def check_zone(context: SagaContext, zone: str) -> None:
    """Raises Invalid unless a host that is in service is in this zone; nobody is told so on old news."""
    engine = context.placement
    if not engine.world().has_zone(zone):
        await engine.catch_up()  # it may have been put into service a moment ago
    if not engine.world().has_zone(zone):
        raise Invalid("The requested availability zone is not available")


def _zone_if_it_is_theirs(context: SagaContext, zone: str, host: str) -> str:
    """Of a host that is named with a zone: the host is what is meant, as in Nova, and another's zone is passed over."""
    world = context.placement.world()
    at = world.slots_by_name.get(host)
    theirs = context.settings.default_availability_zone if at is None else world.zone_names[int(world.zone[at])]
    return zone if zone == theirs else ""


def _wanted(request: BootRequest) -> Wanted:
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


async def _checked(
    context: SagaContext, token: str, project: str, request: BootRequest, rights: BootRights
) -> CheckedNics:
    """What the network service says of the request, asked with the user's token."""
    try:
        return await context.network.check(
            token,
            project,
            _wanted(request),
            security_groups=request.security_groups,
            servers=request.min_count,
            hostname=request.hostname or "",
            external_allowed=rights.may_external_network,
        )
    except Conflict as refused:
        if refused.code == AUTO_REFUSED and context.settings.auto_refusal == NOVAS_AUTO_REFUSAL:
            raise Invalid(refused.public, private=refused.private, code=refused.code) from refused
        raise


async def with_pools(context: SagaContext, checked: CheckedNics) -> CheckedNics:
    """The pools of routed networks are drawn before anybody chooses a host, and what nobody has free is asked of again."""
    if context.draw_segments is None or not any(each.routed for each in checked.networks.values()):
        return checked
    return msgspec.structs.replace(checked, networks=await context.draw_segments(checked.networks))


def _check_guarantees(request: BootRequest, checked: CheckedNics) -> None:
    """Below 2.72 a port that was made with a guarantee is refused, as Nova does; a network's policy never is (N5)."""
    if not request.qos_ports_allowed and any(port.resource_request for port in checked.ports.values()):
        raise Invalid(
            "Creating servers with ports having resource requests, like a port with a QoS minimum bandwidth policy, is not "
            "supported until microversion 2.72."
        )


def _check_counts(request: BootRequest) -> None:
    """Before anybody is asked of what the request names. Raises Invalid."""
    if not isinstance(request.nics, str) and len(request.nics) > NICS_MAX:
        raise Invalid(f"A server has at most {NICS_MAX} network interfaces, and {len(request.nics)} are asked for.")
    if len(request.security_groups) > SECURITY_GROUPS_MAX:
        many = len(request.security_groups)
        raise Invalid(f"A server has at most {SECURITY_GROUPS_MAX} security groups, and {many} are asked for.")
    if request.max_count == 1 or isinstance(request.nics, str):
        return
    if any(nic.port for nic in request.nics):
        raise Invalid("Unable to launch multiple servers with a single configured port: a port belongs to one server.")
    if any(nic.address for nic in request.nics):
        raise Invalid("Invalid fixed address: one address cannot be given to several servers.")


# ------------------------------------------------------------------------------------------------- making up


class _Judged(msgspec.Struct, frozen=True):
    """A request with everything that was found out about it: what its servers are made from."""

    principal: Principal
    project: str
    request: BootRequest
    request_id: str
    known: _Known
    devices: BootDevices
    place: _Place
    nics: CheckedNics
    gates: Gates
    same_host: tuple[HostId, ...] | None
    different_host: tuple[HostId, ...]


def _boots(context: SagaContext, judged: _Judged) -> list[Boot]:
    principal, request, known, gates = judged.principal, judged.request, judged.known, judged.gates
    found, place, checked = judged.devices, judged.place, judged.nics
    properties = found.properties
    needs = needs_of_flavor(known.flavor, properties, local_root=found.local_root)
    reservation = request.reservation_id or f"r-{secrets.token_hex(4)}"
    drive = config_drives.wanted(context, request.config_drive, properties)
    sealed = context.seals.seal(request.admin_password) if drive and context.seals and request.admin_password else ""
    if not context.vendor_data:  # the only reader of roles
        principal = msgspec.structs.replace(principal, roles=())
    judged = msgspec.structs.replace(
        judged, principal=principal, request=msgspec.structs.replace(request, config_drive=drive)
    )
    group = None if known.group is None else GroupAsk(known.group.id, known.group.policy, known.group.max_per_host or 1)
    made: list[Boot] = []
    for launch_index in range(request.max_count):
        server = _server(judged, reservation, launch_index)
        boot = Boot(
            server=server,
            request_id=judged.request_id,
            global_request_id=carried.get(),
            nics=tuple(_minted(nic, server.id) for nic in checked.nics),
            networks=dict(checked.networks),
            security_groups=checked.security_groups,
            auto=checked.auto,
            needs=needs,
            group=group,
            forced_host=place.host,
            forced_node=place.node,
            same_host=judged.same_host,
            different_host=judged.different_host,
            min_level=gates.min_level,
            gates=gates,
            sealed_password=sealed,
            files=request.files,
        )
        made.append(boot_devices.given(boot, found))
    return made


def _minted(nic: NicAsk, server: ServerId) -> NicAsk:
    return msgspec.structs.replace(nic, mac=mint_mac(server, nic.index)) if nic.ours else nic


def refuse_devices(flavor: Flavor | FlavorCopy) -> None:
    """Raises Invalid: no host here hands devices through by an alias, and nobody gives accelerators, as in a Nova without either."""
    if alias := flavor.extra_specs.get("pci_passthrough:alias"):
        raise Invalid(f"PCI alias {alias.partition(':')[0].strip()} is not defined")
    if profile := flavor.extra_specs.get("accel:device_profile"):
        raise Invalid(f"Device profile name {profile}: there is no accelerator service.")


def needs_of_flavor(flavor: Flavor | FlavorCopy, properties: Mapping[str, str], *, local_root: bool = True) -> Needs:
    """`local_root`: the root is on the host's own disk."""
    swap_gib = -(-flavor.swap_mib // MIB_PER_GIB)
    return needs_of(
        vcpus=flavor.vcpus,
        memory_mb=flavor.ram_mib,
        disk_gb=(flavor.disk_gib if local_root else 0) + flavor.ephemeral_gib + swap_gib,
        extra_specs=flavor.extra_specs,
        image_properties=properties,
    )


def _server(judged: _Judged, reservation: str, launch_index: int) -> Server:
    principal, request, known = judged.principal, judged.request, judged.known
    image, place, checked = judged.devices.image, judged.place, judged.nics
    server = ServerId(new_uuid())
    several = request.max_count > 1
    name = f"{request.name}-{launch_index + 1}" if several else request.name
    hostname = request.hostname or sanitized_hostname(request.name, server)
    return Server(
        id=server,
        project=judged.project,
        user=principal.user,
        name=name[:NAME_CHARACTERS_MAX],
        hostname=(f"{hostname[: HOSTNAME_CHARACTERS_MAX - 5]}-{launch_index + 1}" if several else hostname),
        created_at=time.time_ns() // 1000,
        flavor=known.flavor.copy(),
        description=request.description,
        image=None if image is None else ImageId(image.id),
        image_name="" if image is None else image.name,
        image_properties={} if image is None else image.properties,
        base_image=None if image is None else base_of(image, principal),
        key_name=request.key_name,
        public_key=None if known.key is None else known.key.public_key,
        metadata=dict(request.metadata),
        tags=tuple(sorted(set(request.tags))),
        user_data=request.user_data,
        config_drive=request.config_drive,
        security_groups=_groups_shown(request, checked),
        nics=tuple(_first_nic(nic, checked) for nic in checked.nics),
        access_ip_v4=request.access_ip_v4,
        access_ip_v6=request.access_ip_v6,
        disk_config=disk_config_of(request.disk_config, image),
        availability_zone=place.zone,
        pinned_az=place.zone,
        hints=dict(request.hints),
        boot_roles=principal.roles,
        group=None if known.group is None else known.group.id,
        trusted_certs=request.trusted_certs,
        reservation_id=reservation,
        launch_index=launch_index,
        kernel_id="" if image is None else image.properties.get("kernel_id", ""),
        ramdisk_id="" if image is None else image.properties.get("ramdisk_id", ""),
    )


def _groups_shown(request: BootRequest, checked: CheckedNics) -> tuple[str, ...]:
    """A server without ports has none, whatever was asked for."""
    if not checked.nics:
        return ()
    return checked.group_names if checked.group_names is not None else tuple(request.security_groups) or ("default",)


def _first_nic(nic: NicAsk, checked: CheckedNics) -> Nic:
    network = checked.networks.get(nic.network)
    return Nic(
        index=nic.index,
        network=NetworkId(nic.network or ""),
        network_name="" if network is None else network.name,
        ours=nic.ours,
        tag=nic.tag,
    )


def sanitized_hostname(name: str, server: str) -> str:
    """A host name a guest can have, made from the server's name as Nova does."""
    found = re.sub(r"[ _.]", "-", name.encode("latin-1", "ignore").decode("latin-1"))
    found = re.sub(r"[^a-zA-Z0-9-]+", "", found).lower().strip("-")[:HOSTNAME_CHARACTERS_MAX].rstrip("-")
    return found or f"Server-{server}"[:HOSTNAME_CHARACTERS_MAX]


# ------------------------------------------------------------------------------------------------- accepting


async def _accept(
    context: SagaContext, judged: _Judged, boots: Sequence[Boot], fit: "_Fit | None"
) -> tuple[Server, ...]:
    """Servers, operations and quota in one transaction (RULES §2); of `max_count` as many as the quota allows (§17)."""
    principal, project, request = judged.principal, judged.project, judged.request
    group, ports_free = judged.known.group, judged.nics.ports_free
    saga = BOOT_WITH_VOLUMES if _has_volumes(context, boots[0].server) else BOOT
    owner = await context.dispatcher.choose(saga.name)
    ours = sum(nic.ours for nic in boots[0].nics)
    most = len(boots) if ports_free is None or not ours else min(len(boots), ports_free // ours)
    defaults = {**DEFAULT_LIMITS, **(context.settings.quota or {})}

    def work(tx: Tx) -> list[tuple[Server, Accepted]] | Shortfall:
        count = most
        while (short := quotas.reserve(tx, project, _amounts(boots[:count]), defaults, principal.user)) is not None:
            count = min(_that_fit(short, boots[0]), count - 1)
            if count < request.min_count:
                tx.refuse(short)
        rows: list[tuple[Server, Accepted]] = []
        for each in boots[:count]:
            boot = each if fit is None or fit.count >= count else msgspec.structs.replace(each, no_room=fit.refusal)
            operation = region_operations.new_id()
            held = msgspec.structs.replace(boot.server, operation=operation)
            new = accepted(
                saga,
                operation,
                held,
                msgspec.structs.replace(boot, server=held),
                owner=owner,
                user=principal.user,
                seq=1,
                request_id=judged.request_id,
            )
            rows.append((held, new))
        if group is not None:
            members = quotas.both_limits(tx, project, principal.user, defaults)["server_group_members"]
            had = server_groups.join(tx, group.id, [server.id for server, _ in rows], members)
            if had is not None:
                tx.refuse(Shortfall((Over("server_group_members", len(rows), had, members),)))
        if context.preview:
            tx.refuse(rows)
        region_servers.insert(tx, [server for server, _ in rows])
        persist(context, tx, [new for _, new in rows])
        if makes_volumes:
            volume_intents.done(tx, [server.id for server, _ in rows])
        return rows

    makes_volumes = any(each.created for each in boots[0].server.block_devices) and not context.preview
    answer: list[tuple[Server, Accepted]] | Shortfall = []
    try:
        with label("accept"):
            answer = await context.region.write(work)
    finally:
        if makes_volumes:
            taken = {server.id for server, _ in answer} if isinstance(answer, list) else set[ServerId]()
            await boot_devices.forget_boots(context, [each for each in boots if each.server.id not in taken])
    return await _begun(context, answer)


async def _begun(context: SagaContext, answer: list[tuple[Server, Accepted]] | Shortfall) -> tuple[Server, ...]:
    """Told to whoever executes it. Raises what the quota says."""
    if isinstance(answer, Shortfall):
        raise answer.problem()
    if context.preview:
        raise Previewed([new for _, new in answer])
    for _, new in answer:
        await dispatch(context, new)
    return tuple(server for server, _ in answer)


def _has_volumes(context: SagaContext, server: Server) -> bool:
    """In a preview those that would be made for it have no ids yet."""
    return bool(server.volumes) or (context.preview and any(each.created for each in server.block_devices))


class _Fit(msgspec.Struct, frozen=True):
    """How many servers of a request there is room for, and why not for more."""

    count: int
    refusal: NoRoom


async def _that_have_room(
    context: SagaContext, boots: Sequence[Boot], rules: Mapping[str, Sequence[Json]]
) -> _Fit | None:
    """Of several servers asked for together, either all have a host or none gets one (RULES §17, as Nova).

    Judged on the picture as it is now, each server counted before the next is placed; None: there is room for all.
    What their networks will guarantee to ports that are not made yet is known from the rules of their policies.
    """
    if len(boots) == 1:
        return None
    engine = context.placement
    await engine.catch_up()
    with ExitStack() as held:
        for count, boot in enumerate(boots):
            ask = ask_of(boot, boot.networks, ports_expected(boot, rules), not_on=())
            verdict = engine.rank(ask)
            if not verdict.best:
                return _Fit(count, NoRoom(verdict.fault(), verdict.ledger))
            held.enter_context(engine.holding(verdict.best[0], ask))
    return None


def _amounts(boots: Sequence[Boot]) -> dict[str, int]:
    flavor = boots[0].server.flavor
    count = len(boots)
    return {"instances": count, "cores": count * flavor.vcpus, "ram": count * flavor.ram_mib}


def _that_fit(short: Shortfall, boot: Boot) -> int:
    """How many servers every broken limit still has room for."""
    each = _amounts([boot])
    return min(max(over.limit - over.used, 0) // max(each[over.resource], 1) for over in short.over)
