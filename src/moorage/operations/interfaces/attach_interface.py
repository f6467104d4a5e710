"""Attach an interface to a server that is on a host: a port, what it needs of the host and its segment, the bind, the plug.

Who asks is answered when it is done, as Nova answers.  The port is got or made as a boot gets it: its card has an index that no
card of the server had, so its MAC is a new one, and a POST that is repeated finds what it made (RULES §7).  What the port needs,
an address of the segment that this very host is wired to and what its policy guarantees, is claimed beside what the server
holds; when somebody else was first, the next segment or device of the host is tried, until none is left.  A segment that turns
out to have no address left, when the port is bound, is gone without, as boots do: each attempt is on the same host, and when no
segment is left the refusal is the cause.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.bus.agent_rpc import HostAddress
from moorage.clients.http import request_id as carried
from moorage.model.action import Event
from moorage.model.boot_request import NicWish
from moorage.model.errors import Conflict, HostFailed, Invalid, NoCapacity, NotFound, Problem
from moorage.model.ids import OperationId, ProviderId
from moorage.model.network import NICS_MAX, BindRefused, CheckedNics, NetworkFacts, NicAsk, Port, mint_mac
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.model.verdict import Claimed, DecisionRecord, Row, Shortage, Verdict
from moorage.model.world import Ask, Choice
from moorage.operations.accept import accepted, dispatch, newest_known
from moorage.operations.boot.accept_boot import with_pools
from moorage.operations.context import SagaContext
from moorage.operations.steps import groups, server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.claims import first
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.hosts import HOST_SILENT, command_context, unplug_or_leave
from moorage.operations.steps.ports import (
    nic_of,
    other_subnets,
    refuse_without_credentials,
    segments_for,
    vif_of,
    with_our_credentials,
)
from moorage.operations.steps.segments import note_exhausted, without_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.placement.claims import amounts_of, portions
from moorage.saga import Run, Saga, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers

NETWORK_PATIENCE_S = 120.0
HOST_PATIENCE_S = 120.0
ANSWERED_WITHIN_S = 300.0
CLAIM_ROUNDS_MAX = 50
ACCELERATED = frozenset({"accelerator-direct", "accelerator-direct-physical"})
NOT_SUPPORTED = "not_supported"
"""What a host says whose driver has no such verb."""
ACTION = "attach_interface"
EVENT = "compute_attach_interface"


class AttachInterfaceInput(msgspec.Struct, frozen=True):
    """One card, decided before step one."""

    server: Server
    seq: int
    nic: NicAsk
    networks: dict[str, NetworkFacts] = {}
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""


class CardClaim(msgspec.Struct, frozen=True):
    """What was claimed for the card, of whom."""

    amounts: tuple[tuple[ProviderId, str, int], ...] = ()
    subnet: str | None = None
    """Where its address is to come from, on a routed network."""
    profiles: dict[int, dict[str, Any]] = {}
    """What the binding profile is to say of the providers of its guarantees."""
    given: tuple[groups.GroupShare, ...] = ()


AttachRun = Run[AttachInterfaceInput, SagaContext]


@step
async def begin_action(run: AttachRun) -> LocatedServer:
    """The action shows from the start, and the card's index is used up, whatever comes of it."""
    found = await records.find(run.context, run.input.server.id)
    if found.server is None or found.cell is None or found.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    taken = run.input.nic.index + 1
    written = await records.change(
        run.context,
        found.cell,
        found.server.id,
        records.fence(run),
        lambda server: msgspec.structs.replace(server, next_nic=max(server.next_nic, taken)),
        lambda tx: actions.write(tx, server_action.action_of(run, ACTION)),
    )
    return LocatedServer(written, found.cell)


@begin_action.undo
async def fail_action(run: AttachRun) -> None:
    """The action ends in Error; the server is as it was."""
    found = await records.find(run.context, run.input.server.id)
    if found.cell is not None:
        now = server_action.now_us()
        host = None if found.server is None else found.server.host
        said = None if run.turned is None else _api_error(run.input.server, run.turned.problem())
        events = (failed_event(EVENT, now, host, run.turned, said),)
        await run.context.cells[found.cell].write(
            lambda tx: actions.finish(tx, run.input.server.id, server_action.request_of(run), events, now, "Error")
        )


@step(patience_s=NETWORK_PATIENCE_S, needs=(begin_action,))
async def make_port(run: AttachRun) -> Port:
    """Get the user's port, or make one, not bound; the MAC minted before makes a repeat safe (RULES §7)."""
    server = run.input.server
    ports = await run.context.network.ensure_ports(server.id, server.project, (run.input.nic,), unsure=run.unsure)
    return ports[0]


@make_port.undo
async def release_port(run: AttachRun) -> None:
    """Ours is deleted, the user's let go as it was; found by its MAC or id, so it is safe though nothing was made."""
    letting_go = run.context.network.release_nic(run.input.server.id, run.input.nic)
    await with_our_credentials(run.context, run.input.server.id, letting_go)


@step(region=True, moves=True, needs=(begin_action, make_port))
async def claim_more(run: AttachRun) -> CardClaim:
    """Claim what the port needs of the server's own host and its segment; a loser takes the next candidate (N1, N5).

    What an earlier attempt claimed, on a segment without addresses, is given back with it.
    """
    engine, ask = run.context.placement, _ask(run)
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    ask = without_exhausted(ask, (run[make_port],), exhausted)
    if not any(nic.segments for nic in ask.nics) and not ask.groups:
        return await run.commit(lambda tx: CardClaim())
    verdict, fresh = engine.rank(ask), False
    for _ in range(CLAIM_ROUNDS_MAX):
        if verdict.best:
            answer = await _take(run, verdict.best[0], ask)
            if isinstance(answer, CardClaim):
                return answer
        elif fresh:
            break
        # The numbers that were short are known now, so the next candidate comes first: all are tried before a "no".
        verdict, fresh = await engine.rank_fresh(ask), True
    raise _no_room(run, verdict)


async def _take(run: AttachRun, choice: Choice, ask: Ask) -> CardClaim | Shortage:
    engine, server = run.context.placement, run.input.server.id
    given = _given(run, choice, ask)

    def work(tx: Tx) -> tuple[CardClaim, Claimed, Sequence[Row]]:
        back = _retracted(tx, run, run.earlier(claim_more))
        answer = engine.extend(tx, server, choice, ask, run.operation)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        profiles = groups.with_functions(given.profiles, (run[make_port],), answer.functions)
        return msgspec.structs.replace(given, profiles=profiles), answer, back

    with engine.holding(choice, ask):
        answer: tuple[CardClaim, Claimed, Sequence[Row]] | Shortage = await run.commit(work, result=first)
    if isinstance(answer, Shortage):
        engine.lost(answer)
        return answer
    granted_now, taken, back = answer
    engine.settle(back)
    engine.claimed(taken)
    return granted_now


def _retracted(tx: Tx, run: AttachRun, given: CardClaim | None) -> tuple[Row, ...]:
    """What this operation claimed, and no more: the consumer bears its name until it is taken back."""
    if given is None or not given.amounts:
        return ()
    port = run.get(make_port)
    function_of = None if port is None or not groups.is_function(port) else port.id
    amounts = amounts_of(given.amounts)
    return run.context.placement.retract(tx, run.input.server.id, amounts, run.operation, function_of)


@claim_more.undo
async def give_back(run: AttachRun) -> None:
    given = run.get(claim_more)
    if given is None or not given.amounts:
        return
    run.context.placement.settle(await run.commit(lambda tx: _retracted(tx, run, given)))


@step(moves=True, needs=(begin_action, make_port, claim_more), patience_s=NETWORK_PATIENCE_S)
async def bind_port(run: AttachRun) -> Port:
    """Set the server's host on the port; a deferred address is given here, and a refusal found here (S0.13)."""
    server, given, port = _server(run), run[claim_more], run[make_port]
    assert server.host is not None
    subnets = {port.index: given.subnet} if given.subnet else {}
    try:
        bound = await run.context.network.bind_ports(
            server.id,
            server.host,
            server.availability_zone or run.context.settings.default_availability_zone,
            (port,),
            subnets=subnets,
            beside=other_subnets((port,), run.input.networks, subnets),
            profiles=given.profiles,
            unsure=run.unsure or run.attempt > 1,
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, run.input.networks, subnets)
        raise
    return bound[0]


@bind_port.undo
async def unbind_port(run: AttachRun) -> None:
    port = run.get(make_port)
    if port is not None:
        letting_go = run.context.network.unbind_ports(run.input.server.id, (port,))
        await with_our_credentials(run.context, run.input.server.id, letting_go)


@step(needs=(begin_action, make_port, bind_port), patience_s=HOST_PATIENCE_S)
async def plug(run: AttachRun) -> None:
    """The host plugs it into the guest, from finished data (S0.20)."""
    server, port = _server(run), run[bind_port]
    assert server.cell is not None
    assert server.host is not None
    vif = vif_of(port, run.input.networks.get(port.network))
    to = HostAddress(server.cell, server.host)
    await run.context.hosts.attach_interface(to, command_context(run, "plug"), server.id, vif)


@plug.undo
async def unplug(run: AttachRun) -> None:
    found, port = run.get(begin_action), run.get(make_port)
    if found is not None and found.server is not None and port is not None:
        await unplug_or_leave(run, "unplug", found.server, port.id)


@step(
    needs=(begin_action, bind_port, plug),
    no_undo="an interface that was shown stays until it is detached",
    point_of_no_return=True,
)
async def record_nic(run: AttachRun) -> None:
    """The card is in the server's record, and the action has ended.

    Who adopts it after it was passed may not know how the port was bound; the record does.
    """
    found, port, now = run[begin_action], run.get(bind_port), server_action.now_us()
    assert found.cell is not None
    host = None if found.server is None else found.server.host
    events = (Event(EVENT, now, now, "Success", host),)
    await records.change(
        run.context,
        found.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: server if port is None else with_card(server, run, port, now),
        lambda tx: actions.finish(tx, run.input.server.id, server_action.request_of(run), events, now, None),
    )


def with_card(server: Server, run: AttachRun, port: Port, now: int) -> Server:
    """The record with the card that the story attached."""
    nic = nic_of(port, run.input.networks.get(port.network))
    others = tuple(each for each in server.nics if each.port != nic.port)
    return msgspec.structs.replace(server, nics=(*others, nic), updated_at=now)


@record_nic.passed
async def was_recorded(run: AttachRun) -> bool:
    """An adopter asks: does the record show the card?  Who told it before can write no more then."""
    found, port = run.get(begin_action), run.get(make_port)
    if found is None or found.cell is None or port is None:
        return False
    by = records.fence(run)
    row = await run.context.cells[found.cell].write(lambda tx: cell_servers.take_over(tx, run.input.server.id, by))
    shown = row is not None and any(nic.port == port.id for nic in row.nics)
    if shown and row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return shown


def _same_host(_: CardClaim) -> str:
    """An attach goes to its server's host; which that is, the server's record says."""
    return ""


ATTACH_INTERFACE = Saga(
    "attach_interface/2",
    AttachInterfaceInput,
    begin_action,
    make_port,
    on_some_host(claim_more, bind_port, max_attempts=1, host=_same_host),
    plug,
    record_nic,
    ended=records.release_server,
)
"""One attempt, and one more for each segment that had no address left."""

ATTACH_INTERFACE_1 = Saga(
    "attach_interface/1",
    AttachInterfaceInput,
    begin_action,
    make_port,
    claim_more,
    bind_port,
    plug,
    record_nic,
    ended=records.release_server,
)
"""As conductors of 0.1 know it: begun only while one of them is living, and told to its end."""


# ------------------------------------------------------------------------------------------------- what is asked


def _ask(run: AttachRun) -> Ask:
    server, port = _server(run), run[make_port]
    wanted = groups.wanted((port,), run.input.networks)
    return Ask(
        resources={},
        nics=(segments_for(port, run.input.networks.get(port.network)),),
        groups=wanted.groups,
        same_subtree=wanted.same_subtree,
        same_device=wanted.same_device,
        host=server.host,
        project=server.project,
        staying=True,
        seed=int(server.id.replace("-", ""), 16) & 0xFFFFFFFF,
    )


def _given(run: AttachRun, choice: Choice, ask: Ask) -> CardClaim:
    port = run[make_port]
    network, segment = run.input.networks.get(port.network), choice.segments[0]
    subnet = None
    if network is not None and segment is not None and not port.address_chosen and port.wants_address:
        subnet = next((s.id for s in network.subnets if s.segment == segment and s.version == 4), None)
    return CardClaim(
        tuple(portions(choice, ask)),
        subnet,
        groups.profiles((port,), choice),
        groups.given(ask.groups, choice, run.context.placement.world()),
    )


def _no_room(run: AttachRun, verdict: Verdict) -> Problem:
    """In Nova's words; the cause is the operator's, with its numbers (N2)."""
    server, port = run.input.server.id, run[make_port]
    said = f"No fixed IP addresses available for network: {port.network}"
    if port.resource_request:
        said = f"Failed to allocate additional resources to {server} during interface attach"
    here = tuple(miss for miss in verdict.ledger.misses if miss.host == _server(run).host)
    why = here[0].why if here else verdict.fault()
    ledger = DecisionRecord(1, 0, {miss.filter: 1 for miss in here}, here)  # no numbers of others for the owner
    return NoCapacity(said, private=f"{why}\n{msgspec.json.encode(ledger).decode()}", code="no_room_for_interface")


def _server(run: AttachRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


# --------------------------------------------------------------------------------------------------- beginning


class AttachWish(msgspec.Struct, frozen=True):
    """What the request asks for."""

    nic: NicWish
    external_allowed: bool = False
    """The caller may use external networks (a policy)."""


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    wish: AttachWish,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> str:
    """Attach a port, and return its id.  Raises what Nova refuses it with, and what `check` raises.

    `check` refuses a server in a state that forbids it; it is called when no other operation has the server.
    """
    refuse_without_credentials(context)
    checked = await _checked(context, token, server, wish.nic, wish.external_allowed)
    checked = await with_pools(context, checked)
    saga, owner = await newest_known(context, ATTACH_INTERFACE, ATTACH_INTERFACE_1)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        nic = _minted(checked.nics[0], now)
        input = AttachInterfaceInput(now, seq, nic, dict(checked.networks), request_id, principal.user, carried.get())
        return accepted(
            saga,
            operation,
            now,
            input,
            owner=owner,
            user=principal.user,
            seq=seq,
            request_id=request_id,
        )

    new = await server_lock.accept(context, server.id, ACTION, make)
    await dispatch(context, new)
    try:
        await server_lock.ended(context, new.id, owner, ANSWERED_WITHIN_S)
    except Problem as problem:
        raise _api_error(server, problem) from problem
    return await _port_of(context, new)


async def _port_of(context: SagaContext, new: Accepted) -> str:
    input = msgspec.json.decode(new.asked, type=AttachInterfaceInput)
    found = (await records.find(context, input.server.id)).server
    nics = () if found is None else found.nics
    port = next((nic.port for nic in nics if nic.index == input.nic.index), input.nic.port)
    if port is None:
        raise NotFound(f"Instance {input.server.id} lost the interface at once.")
    return port


async def _checked(
    context: SagaContext, token: str, server: Server, wish: NicWish, external_allowed: bool
) -> CheckedNics:
    """What the network service says of the wish, asked with the user's token; refusals in the words of an attach."""
    nic = NicAsk(0, wish.network or "", wish.port, wish.address, wish.tag, ours=wish.port is None)
    try:
        checked = await context.network.check(
            token,
            server.project,
            (nic,) if wish.network or wish.port else "unspecified",
            hostname=server.hostname,
            external_allowed=external_allowed,
        )
    except (Invalid, Conflict) as refused:
        kind = AS_ATTACH.get(refused.code)
        if kind is None:
            raise
        raise kind(refused.public, private=refused.private, code=refused.code) from refused
    if any(nic.vnic_type in ACCELERATED for nic in checked.nics):
        raise Invalid("Feature not supported with Ports that have accelerators.", code="port_has_accelerator")
    if not checked.nics:
        raise Invalid(
            f"No specific network was requested and none are available for project '{server.project}'.",
            code="no_network",
        )
    return checked


AS_ATTACH: Mapping[str, type[Problem]] = {
    "network_not_found": NotFound,
    "port_not_found": NotFound,
    "network_ambiguous": Invalid,
    "fixed_ip_in_use": Conflict,
}
"""Refusals of a boot that an attach is refused with otherwise."""


def _minted(nic: NicAsk, server: Server) -> NicAsk:
    """With an index that no card of this server had, as long as there is one, and the MAC that belongs to it."""
    used = {each.index for each in server.nics}
    index = max([server.next_nic, *(each + 1 for each in used)])
    if index >= NICS_MAX:
        free = [each for each in range(NICS_MAX) if each not in used]
        if not free:
            raise Invalid(f"Instance {server.id} has {NICS_MAX} interfaces, and may have no more.")
        index = free[0]
    nic = msgspec.structs.replace(nic, index=index)
    return msgspec.structs.replace(nic, mac=mint_mac(server.id, index)) if nic.ours else nic


def _api_error(server: Server, problem: Problem) -> Problem:
    """In Nova's words and kinds: a host that cannot is its failure, a lack or a refused bind the asker's."""
    if isinstance(problem, BindRefused | NoCapacity):
        return Invalid(problem.public, private=problem.private, code=problem.code)
    if isinstance(problem, HostFailed) and problem.code == NOT_SUPPORTED:
        return Invalid(f"Attaching interfaces is not supported for instance {server.id}.", code=problem.code)
    if isinstance(problem, HostFailed) and problem.code != HOST_SILENT:
        return HostFailed(
            f"Failed to attach network adapter device to {server.id}", private=str(problem), code=problem.code
        )
    if isinstance(problem, Conflict) and problem.code == "IpAddressGenerationFailure":
        return Invalid(f"No fixed IP addresses available for network: {problem.public}", code=problem.code)
    return problem
