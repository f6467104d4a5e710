"""Detach an interface: the host unplugs it, the port is released, the record drops it, and its claim is released.

Once unplugged, it only goes forward. The claim is released last: while the port may still have its address, the server
holds it. The same saga runs when the network service itself deleted the port (C13): then no port must be released, a
host that cannot unplug does not stop the saga, and what the record says the port held is released.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import Action, ActionEvent
from moorage.model.debt import Debt, DebtKind
from moorage.model.errors import NotFound
from moorage.model.ids import OperationId, ProviderId, new_uuid
from moorage.model.network import NicAsk
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.request_groups import FUNCTION_VNIC_TYPES
from moorage.model.server import Nic, Server
from moorage.model.task_context import global_request_id
from moorage.model.verdict import InventoryState
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.interfaces.shown_groups import groups_now
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import debt_of, owe_and_go_on
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context, is_given_up
from moorage.operations.steps.ports import held_by, nic_of, refuse_without_credentials, with_our_credentials
from moorage.operations.steps.servers import LocatedServer
from moorage.placement.claims import amounts_of
from moorage.saga import Cause, Run, Saga, no_result, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Key

logger = logging.getLogger(__name__)

FORWARD_ONLY = "what is unplugged is not plugged again: a detach only goes forward"
HOST_PATIENCE_S = 120.0
PATIENCE_S = 24 * 3600.0
"""How long it waits, once unplugged, for a service that does not answer before it is stuck."""
ACTION = "detach_interface"
EVENT = "compute_detach_interface"


class DetachInterfaceInput(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    nic: Nic
    gone: bool = False
    """The network service deleted the port already; no user asked for that, so no action shows it."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""


DetachRun = Run[DetachInterfaceInput, SagaContext]


class DetachBegun(msgspec.Struct, frozen=True):
    """Where the server is, and what its NIC holds there."""

    found: LocatedServer
    held: tuple[tuple[ProviderId, str, int], ...] = ()


@step
async def begin_action(run: DetachRun) -> DetachBegun:
    """Show the action from the start, and find where the server is and what its port holds now.

    Raises NotFound when the server is on no host.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    if not run.input.gone:
        await run.context.cells[located.cell].write(lambda tx: server_action.begin(tx, run, ACTION, EVENT))
    held = await _left_behind(run) if run.input.gone else held_by(await _as_it_is(run))
    return DetachBegun(located, tuple((provider, resource, amount) for (provider, resource), amount in held.items()))


async def _left_behind(run: DetachRun) -> dict[Key, int]:
    """What a port that is gone still holds.

    Its last guarantees can no longer be read. So the result is what the server holds of the same providers beyond its
    other ports. When the flavor has request groups too, the recorded values are used.
    """
    server, nic = run.input.server, run.input.nic
    held = held_by(nic)
    if not nic.guarantees or any(name.startswith("resources") for name in server.flavor.extra_specs):
        return held
    have = await run.context.region.read(lambda tx: claim_statements.held(tx, server.id))
    others: dict[Key, int] = {}
    for port in await run.context.network.ports_of(server.id):
        for provider, resource, amount in nic_of(port, None).guarantees:
            others[ProviderId(provider), resource] = others.get((ProviderId(provider), resource), 0) + amount
    promised = {(ProviderId(provider), resource) for provider, resource, _ in nic.guarantees}
    return held | {key: max(0, have.get(key, 0) - others.get(key, 0)) for key in promised}


async def _as_it_is(run: DetachRun) -> Nic:
    """The NIC with its port's current guarantees: the policy may have changed since they were recorded."""
    nic = run.input.nic
    try:
        port = await run.context.network.port(str(nic.port))
    except NotFound:
        return nic
    return msgspec.structs.replace(nic, guarantees=nic_of(port, None).guarantees) if port.host else nic


@begin_action.undo
async def fail_action(run: DetachRun) -> None:
    """End the action with Error; the interface is as before."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is not None and not run.input.gone:
        now = server_action.now_us()
        host = None if located.server is None else located.server.host
        events = (failed_event(EVENT, now, host, run.turned),)
        await run.context.cells[located.cell].write(lambda tx: server_action.finish(tx, run, events, now, "Error"))


@step(needs=(begin_action,), no_undo=FORWARD_ONLY, patience_s=HOST_PATIENCE_S, point_of_no_return=True)
async def unplug(run: DetachRun) -> bool | None:
    """Let the host remove it from the guest; no guest counts as success. A host that cannot do it leaves everything as
    it was; one that was told and does not answer is asked again until it does.

    Returns True when the host is forced down meanwhile: it owes the removal, and the port stays the server's until then.
    Of a port that is gone there is nothing to keep: a silent host owes the removal alone.
    """
    server = run[begin_action].found.server
    assert server is not None
    assert server.cell is not None
    assert server.host is not None
    to = HostAddress(server.cell, server.host)
    try:
        await run.context.hosts.detach_interface(to, command_context(run, "unplug"), server.id, str(run.input.nic.port))
    except COMMAND_ENDS as failed:
        if run.input.gone and failed.code in SILENT:
            debt = debt_of(run, DebtKind.UNPLUG_INTERFACE, to.cell, to.host, str(run.input.nic.port))
            return await owe_and_go_on(run, debt, keeps=False)
        if is_given_up(run, to, failed):
            return await owe_and_go_on(run, _interface_debt(run, to))
        if failed.code != NO_GUEST and not run.input.gone:
            raise
        logger.warning("%s: %s could not unplug %s: %s", run.operation, server.host, run.input.nic.port, failed)
    return None


def _interface_debt(run: DetachRun, to: HostAddress) -> Debt:
    """What the host owes; the port and its part of the claim are released when it has paid."""
    nic = run.input.nic
    return msgspec.structs.replace(
        debt_of(run, DebtKind.UNPLUG_INTERFACE, to.cell, to.host, str(nic.port)),
        nic=NicAsk(nic.index, nic.network, str(nic.port), mac=nic.mac or "", ours=nic.ours),
        held=run[begin_action].held,
        function_of=_function_of(nic),
    )


def _function_of(nic: Nic) -> tuple[str, ...]:
    """Of a virtual function: the ids by which the claim knows its port."""
    known_by = tuple(str(each) for each in (nic.port, nic.mac) if each)
    return known_by if nic.vnic_type in FUNCTION_VNIC_TYPES else ()


@step(needs=(begin_action, unplug), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def let_port_go(run: DetachRun) -> None:
    """Delete our port; the user's port keeps its addresses (S0.8)."""
    nic = run.input.nic
    if not run.input.gone and not run.get(unplug):
        letting_go = run.context.network.drop_port(run.input.server.id, str(nic.port), ours=nic.ours)
        await with_our_credentials(run.context, run.input.server.id, letting_go)


@step(needs=(begin_action, let_port_go), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def forget_nic(run: DetachRun) -> None:
    """Remove the NIC from the record, and finish the action."""
    located, now = run[begin_action].found, server_action.now_us()
    assert located.cell is not None
    host = None if located.server is None else located.server.host
    events = (ActionEvent(EVENT, now, now, "Success", host),)
    groups = await groups_now(run.context, run.input.server.id)

    def also(tx: Tx) -> None:
        if not run.input.gone:
            server_action.finish(tx, run, events, now)

    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: without_card(server, run.input.nic, now, groups),
        also,
    )


def without_card(server: Server, nic: Nic, now: int, groups: tuple[str, ...] | None = None) -> Server:
    """The record without a NIC, with the security groups of the others; its index is not used again."""
    return msgspec.structs.replace(
        server,
        nics=tuple(each for each in server.nics if each.port != nic.port),
        next_nic=max(server.next_nic, nic.index + 1),
        security_groups=server.security_groups if groups is None else groups,
        updated_at=now,
    )


@step(needs=(begin_action, forget_nic), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S, region=True)
async def give_back(run: DetachRun) -> None:
    """Release the segment's address, and the bandwidth of the providers that the binding named."""
    held, function_of = amounts_of(run[begin_action].held), _function_of(run.input.nic)

    def work(tx: Tx) -> Sequence[InventoryState]:
        if (held or function_of) and not run.get(unplug):
            return run.context.placement.shrink(tx, run.input.server.id, held, function_of)
        return ()

    run.context.placement.settle(await run.commit(work, result=no_result))


DETACH_INTERFACE = Saga(
    "detach_interface/1",
    DetachInterfaceInput,
    begin_action,
    unplug,
    let_port_go,
    forget_nic,
    give_back,
    ended=records.release_server,
)


async def begin(
    context: SagaContext,
    principal: Principal,
    server: Server,
    port: str,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> None:
    """Accept the detach of a port. Raises what `check` raises.

    A port that the server does not have is noticed after the answer, as Nova notices it on the host: the action shows
    the error.
    """
    refuse_without_credentials(context)
    try:
        await _begin(context, server, port, principal.user, check=check, gone=False, request_id=request_id)
    except NotAttached as absent:
        await _show_failed(context, server, principal.user, request_id, absent)


class NotAttached(NotFound):
    """The server has no such port."""

    code = "not_attached"


async def _show_failed(context: SagaContext, server: Server, user: str, request_id: str, absent: NotAttached) -> None:
    located = await records.find(context, server.id)
    if located.cell is None or located.server is None:
        raise absent
    now = server_action.now_us()
    event = failed_event(EVENT, now, located.server.host, Cause.of(absent, ACTION, 0))
    action = Action(
        server=server.id,
        action=ACTION,
        request_id=request_id or f"req-{new_uuid()}",
        user=user,
        project=server.project,
        started_at=now,
        updated_at=now,
        finished_at=now,
        message="Error",
        events=(event,),
    )
    await context.cells[located.cell].write(lambda tx: actions.write(tx, action))


async def begin_gone(context: SagaContext, server: Server, port: str) -> None:
    """Begin the detach of a port that the network service deleted. Raises Conflict when another operation holds the
    server: try again.
    """
    await _begin(context, server, port, server.user, check=lambda now: None, gone=True, request_id="")


async def _begin(
    context: SagaContext,
    server: Server,
    port: str,
    user: str,
    *,
    check: Callable[[Server], None],
    gone: bool,
    request_id: str,
) -> None:
    owner = await context.dispatcher.choose(DETACH_INTERFACE.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        nic = next((each for each in now.nics if each.port == port), None)
        if nic is None:
            raise NotAttached(f"Port {port} is not attached")
        input = DetachInterfaceInput(now, seq, nic, gone, request_id, user, global_request_id.get())
        return accepted(DETACH_INTERFACE, operation, now, input, owner=owner, user=user, seq=seq, request_id=request_id)

    await dispatch(context, await server_lock.accept(context, server.id, ACTION, make))
