"""Accepts a boot: names become ids, MACs are minted, rights and quota are checked, once, before the first step.

The user's token is used here, while the request is answered, and never afterwards (RULES §7).
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NoReturn

import msgspec

from moorage.clients.http import Json
from moorage.model.boot_request import BootRequest
from moorage.model.errors import Forbidden, Invalid, OverQuota
from moorage.model.flavor import Flavor
from moorage.model.flavor_classes import charged_of
from moorage.model.ids import HostId, ServerId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.quota import Over, Shortfall
from moorage.model.server import Server
from moorage.model.unified_limits import UnifiedLimits
from moorage.model.world import Group, GroupAsk, World
from moorage.operations.accept import accepted, dispatch, newest_known, persist
from moorage.operations.boot import boot_devices, boot_volumes
from moorage.operations.boot.boot import (
    BOOT,
    BOOT_THAT_WAITS,
    BOOT_WITH_VOLUMES,
    BOOT_WITH_VOLUMES_THAT_WAITS,
    Boot,
    NoRoom,
    ask_of,
)
from moorage.operations.boot.boot_checks import (
    BootRights,
    check_counts,
    check_guarantees,
    checked_nics,
    requested_place,
    resolve_references,
    with_pools,
)
from moorage.operations.boot.boot_servers import JudgedRequest, boots_of, refuse_devices
from moorage.operations.boot.boot_waits import requested_wait
from moorage.operations.boot.expected_ports import guaranteed, ports_expected, rules_of
from moorage.operations.boot.scheduler_hints import hinted_hosts
from moorage.operations.context import SagaContext
from moorage.operations.preview import Previewed
from moorage.operations.request_secrets import encrypted
from moorage.saga import Saga
from moorage.sql import Tx, label
from moorage.store.region import operations as region_operations
from moorage.store.region import quotas, server_groups, volume_intents
from moorage.store.region import servers as region_servers

SERVERS_AT_ONCE_MAX = 1000
NUMBER_MAX = 2**31 - 1
"""A request for more servers counts as a request for this many."""


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    request: BootRequest,
    rights: BootRights,
    request_id: str = "",
) -> tuple[Server, ...]:
    """Accept the boot of one or more servers in one commit, or refuse all of it with a reason.

    Raises Invalid (unknown flavor, image, key, zone, network …), Forbidden, OverQuota, Conflict (a port in use, `auto`
    refused), and Unavailable when a service that is needed does not answer.
    """
    project = principal.project
    if project is None:
        raise Forbidden("A server belongs to a project, and this token has no project.")
    if not 1 <= request.min_count <= request.max_count:
        raise Invalid("min_count must be <= max_count, and at least 1")
    check_counts(request)
    known = await resolve_references(context, principal, project, request, rights)
    refuse_devices(known.flavor)
    if request.min_count > SERVERS_AT_ONCE_MAX:
        await _refuse_so_many(context, principal, project, request, known.flavor)
    request = msgspec.structs.replace(request, max_count=min(request.max_count, SERVERS_AT_ONCE_MAX))
    devices = await boot_devices.understood(
        context, principal, token, request, known.flavor, may_zero_disk=rights.may_zero_disk
    )
    place = await requested_place(context, request, rights)
    same, different = await hinted_hosts(context, request.hints, None if rights.is_admin else project)
    checked = await checked_nics(context, token, project, request, rights)
    check_guarantees(request, checked)
    checked = await with_pools(context, checked)
    user_data, files = await encrypted(context, request.user_data, request.files)
    request = msgspec.structs.replace(request, user_data=user_data, files=files)
    gates = context.gates()
    rules = await rules_of(context, checked) if request.max_count > 1 or not gates.early_ports else {}
    if guaranteed(checked, rules):
        gates = gates.made_early()
    judged = JudgedRequest(
        principal, project, request, request_id, known, devices, place, checked, gates, same, different
    )
    boots = boots_of(context, judged)
    if wait := await requested_wait(context, boots[0].server, may_wait=rights.may_wait):
        boots = [msgspec.structs.replace(each, wait=wait) for each in boots]
    saga = await _saga_of(context, boots[0])
    if saga in (BOOT, BOOT_WITH_VOLUMES):
        boots = [msgspec.structs.replace(each, wait=None) for each in boots] if wait else boots
        fit = await _that_have_room(context, boots, rules)
    else:
        fit = None  # each waits for itself
    if not context.preview:
        boots = await boot_volumes.with_volumes(context, principal, token, boots)
    return await _accept(context, judged, boots, fit, saga)


async def _refuse_so_many(
    context: SagaContext, principal: Principal, project: str, request: BootRequest, flavor: Flavor
) -> NoReturn:
    """Refuse more servers than one request may make. The quota is checked first, because in Nova it is the quota that
    forbids this.

    Raises OverQuota.
    """
    many = min(request.min_count, NUMBER_MAX)
    amounts = {"instances": many, "cores": many * flavor.vcpus, "ram": many * flavor.ram_mib}
    defaults = await context.limits_of(project)

    def work(tx: Tx) -> Shortfall | None:
        tx.refuse(quotas.reserve(tx, project, amounts, defaults, principal.user))

    short = await context.region.write(work)
    if short is not None:
        raise short.problem()
    raise OverQuota(f"At most {SERVERS_AT_ONCE_MAX} servers may be requested at once.")


# ------------------------------------------------------------------------------------------------ acceptance


async def _accept(
    context: SagaContext,
    judged: JudgedRequest,
    boots: Sequence[Boot],
    fit: "_Fit | None",
    saga: Saga[Boot, SagaContext],
) -> tuple[Server, ...]:
    """Servers, operations and quota in one transaction (RULES §2); of `max_count` as many as the quota allows (§17)."""
    principal, project, request = judged.principal, judged.project, judged.request
    group, ports_free = judged.known.group, judged.nics.ports_free
    owner = await context.dispatcher.choose(saga.name)
    ours = sum(nic.ours for nic in boots[0].nics)
    most = len(boots) if ports_free is None or not ours else min(len(boots), ports_free // ours)
    defaults = await context.limits_of(project)
    unified = defaults if isinstance(defaults, UnifiedLimits) else None

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
                tx.refuse(Shortfall((Over("server_group_members", len(rows), had, members),), unified))
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
            await boot_volumes.forget_boots(context, [each for each in boots if each.server.id not in taken])
    return await _begun(context, answer)


async def _begun(context: SagaContext, answer: list[tuple[Server, Accepted]] | Shortfall) -> tuple[Server, ...]:
    """Hand the accepted operations to their conductors. Raises the quota's problem when there was a shortfall."""
    if isinstance(answer, Shortfall):
        raise answer.problem()
    if context.preview:
        raise Previewed([new for _, new in answer])
    for _, new in answer:
        await dispatch(context, new)
    return tuple(server for server, _ in answer)


async def _saga_of(context: SagaContext, boot: Boot) -> Saga[Boot, SagaContext]:
    """Before its volumes are made.  While a conductor lives that does not know how to wait, nobody waits."""
    volumes = bool(boot.server.volumes) or any(each.created for each in boot.server.block_devices)
    plain, waits = (BOOT_WITH_VOLUMES, BOOT_WITH_VOLUMES_THAT_WAITS) if volumes else (BOOT, BOOT_THAT_WAITS)
    return plain if boot.wait is None else (await newest_known(context, waits, plain))[0]


class _Fit(msgspec.Struct, frozen=True):
    """How many servers of a request fit, and why not more."""

    count: int
    refusal: NoRoom


async def _that_have_room(
    context: SagaContext, boots: Sequence[Boot], rules: Mapping[str, Sequence[Json]]
) -> _Fit | None:
    """Check the room for several servers of one request: either all get a host or none does (RULES §17, as Nova).

    The world as it is now decides; each server is counted before the next is placed. None: all fit. The rules of a
    network's policy tell what it will guarantee to ports that are not made yet.
    """
    if len(boots) == 1:
        return None
    engine = context.placement
    await engine.catch_up()
    placed: list[HostId] = []
    with ExitStack() as held:
        for count, boot in enumerate(boots):
            ask = ask_of(boot, boot.networks, ports_expected(boot, rules), not_on=())
            verdict = engine.rank_on(ask, _with_members(engine.world(), boot.group, placed))
            if not verdict.best:
                return _Fit(count, NoRoom(verdict.fault(), verdict.ledger))
            held.enter_context(engine.holding(verdict.best[0], ask))
            placed.append(verdict.best[0].host)
    return None


def _with_members(world: World, group: GroupAsk | None, hosts: Sequence[HostId]) -> World:
    """The world in which servers of this request are on these hosts as members of their group."""
    if group is None or not hosts:
        return world
    known = world.groups.get(group.id, Group())
    counts = Counter(known.hosts)
    counts.update(hosts)
    joined = Group(dict(counts), known.home or hosts[0])
    return dataclasses.replace(world, groups={**world.groups, group.id: joined})


def _amounts(boots: Sequence[Boot]) -> dict[str, int]:
    return {name: len(boots) * amount for name, amount in charged_of(boots[0].server).items()}


def _that_fit(short: Shortfall, boot: Boot) -> int:
    """How many servers fit within every limit that was exceeded."""
    each = _amounts([boot])
    return min(max(over.limit - over.used, 0) // max(each[over.resource], 1) for over in short.over)
