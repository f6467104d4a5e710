"""Attaches an interface to a server that is on a host: makes the port, claims what it needs of the host and its
segment, binds and plugs it.

The request is answered when the attach is done, as in Nova. The port is read or made as for a boot: the NIC has an
index that no NIC of the server had, so its MAC is new, and a repeated POST finds the port that the first one made
(RULES §7). The claim adds an address of the segment to which this host is wired, and guaranteed bandwidth, to what the
server holds. When another claim was faster, the next segment or device of the host is tried, until none is left. When a
bind shows that a segment has no address left, the segment is skipped, as boots do: each attempt is on the same host,
and when no segment is left the refusal is the cause.
"""

from collections.abc import Callable

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.errors import NotFound, Problem
from moorage.model.ids import OperationId
from moorage.model.network import Port
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch, newest_known
from moorage.operations.boot.boot_checks import with_pools
from moorage.operations.context import SagaContext
from moorage.operations.interfaces.attach_checks import AttachWish, api_error, checked_nic, minted_nic
from moorage.operations.interfaces.attach_claim import (
    ACTION,
    EVENT,
    AttachInterfaceInput,
    AttachRun,
    CardClaim,
    begin_action,
    bind_port,
    claim_more,
    interface_debt,
    make_port,
    server_of,
)
from moorage.operations.interfaces.shown_groups import groups_now
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import owe
from moorage.operations.steps.hosts import command_context, unplug_or_leave, was_never_sent
from moorage.operations.steps.ports import nic_of, refuse_without_credentials, vif_of
from moorage.saga import Saga, on_some_host, step
from moorage.store.cell import servers as cell_servers

HOST_PATIENCE_S = 120.0
ANSWERED_WITHIN_S = 300.0


@step(needs=(begin_action, make_port, bind_port), patience_s=HOST_PATIENCE_S)
async def plug(run: AttachRun) -> None:
    """Let the host plug it into the guest, from complete data (S0.20)."""
    server, port = server_of(run), run[bind_port]
    assert server.cell is not None
    assert server.host is not None
    vif = vif_of(port, run.input.networks.get(port.network))
    to = HostAddress(server.cell, server.host)
    await run.context.hosts.attach_interface(to, command_context(run, "plug"), server.id, vif)


@plug.undo
async def unplug(run: AttachRun) -> None:
    """Take it out of the guest again; a silent host owes that, and the port stays the server's meanwhile."""
    located, port = run.get(begin_action), run.get(make_port)
    if located is None or located.server is None or port is None or was_never_sent(run, plug.name):
        return
    server = located.server
    if not await unplug_or_leave(run, "unplug", server, port.id):
        assert server.cell is not None
        assert server.host is not None
        await owe(run, interface_debt(run, server.cell, server.host, port))


@step(
    needs=(begin_action, bind_port, plug),
    no_undo="an interface that was shown stays until it is detached",
    point_of_no_return=True,
)
async def record_nic(run: AttachRun) -> None:
    """Write the NIC into the server's record, and finish the action.

    A later executor may not know how the port was bound; the record does.
    """
    located, port, now = run[begin_action], run.get(bind_port), server_action.now_us()
    assert located.cell is not None
    host = None if located.server is None else located.server.host
    events = (ActionEvent(EVENT, now, now, "Success", host),)
    groups = await groups_now(run.context, run.input.server.id)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: server if port is None else with_card(server, run, port, now, groups),
        lambda tx: server_action.finish(tx, run, events, now),
    )


def with_card(server: Server, run: AttachRun, port: Port, now: int, groups: tuple[str, ...] | None = None) -> Server:
    """The record with the attached NIC, and the security groups of all its ports."""
    nic = nic_of(port, run.input.networks.get(port.network))
    others = tuple(each for each in server.nics if each.port != nic.port)
    return msgspec.structs.replace(
        server,
        nics=(*others, nic),
        security_groups=server.security_groups if groups is None else groups,
        updated_at=now,
    )


@record_nic.passed
async def was_recorded(run: AttachRun) -> bool:
    """Whether the record shows the NIC. An adopter asks this; the earlier executor can write no more by then."""
    located, port = run.get(begin_action), run.get(make_port)
    if located is None or located.cell is None or port is None:
        return False
    by = records.fence(run)
    row = await run.context.cells[located.cell].write(lambda tx: cell_servers.take_over(tx, run.input.server.id, by))
    shown = row is not None and any(nic.port == port.id for nic in row.nics)
    if shown and row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return shown


def _same_host(_: CardClaim) -> str:
    """An attach always goes to the server's host, which its record names."""
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
"""One attempt, and one more for each segment without a free address."""

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
"""The version that conductors of 0.1 know: begun only while one of them lives, and executed to its end."""


# -------------------------------------------------------------------------------------------------- acceptance


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
    """Attach a port, and return its id. Raises Nova's refusals as `api_error` makes them, NotFound when the interface
    is gone at once, and what `check` raises.

    `check` refuses a server in a state that forbids it; it is called when no other operation holds the server.
    """
    refuse_without_credentials(context)
    checked = await checked_nic(context, token, server, wish.nic, wish.external_allowed)
    checked = await with_pools(context, checked)
    saga, owner = await newest_known(context, ATTACH_INTERFACE, ATTACH_INTERFACE_1)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        nic = minted_nic(checked.nics[0], now)
        input = AttachInterfaceInput(
            now, seq, nic, dict(checked.networks), request_id, principal.user, global_request_id.get()
        )
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
        raise api_error(server, problem) from problem
    return await _port_of(context, new)


async def _port_of(context: SagaContext, new: Accepted) -> str:
    input = msgspec.json.decode(new.asked, type=AttachInterfaceInput)
    server = (await records.find(context, input.server.id)).server
    nics = () if server is None else server.nics
    port = next((nic.port for nic in nics if nic.index == input.nic.index), input.nic.port)
    if port is None:
        raise NotFound(f"Instance {input.server.id} lost the interface at once.")
    return port
