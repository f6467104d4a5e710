"""The first half of a live migration: a host is chosen, checked and prepared. The guest is not changed yet."""

import logging

import msgspec

from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.bus.move_payloads import TakeGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import BusOut, Doubtful, HostFailed, Unavailable, UnknownOutcome
from moorage.model.guest import GuestSpec, MoveTarget
from moorage.model.ids import CellId
from moorage.model.live_migration import LiveSource
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import Port
from moorage.model.server import Server
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate, ask_of
from moorage.operations.steps import (
    live_migration,
    live_migration_limit,
    live_positions,
    move_ports,
    moving,
    other_cells,
    server_action,
)
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.failures import as_it_was, failed_event
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import command_context, destroy_or_leave
from moorage.operations.steps.live_migration_limit import QUEUED_MAX_S
from moorage.operations.steps.live_positions import LiveMovePath
from moorage.operations.steps.moving import End
from moorage.operations.steps.other_cells import CellReach
from moorage.operations.steps.segment_change import Tries
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete
from moorage.saga import Run, step
from moorage.sql import Tx

logger = logging.getLogger(__name__)

NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
PLUGGED_WITHIN_S = 10.0
"""How long the network's word of ports that wait at the destination is waited for."""
REFUSALS = frozenset({"live_refused", NOT_SUPPORTED})
"""Codes with which a healthy host says that it cannot run the guest."""
ACTION = "live-migration"
EVENTS = (
    "conductor_live_migrate_instance",
    "compute_check_can_live_migrate_destination",
    "compute_pre_live_migration",
    "compute_live_migration",
    "compute_post_live_migration_at_destination",
)
SWITCHING, NOTHING_ARRIVED = "switch_guest", "nothing_arrived"
LiveRun = Run[LiveMigrate, SagaContext]


class Bound(msgspec.Struct, frozen=True):
    """What was made of its ports at the destination."""

    second: bool = False
    """Whether they have inactive bindings there; otherwise they are bound there after the switch."""
    ports: tuple[Port, ...] = ()
    """The ports as they will be there."""


@step
async def begin_action(run: LiveRun) -> LocatedServer:
    """Show the action and the move's record from the start."""
    return await moving.begun(run, ACTION, MigrationType.LIVE_MIGRATION, MigrationStatus.ACCEPTED, EVENTS[0])


@begin_action.undo
async def fail_action(run: LiveRun) -> None:
    """End the action and the move's record with Error; the server stays where it was, and was never off."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None or located.server is None:
        return
    now, turned, stopped = server_action.now_us(), run.turned, was_stopped(run)
    status = MigrationStatus.ERROR
    if stopped:
        status = MigrationStatus.CANCELLED
    elif turned is not None and turned.step == SWITCHING:
        status = MigrationStatus.FAILED
    events = (
        failed_event(
            EVENTS[3 if turned is not None and turned.step == SWITCHING else 0], now, source_end(run).name, turned
        ),
    )

    def finish(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status, stays=False)
        server_action.finish(tx, run, events, now, "Error")

    changed = lambda server: as_it_was(server, None if stopped else turned, now)  # noqa: E731
    await records.change(run.context, located.cell, located.server.id, records.fence(run), changed, finish, last=True)


def was_stopped(run: LiveRun) -> bool:
    """Whether a cancel or delete stopped the move."""
    return run.cancelled is not None or (run.turned is not None and run.turned.problem().code == live_migration.ABORTED)


@step(needs=(begin_action,), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: LiveRun) -> Cards:
    """Read the ports once for the whole move (S1.16). Ports with guarantees need two bindings, and hosts that support
    that.
    """
    cards = await cards_of(run.context, server_of(run))
    await refuse_guarantees(run.context, cards, source_end(run).name)
    return cards


async def refuse_guarantees(context: SagaContext, cards: Cards, source: str) -> None:
    """Check ports with a resource request. Raises HostFailed when they cannot be bound to two hosts, or when an agent
    or the pin is too old.
    """
    if not any(port.resource_request for port in cards.ports):
        return
    if not await move_ports.second_bindings(context, cards, source, ""):
        why = (
            "the network service has one binding of a port only" if not await context.network.has_bindings() else source
        )
        raise HostFailed(
            "Ports with a resource request cannot be live migrated: they cannot be bound to two hosts.",
            private=why,
            code="no_second_bindings",
        )
    move_ports.refuse_old_hosts(context, source, cards.ports, "live migrated")


@step(needs=(begin_action, read_ports), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def check_source(run: LiveRun) -> LiveSource:
    """Check that its own host can send it, before anything is changed. Raises HostFailed when it cannot."""
    if any(each.attachment is None for each in server_of(run).volumes):
        raise HostFailed("a volume of the server is not exported to its host", code="volume_not_exported")
    return await live_migration.source_of(run, source_end(run).address)


@step(needs=(begin_action, read_ports), no_undo="reads only", patience_s=VOLUME_PATIENCE_S)
async def check_cells(run: LiveRun) -> CellReach:
    """Which other cells are unsuitable, also because they are not linked; only for a server that may leave its cell
    (`live_migrate/2`).
    """
    return await other_cells.reach_of(run.context, server_of(run), run[read_ports], other_cells.LIVE)


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: LiveRun) -> Claim:
    """Claim the best host with room, in its cell or in any allowed cell. The move then holds what the server held."""
    cards = run[read_ports]
    ask = ask_of(run.input, server_of(run), cards, cell_of(run), run.blamed, attempt=run.attempt)
    tries = other_cells.widened(run, Tries((ask,), ask), cell_of(run), run.get(check_cells))
    return await move_claims.claimed(run, tries, cards)


@claim_host.undo
async def give_claim_back(run: LiveRun) -> None:
    """The server holds again what the move held."""
    await move_claims.given_back(run)


@step(needs=(claim_host, check_source, read_ports), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def check_destination(run: LiveRun) -> MoveTarget:
    """Check that the guest could run there: processors, hypervisor, disks. Raises HostFailed for a host that refuses,
    is silent, or is of an older release.
    """
    claim, cards = run[claim_host], run[read_ports]
    guest = await guest_there(run, claim, cards.ports, {})
    server_action.ActionProgress(begun=((EVENTS[1], claim.name),)).note(run)
    try:
        return await live_migration.target_at(run, claim, run[check_source], guest, block=run.input.block)
    except HostFailed as failed:
        if failed.code not in REFUSALS:
            run.context.placement.count_failure(claim.host, failed=True)
        raise
    except BusOut:
        raise
    except UnknownOutcome as hangs:  # nothing was begun there: the next host may answer
        run.context.placement.count_failure(claim.host, failed=True)
        raise HostFailed("the host did not answer in time", private=hangs.public, code="host_hangs") from hangs


@step(host_local=True, needs=(read_ports, claim_host, check_destination), patience_s=NETWORK_PATIENCE_S)
async def bind_destination(run: LiveRun) -> Bound:
    """Make inactive bindings with the claimed providers (S1.6); a refusal is found here."""
    claim, cards = run[claim_host], run[read_ports]
    if not await wants_second_bindings(run, claim, cards):
        return Bound()
    await records.not_overtaken(run, cell_of(run))
    id, profiles = run.input.server.id, claim.profiles
    return Bound(True, await run.context.network.bind_inactive(id, claim.name, cards.ports, profiles=profiles))


@bind_destination.undo
async def unbind_destination(run: LiveRun) -> None:
    claim, cards = run.get(claim_host), run.get(read_ports)
    if claim is not None and cards is not None and await wants_second_bindings(run, claim, cards):
        await run.context.network.delete_binding(run.input.server.id, claim.name, [port.id for port in cards.ports])


async def wants_second_bindings(run: LiveRun, claim: Claim, cards: Cards) -> bool:
    return await move_ports.second_bindings(run.context, cards, source_end(run).name, claim.name)


@step(
    moves=True,
    needs=(begin_action, claim_host, check_destination, bind_destination),
    no_undo="what the move's record says of its destination stays; that it failed is said by the first step's undo",
    patience_s=QUEUED_MAX_S,
)
async def record_destination(run: LiveRun) -> None:
    """Write the destination and `preparing` into the move's record. While the source sends as many guests as it may,
    the record says that the move is queued.
    """
    claim = run[claim_host]
    to = move_claims.destination(claim, run[check_destination].address)
    to["dest_cell"] = None if claim.cell == cell_of(run) else claim.cell
    prepares = server_action.ActionProgress(EVENTS[:2], ((EVENTS[2], claim.name),))
    await live_migration_limit.taken(run, path_of(run), prepares, **to)


@step(host_local=True, needs=(begin_action, claim_host, check_destination), patience_s=VOLUME_PATIENCE_S)
async def export_volumes(run: LiveRun) -> dict[str, str]:
    """Export each volume to the destination too, in addition to its own host. Returns mapping → attachment."""
    server, claim = server_of(run), run[claim_host]
    if not server.volumes:
        return {}
    await records.not_overtaken(run, cell_of(run))
    to = End(claim.cell, claim.name).address
    return {
        each.bdm: await live_migration.export_second_attachment(run.context, to, server, each)
        for each in server.volumes
    }


@export_volumes.undo
async def drop_exports(run: LiveRun) -> None:
    located = run.get(begin_action)
    if located is None or located.server is None:
        return
    for each in located.server.volumes:
        await or_left_to_delete(
            run.context, located.server.id, live_migration.drop_second_attachments(run.context, located.server, each)
        )


@step(
    host_local=True,
    needs=(claim_host, check_destination, bind_destination, export_volumes),
    patience_s=HOST_PATIENCE_S,
)
async def prepare_guest(run: LiveRun) -> None:
    """Prepare a place for the guest at the destination; nothing runs there."""
    claim, bound = run[claim_host], run[bind_destination]
    guest = await guest_there(run, claim, bound.ports or run[read_ports].ports, run[export_volumes])
    order, to = TakeGuest(guest, run.input.migration), End(claim.cell, claim.name).address
    await run.context.hosts.change_guest(
        to, command_context(run, "prepare_guest"), guest.server, Verb.PREPARE_LIVE, order
    )
    run.context.placement.count_failure(claim.host, failed=False)


@prepare_guest.undo
async def drop_guest(run: LiveRun) -> None:
    """Remove that place. A silent host learns from its cell that the guest does not belong there. Raises Unavailable
    when the host fails, Doubtful when the only guest may run there.
    """
    claim = run.get(claim_host)
    if claim is None:
        return
    await live_migration_limit.freed(run, source_end(run).cell, run.input.migration)
    if await live_positions.may_run_at_destination(run, path_of(run), "look_before_drop"):
        raise Doubtful(
            f"The old host of instance {run.input.server.id} does not say that it has its guest, so the one on its new host is kept."
        )
    try:
        await destroy_or_leave(run, "drop_guest", claim.cell, claim.name, run.input.server.id)
    except HostFailed as failed:
        raise Unavailable(
            f"the host could not remove the prepared guest: {failed.public}", private=failed.private
        ) from failed


@step(
    needs=(claim_host, bind_destination, prepare_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: LiveRun) -> None:
    """Before anything is sent, a moment for ports that are plugged when their place is made (`ovs_hybrid_plug`).

    Neutron says nothing of a port that was plugged where its binding is not active yet, unless an older release does; so silence is
    no failure here, and the port is wired when its binding is activated.  Raises HostFailed when it says that one failed.
    """
    settings = run.context.settings
    waiting = {port.id for port in run[bind_destination].ports if port.vif_details.get("ovs_hybrid_plug")}
    if settings.vif_plugging_timeout_s <= 0 or not waiting:
        return
    timeout_s = min(settings.vif_plugging_timeout_s, PLUGGED_WITHIN_S)
    missing = await live_migration.unplugged_after(run, waiting, timeout_s)
    if missing:
        logger.info("%s: nothing was said of ports that wait there: %s", run.operation, ", ".join(sorted(missing)))


async def guest_there(run: LiveRun, claim: Claim, ports: tuple[Port, ...], attachments: dict[str, str]) -> GuestSpec:
    server, networks = server_of(run), run[read_ports].networks
    server = live_migration.with_volumes(server, attachments) if attachments else server
    guest = guest_of(server, networks, ports, claim.availability_zone)
    guest = await with_drive(run.context, server, guest, networks, ports)
    return await with_disks(run.context, server, guest, attachments)


def path_of(run: LiveRun) -> LiveMovePath:
    claim, target = run[claim_host], run.get(check_destination)
    to = End(claim.cell, claim.name).address
    return LiveMovePath(source_end(run).address, to, run.input.migration, target or MoveTarget(), claim.attempt)


def source_end(run: LiveRun) -> End:
    """The host where the server was when the move was accepted: no other operation can come in between."""
    return moving.current_end(run.input.server)


def server_of(run: LiveRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def cell_of(run: LiveRun) -> CellId:
    return moving.current_end(run.input.server).cell
