"""Live migration of a guest: the state at both hosts, waiting for the switch, and its volumes at both ends."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.bus.move_payloads import ForceLive, LiveTarget, OfMove, SendLive
from moorage.bus.verbs import Verb
from moorage.model.errors import Conflict, HostFailed, NotFound, Problem, Stale, Unavailable
from moorage.model.guest import GuestSpec, MoveTarget
from moorage.model.live_migration import LiveNow, LiveSource, LiveState
from moorage.model.migration import MigrationStatus, TransferProgress
from moorage.model.network import BindRefused, Port
from moorage.model.server import BlockDevice, Server
from moorage.operations.context import SagaContext
from moorage.operations.steps import move_ports, moving
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.hosts import NO_GUEST, SILENT, unique_command
from moorage.operations.steps.live_positions import (
    LiveMovePath,
    closed,
    command_after,
    now_at,
    stays_for_certain,
    switched,
    unless,
)
from moorage.operations.steps.moving import HostOfCell, MoveRun
from moorage.operations.steps.ports import VIF_PLUGGED
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.volumes import connector_of, volumes_of
from moorage.store.cell import migrations
from moorage.store.region import inbox
from moorage.store.region import operations as region_operations

logger = logging.getLogger(__name__)

FORCE = "live-migration-force-complete"
"""The name of the inbox event that forces a migration; its tag is the move."""
ABORTED, TIMED_OUT = "live_migration_aborted", "live_migration_timed_out"
LOOK_FIRST_S, LOOK_MOST_S = 0.05, 1.0
LOOK_FOR_EVENT_S = 5.0
SHOWN_EVERY_S = 1.0
"""The shortest interval between two writes of the progress."""


# -------------------------------------------------------------------------------------------------- before the switch


async def source_of(run: MoveRun, source: HostAddress) -> LiveSource:
    """Read the source's report. Raises HostFailed when it is silent, or cannot send a running guest."""
    return await run.context.hosts.ask(source, run.input.server.id, Verb.LIVE_SOURCE, None, LiveSource)


async def target_at(
    run: MoveRun, to: HostOfCell, source: LiveSource, guest: GuestSpec, *, block: bool | None
) -> MoveTarget:
    """Read where the destination takes the guest. Raises HostFailed when the guest could not run there."""
    address = HostAddress(to.cell, to.name)
    input = LiveTarget(guest, source, block)
    return await run.context.hosts.ask(address, run.input.server.id, Verb.LIVE_TARGET, input, MoveTarget)


# --------------------------------------------------------------------------------------------------------- the switch


async def sending_since(run: MoveRun, way: LiveMovePath) -> int:
    """When the guest was first sent, from the move's record, in microseconds since 1970; now, when there is no record."""
    migration = await run.context.cells[way.source.cell].read(lambda tx: migrations.get(tx, way.move))
    return migration.sending_at if migration is not None and migration.sending_at else now_us()


def is_overdue(since: int, timeout_s: float) -> bool:
    """Whether sending has taken longer than `timeout_s` in all, also across executors."""
    return now_us() - since > timeout_s * 1e6


async def begin(run: MoveRun, way: LiveMovePath) -> None:
    order = SendLive(way.target, way.move)
    await run.context.hosts.change_guest(
        way.source, command_after(run, "send_live", way.attempt), run.input.server.id, Verb.SEND_LIVE, order
    )


async def has_left(run: MoveRun, way: LiveMovePath, timeout_s: float, *, post_copy: bool) -> LiveNow | None:
    """Wait until the guest has left its source, and return None; or return the source's last state when the guest will
    not leave.

    In that case nothing is under way any more, so the executor may undo the move. A cancel aborts the migration, and so
    does `timeout_s` (seconds) since the first start.
    """
    loop, since = asyncio.get_running_loop(), await sending_since(run, way)
    look_in_s, shown_at, shown = LOOK_FIRST_S, loop.time(), TransferProgress()
    forced, ending = False, ""
    while True:
        if not ending and await is_cancelled(run):
            ending = ABORTED
        elif not ending and is_overdue(since, timeout_s):
            ending = TIMED_OUT
        if ending and (over := await _end(run, way)) is not None:
            return msgspec.structs.replace(over, why=ending)
        now = await now_at(run, way.source, way.move)
        if now is not None and await stays_for_certain(run, way, now):
            return now
        if await switched(run, way, now):
            return None
        if now is not None and not forced and await _is_forced(run, way.move):
            await _force(run, way, post_copy=post_copy)
            forced, look_in_s = True, LOOK_FIRST_S
            continue
        sent = None if now is None else now.progress
        if sent is not None and sent != shown and loop.time() - shown_at >= SHOWN_EVERY_S:
            shown_at, shown = loop.time(), sent
            try:
                await show(run, way, MigrationStatus.RUNNING, progress=shown)
            except Problem as problem:  # an executor that was overtaken notices it elsewhere; the transfer goes on
                logger.warning("%s: the progress is not written: %s", run.operation, problem.public)
        await asyncio.sleep(look_in_s)
        look_in_s = min(look_in_s * 2, LOOK_MOST_S)


async def _end(run: MoveRun, way: LiveMovePath) -> LiveNow | None:
    """Abort. Returns the source's state if the guest stays; None when it has left, or when no host can tell yet."""
    mine, move = command_after(run, unique_command("abort_live"), way.attempt), OfMove(way.move)
    call = run.context.hosts.change_guest(way.source, mine, run.input.server.id, Verb.ABORT_LIVE, move)
    await unless(call, *SILENT, NO_GUEST)
    now = await now_at(run, way.source, way.move)
    if now is not None:
        return now if await stays_for_certain(run, way, now) else None
    if await closed(run, way, "close_live"):
        return LiveNow(LiveState.ABORTED)
    return None


async def stays(run: MoveRun, way: LiveMovePath) -> bool:
    """Stop the sending; return True when the guest is at its source, False when it has left or no host can tell."""
    return await _end(run, way) is not None


async def stay(run: MoveRun, way: LiveMovePath) -> None:
    """The undo: the same. Raises Unavailable while no host can tell."""
    if await stays(run, way):
        return
    raise Unavailable("neither host reports where the guest is; waiting for them")


async def _force(run: MoveRun, way: LiveMovePath, *, post_copy: bool) -> None:
    order = ForceLive(way.move, post_copy)
    mine = command_after(run, unique_command("force_live"), way.attempt)
    call = run.context.hosts.change_guest(way.source, mine, run.input.server.id, Verb.FORCE_LIVE, order)
    await unless(call, *SILENT, NO_GUEST)


async def unplugged_after(run: MoveRun, ports: set[str], timeout_s: float) -> set[str]:
    """Wait until the network service reports all these ports as plugged; return those that are not when the time is
    over.

    Their active bindings are still elsewhere, so only the events count, not the state of the ports. Raises HostFailed
    when one failed.
    """
    server, waiting, loop = run.input.server.id, set(ports), asyncio.get_running_loop()
    until = loop.time() + timeout_s
    with run.context.arrivals.of(server) as arrived:
        while True:
            arrived.clear()
            events = await run.context.region.read(lambda tx: inbox.of_server(tx, server, VIF_PLUGGED))
            failed = [each.tag for each in events if each.status == "failed" and each.tag in waiting]
            if failed:
                raise HostFailed("the network could not be plugged", private=", ".join(failed), code="vif_not_plugged")
            waiting -= {each.tag for each in events if each.status == "completed"}
            left_s = until - loop.time()
            if not waiting or left_s <= 0:
                return waiting
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_FOR_EVENT_S)):
                    await arrived.wait()


async def is_cancelled(run: MoveRun) -> bool:
    """Whether the migration was cancelled."""
    operation = await run.context.region.read(lambda tx: region_operations.get(tx, run.operation))
    return operation is not None and operation.cancel is not None


async def _is_forced(run: MoveRun, move: str) -> bool:
    events = await run.context.region.read(lambda tx: inbox.of_server(tx, run.input.server.id, FORCE))
    return any(each.tag == move for each in events)


async def show(run: MoveRun, way: LiveMovePath, status: MigrationStatus, **changes: Any) -> None:
    """Write the status into the move's record, if this executor still holds the fence."""
    await moving.show(run, way.source.cell, way.move, status, **changes)


# ------------------------------------------------------------------------------------------------------------ ports


async def bound_after(run: MoveRun, cards: Cards, to: move_ports.BindTarget, *, second: bool) -> tuple[Port, ...]:
    """Make the ports active where the guest is now, as far as the network service allows; where the guest is, is not
    questioned any more.

    A port that no longer belongs to the server is left out, and one that is refused stays as it is: the port reconciler
    corrects it.
    """
    try:
        return await move_ports.bound_at(run, cards, to, second=second)
    except (NotFound, Stale, BindRefused) as problem:
        logger.warning("%s: ports are bound one by one: %s", run.operation, problem.public)
    bound: list[Port] = []
    for port in cards.ports:
        now = await _as_it_is(run, port)
        if now is not None:
            bound.extend(await _bound_if_allowed(run, now, to, second=second))
    return tuple(bound)


async def _as_it_is(run: MoveRun, port: Port) -> Port | None:
    """None when the port no longer belongs to the server. Raises Unavailable when the network service hides the port
    and does not say that it is gone.
    """
    server = run.input.server
    try:
        now = await run.context.network.port(port.id)
    except NotFound as missing:
        if await run.context.network.ports_gone([port.id], server.project):
            return None
        raise Unavailable(
            "The network service does not show all ports of the server now.", private=port.id
        ) from missing
    if now.device_id != server.id:
        return None
    return msgspec.structs.replace(now, index=port.index, tag=port.tag, ours=port.ours)


async def _bound_if_allowed(run: MoveRun, port: Port, to: move_ports.BindTarget, *, second: bool) -> tuple[Port, ...]:
    """The port as it is bound now; none when it was deleted meanwhile."""
    for twice in (True, False) if second else (False,):  # its second binding may have been deleted
        try:
            return await move_ports.bound_at(run, Cards((port,)), to, second=twice)
        except (NotFound, Stale, BindRefused) as problem:
            logger.warning("%s: port %s is not bound to %s: %s", run.operation, port.id, to.end.name, problem.public)
    return (port,)


async def drop_bindings(run: MoveRun, host: str, cards: Cards) -> None:
    """Remove the ports' bindings on the host that the guest left; a port that could not be bound elsewhere keeps its
    binding.
    """
    for port in cards.ports:
        try:
            await run.context.network.delete_binding(run.input.server.id, host, [port.id])
        except Conflict as active:
            logger.warning("%s: port %s stays bound to %s: %s", run.operation, port.id, host, active.public)


# ---------------------------------------------------------------------------------------------------------- volumes


async def export_second_attachment(context: SagaContext, to: HostAddress, server: Server, device: BlockDevice) -> str:
    """Export the volume to that host too, while the guest uses it on its own host; return the attachment. A repeat
    returns the same one.
    """
    assert device.volume is not None
    client, beside = volumes_of(context), await _second_attachments(context, server, device)
    for each in beside[1:]:
        await client.drop_attachment(each)
    if beside:
        return beside[0]
    connector = await connector_of(context, to, server.id, device)
    return (await client.export_again(device.volume, server.id, connector, to.host)).id


async def drop_second_attachments(context: SagaContext, server: Server, device: BlockDevice) -> None:
    """Leave the volume to its own host only."""
    for each in await _second_attachments(context, server, device):
        await volumes_of(context).drop_attachment(each)


async def _second_attachments(context: SagaContext, server: Server, device: BlockDevice) -> list[str]:
    """All attachments of the volume for the server that the record does not have."""
    attachments = await volumes_of(context).attachments_of(server.id, device.volume)
    return [each.id for each in attachments if each.id != device.attachment]


async def complete_second_attachments(context: SagaContext, to: HostAddress, server: Server) -> dict[str, str]:
    """Mark each volume as in use there; return mapping → attachment. A volume that no longer exists is left out."""
    attachments: dict[str, str] = {}
    for each in server.volumes:
        try:
            attachment = await export_second_attachment(context, to, server, each)
            await volumes_of(context).complete(attachment)
        except NotFound as gone:
            logger.warning(
                "volume %s of server %s is not exported to %s: %s", each.volume, server.id, to.host, gone.public
            )
        else:
            attachments[each.bdm] = attachment
    return attachments


async def present_second_attachments(
    context: SagaContext, server: Server, attachments: Mapping[str, str]
) -> dict[str, str]:
    """Those of the attachments that the volume service still has."""
    existing = {each for device in server.volumes for each in await _second_attachments(context, server, device)}
    return {bdm: each for bdm, each in attachments.items() if each in existing}


def with_volumes(server: Server, attachments: Mapping[str, str]) -> Server:
    """The record with only those volumes that have an attachment here."""
    volumes = {each.bdm for each in server.volumes}
    kept = tuple(each for each in server.block_devices if each.bdm not in volumes or each.bdm in attachments)
    return msgspec.structs.replace(server, block_devices=kept)
