"""The first half of an attach: the port is made, its address and guarantees are claimed, and it is bound to the host."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.model.debt import Debt, DebtKind
from moorage.model.decision_log import Subject
from moorage.model.errors import NoCapacity, NotFound, Problem
from moorage.model.ids import CellId, ProviderId
from moorage.model.network import BindOptions, BindRefused, NetworkFacts, NicAsk, Port
from moorage.model.server import Server
from moorage.model.verdict import Claimed, DecisionRecord, InventoryState, Shortage, Verdict
from moorage.model.world import Ask, Choice
from moorage.operations.context import SagaContext
from moorage.operations.interfaces.attach_checks import api_error
from moorage.operations.steps import groups, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.claims import first
from moorage.operations.steps.debts import debt_of, is_owed_by
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.ports import (
    other_subnets,
    segments_for,
    with_our_credentials,
)
from moorage.operations.steps.segments import note_exhausted, without_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.placement.claims import amounts_of, portions
from moorage.saga import Run, step
from moorage.sql import Tx

NETWORK_PATIENCE_S = 120.0
CLAIM_ROUNDS_MAX = 50
ACTION = "attach_interface"
EVENT = "compute_attach_interface"


class AttachInterfaceInput(msgspec.Struct, frozen=True):
    """One NIC, decided before step one."""

    server: Server
    seq: int
    nic: NicAsk
    networks: dict[str, NetworkFacts] = {}
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""


class CardClaim(msgspec.Struct, frozen=True):
    """What was claimed for the NIC, and from which providers."""

    amounts: tuple[tuple[ProviderId, str, int], ...] = ()
    subnet: str | None = None
    """The subnet of its address, on a routed network."""
    profiles: dict[int, dict[str, Any]] = {}
    """The binding profile: the providers of its guarantees."""
    given: tuple[groups.GroupShare, ...] = ()


AttachRun = Run[AttachInterfaceInput, SagaContext]


@step
async def begin_action(run: AttachRun) -> LocatedServer:
    """Show the action from the start, and use up the NIC's index, also if the attach fails later.

    Raises NotFound when the server is on no host.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    taken = run.input.nic.index + 1
    return await records.begun(
        run,
        located,
        lambda server: msgspec.structs.replace(server, next_nic=max(server.next_nic, taken)),
        lambda tx: server_action.begin(tx, run, ACTION, EVENT),
    )


@begin_action.undo
async def fail_action(run: AttachRun) -> None:
    """End the action with Error; the server is unchanged."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is not None:
        now = server_action.now_us()
        host = None if located.server is None else located.server.host
        problem = None if run.turned is None else api_error(run.input.server, run.turned.problem())
        events = (failed_event(EVENT, now, host, run.turned, problem),)
        await run.context.cells[located.cell].write(lambda tx: server_action.finish(tx, run, events, now, "Error"))


@step(patience_s=NETWORK_PATIENCE_S, needs=(begin_action,))
async def make_port(run: AttachRun) -> Port:
    """Read the user's port, or make one; it is not bound. The minted MAC makes a repeat safe (RULES §7)."""
    server = run.input.server
    ports = await run.context.network.ensure_ports(
        server.id, server.project, (run.input.nic,), unsure=run.unsure, hostname=server.hostname
    )
    return ports[0]


@make_port.undo
async def release_port(run: AttachRun) -> None:
    """Delete our port, or restore the user's. It is found by MAC or id, so this is safe when none was made."""
    if await _is_owed(run):
        return
    letting_go = run.context.network.release_nic(run.input.server.id, run.input.nic)
    await with_our_credentials(run.context, run.input.server.id, letting_go)


@step(region=True, moves=True, needs=(begin_action, make_port))
async def claim_more(run: AttachRun) -> CardClaim:
    """Claim what the port needs on the server's own host and its segment; if another claim was faster, try the next
    candidate (N1, N5).

    What an earlier attempt claimed on a segment without addresses is released in the same transaction.
    """
    engine, ask = run.context.placement, _ask(run)
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    ask = without_exhausted(ask, (run[make_port],), exhausted)
    if not any(nic.segments for nic in ask.nics) and not ask.groups:
        return await run.commit(lambda tx: CardClaim())
    subject = Subject(run.input.server.id, run.operation, run.attempt, "attach")
    verdict, fresh = engine.decide(ask, subject), False
    for _ in range(CLAIM_ROUNDS_MAX):
        if verdict.best:
            answer = await _take(run, verdict.best[0], ask)
            if isinstance(answer, CardClaim):
                return answer
        elif fresh:
            break
        # The numbers that were short are known now, so the next candidate comes first: all are tried before a "no".
        verdict, fresh = await engine.decide_fresh(ask, subject), True
    raise _no_room(run, verdict)


async def _take(run: AttachRun, choice: Choice, ask: Ask) -> CardClaim | Shortage:
    engine, server = run.context.placement, run.input.server.id
    given = _given(run, choice, ask)

    def work(tx: Tx) -> tuple[CardClaim, Claimed, Sequence[InventoryState]]:
        back = _retracted(tx, run, run.earlier(claim_more))
        answer = engine.extend(tx, server, choice, ask, run.operation)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        profiles = groups.with_functions(given.profiles, (run[make_port],), answer.functions)
        return msgspec.structs.replace(given, profiles=profiles), answer, back

    with engine.holding(choice, ask):
        answer: tuple[CardClaim, Claimed, Sequence[InventoryState]] | Shortage = await run.commit(work, result=first)
    if isinstance(answer, Shortage):
        engine.lost(answer)
        return answer
    granted_now, taken, back = answer
    engine.settle(back)
    engine.claimed(taken)
    return granted_now


def _retracted(tx: Tx, run: AttachRun, given: CardClaim | None) -> tuple[InventoryState, ...]:
    """Release what this operation claimed, and no more: the consumer's name is this operation's."""
    if given is None or not given.amounts:
        return ()
    port = run.get(make_port)
    function_of = None if port is None or not groups.is_function(port) else port.id
    amounts = amounts_of(given.amounts)
    return run.context.placement.retract(tx, run.input.server.id, amounts, run.operation, function_of)


@claim_more.undo
async def give_back(run: AttachRun) -> None:
    given = run.get(claim_more)
    if given is None or not given.amounts or await _is_owed(run):
        return
    run.context.placement.settle(await run.commit(lambda tx: _retracted(tx, run, given)))


@step(moves=True, needs=(begin_action, make_port, claim_more), patience_s=NETWORK_PATIENCE_S)
async def bind_port(run: AttachRun) -> Port:
    """Set the server's host on the port; a deferred address is assigned here, and a refusal found here (S0.13)."""
    server, given, port = server_of(run), run[claim_more], run[make_port]
    assert server.host is not None
    subnets = {port.index: given.subnet} if given.subnet else {}
    try:
        bound = await run.context.network.bind_ports(
            server.id,
            server.host,
            server.availability_zone or run.context.settings.default_availability_zone,
            (port,),
            BindOptions(
                subnets=subnets,
                other_subnets=other_subnets((port,), run.input.networks, subnets),
                profiles=given.profiles,
            ),
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, run.input.networks, subnets)
        raise
    return bound[0]


@bind_port.undo
async def unbind_port(run: AttachRun) -> None:
    port = run.get(make_port)
    if port is not None and not await _is_owed(run):
        letting_go = run.context.network.unbind_ports(run.input.server.id, (port,))
        await with_our_credentials(run.context, run.input.server.id, letting_go)


def interface_debt(run: AttachRun, cell: CellId, host: str, port: Port) -> Debt:
    """What a host owes that may have plugged the port in; the port and its part of the claim stay until it is paid."""
    given = run.get(claim_more)
    return msgspec.structs.replace(
        debt_of(run, DebtKind.UNPLUG_INTERFACE, cell, host, port.id),
        nic=run.input.nic,
        held=() if given is None else given.amounts,
        function_of=(port.id,) if groups.is_function(port) else (),
    )


async def _is_owed(run: AttachRun) -> bool:
    """Whether the guest may have the port, and its host is silent: then nothing of it is released."""
    return await is_owed_by(run, DebtKind.UNPLUG_INTERFACE)


def _ask(run: AttachRun) -> Ask:
    server, port = server_of(run), run[make_port]
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
    """The refusal with Nova's message; the cause with its numbers is for operators (N2)."""
    server, port = run.input.server.id, run[make_port]
    public = f"No fixed IP addresses available for network: {port.network}"
    if port.resource_request:
        public = f"Failed to allocate additional resources to {server} during interface attach"
    misses = tuple(miss for miss in verdict.ledger.misses if miss.host == server_of(run).host)
    why = misses[0].why if misses else verdict.fault()
    ledger = DecisionRecord(
        1, 0, {miss.filter: 1 for miss in misses}, misses
    )  # no amounts of other projects for the owner
    return NoCapacity(public, private=f"{why}\n{msgspec.json.encode(ledger).decode()}", code="no_room_for_interface")


def server_of(run: AttachRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server
