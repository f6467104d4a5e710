"""Live migration: a server changes its host while it runs.

    check_source, read_ports    its host can send it, and ports with guarantees can have two bindings (S1.10 to S1.12)
    on a host, and if that one refuses on the next one:
      claim_host                compute, guarantees and addresses in one claim; the move holds the old ones (RULES §11)
      check_destination         the host confirms that the guest could run there
      bind_destination          inactive bindings there, with the providers of the new claim (S1.6)
      record_destination, export_volumes, prepare_guest, await_vifs
    switch_guest                the source sends, and the guest runs on at the destination (point of no return)
    activate_bindings, complete_volumes, land_guest, record_moved
    clear_source, drop_source_volumes, drop_source_bindings, release_source, record_completed

The switch happens between the two hosts without a message of ours. So until the source reports that the guest has left,
everything can be undone, and the guest was not changed. From then on the saga only goes forward. A later executor asks
the hosts.
"""

from collections.abc import Sequence

import msgspec

from moorage.bus.move_payloads import TakeGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, NotFound, Unavailable
from moorage.model.guest import PowerState
from moorage.model.migration import MigrationStatus
from moorage.model.network import Port
from moorage.model.server import Fault, Moved, Server, VmState
from moorage.model.verdict import InventoryState
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.live_migrate.prepare_destination import (
    EVENTS,
    NOTHING_ARRIVED,
    LiveRun,
    await_vifs,
    begin_action,
    bind_destination,
    cell_of,
    check_destination,
    check_source,
    claim_host,
    export_volumes,
    guest_there,
    path_of,
    prepare_guest,
    read_ports,
    record_destination,
    server_of,
    source_end,
    wants_second_bindings,
)
from moorage.operations.steps import live_migration, live_migration_limit, move_ports, moving, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.hosts import HOST_SILENT, NO_GUEST
from moorage.operations.steps.live_migration import LiveMovePath
from moorage.operations.steps.moving import End
from moorage.operations.steps.volumes import volumes_of
from moorage.saga import Saga, no_result, on_some_host, step
from moorage.sql import Tx
from moorage.store.region import inbox

FORWARD_PATIENCE_S = 24 * 3600.0
HOSTS_TRIED_MAX = 10
"""More than for a boot: a host with other processors, or of an older version, refuses at once, and nothing was sent
yet.
"""
FORWARD_ONLY = "the guest runs on its new host: from here on it only goes forward"
LOST = (
    "The server was live migrated, and its new host has lost it since. Its old host keeps its disk as it was then: when an administrator "
    "has set its state to active, the move can be reverted."
)


@step(
    needs=(begin_action, claim_host, check_destination, prepare_guest),
    patience_s=FORWARD_PATIENCE_S * 2,
    point_of_no_return=True,
)
async def switch_guest(run: LiveRun) -> None:
    """Let the source send the guest; after the switch it runs at the destination. The move can be cancelled until then."""
    way = path_of(run)
    since = await live_migration.sending_since(run, way)
    sends = server_action.ActionProgress(EVENTS[2:3], ((EVENTS[3], source_end(run).name),))
    await moving.show(run, cell_of(run), run.input.migration, MigrationStatus.RUNNING, None, sends, sending_at=since)
    try:
        # # a migration that an earlier try aborted is not started again
        if not live_migration.is_overdue(since, run.input.timeout_s) and not await live_migration.is_cancelled(run):
            await live_migration.begin(run, way)
    except HostFailed:  # it may have begun all the same
        if await live_migration.stays(run, way):
            raise
    await _left(run, way)


async def _left(run: LiveRun, way: LiveMovePath) -> None:
    input = run.input
    stays = await live_migration.has_left(run, way, input.timeout_s, post_copy=input.post_copy)
    if stays is None:
        return
    words = {
        live_migration.ABORTED: "The live migration was aborted.",
        live_migration.TIMED_OUT: "The live migration took too long.",
    }
    public = words.get(stays.why, "Live Migration failure")
    raise HostFailed(public, private=stays.why, code=stays.why if stays.why in words else "live_migration_failed")


@switch_guest.undo
async def keep_at_source(run: LiveRun) -> None:
    """Stop the sending; the guest stays at the source."""
    if run.get(claim_host) is not None:
        await live_migration.stay(run, path_of(run))
        await live_migration_limit.freed(run, source_end(run).cell, run.input.migration)


@switch_guest.passed
async def is_switched(run: LiveRun) -> bool:
    """Whether the guest runs at the destination, by asking the hosts. An adopter asks this; it waits while the guest is
    being sent, because the outcome is open until then.
    """
    stays = await live_migration.has_left(run, path_of(run), run.input.timeout_s, post_copy=run.input.post_copy)
    return stays is None


@step(needs=(begin_action, read_ports, claim_host, switch_guest), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def activate_bindings(run: LiveRun) -> tuple[Port, ...]:
    """Direct traffic to the new host. Ports with a single binding are bound there now."""
    claim, cards = run[claim_host], run[read_ports]
    arrived = server_action.ActionProgress(begun=((EVENTS[4], claim.name),))
    await moving.show(
        run, cell_of(run), run.input.migration, MigrationStatus.POST_MIGRATING, None, arrived
    )  # this also checks the fence
    end = End(claim.cell, claim.name, claim.availability_zone)
    second = await bound_twice(run, claim, cards)
    return await live_migration.bound_after(
        run, cards, move_ports.BindTarget(end, claim.profiles, source_end(run).name), second=second
    )


async def bound_twice(run: LiveRun, claim: Claim, cards: Cards) -> bool:
    """The answer of `bind_destination`, also when the executor has lost it."""
    bound = run.get(bind_destination)
    return bound.second if bound is not None else await wants_second_bindings(run, claim, cards)


@step(needs=(begin_action, claim_host, switch_guest), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def complete_volumes(run: LiveRun) -> dict[str, str]:
    """Mark each volume as in use at the destination. Returns mapping → attachment."""
    to = End(run[claim_host].cell, run[claim_host].name).address
    return await live_migration.complete_second_attachments(run.context, to, server_of(run))


@step(
    needs=(read_ports, claim_host, activate_bindings, complete_volumes),
    no_undo=FORWARD_ONLY,
    patience_s=FORWARD_PATIENCE_S,
)
async def land_guest(run: LiveRun) -> PowerState | None:
    """Let the destination take the guest with its NICs and volumes; from now on it belongs there.

    None: the host fell silent after the switch. The record shows the guest there all the same, so it can be evacuated.
    NOSTATE: the host answers but has lost the guest. No repeat brings it back, so the record says that (`moved`).
    Raises Unavailable when the host fails.
    """
    claim, attachments = run[claim_host], run[complete_volumes]
    try:
        guest = await guest_there(run, claim, run[activate_bindings], attachments)
    except NotFound:  # a volume was detached since
        attachments = await live_migration.present_second_attachments(run.context, server_of(run), attachments)
        guest = await guest_there(run, claim, run[activate_bindings], attachments)
    guest = msgspec.structs.replace(guest, power_on=server_of(run).vm_state is not VmState.PAUSED)
    order, to = TakeGuest(guest, run.input.migration), End(claim.cell, claim.name).address
    try:
        mine = live_migration.command_after(run, "land_guest", claim.attempt)
        return await run.context.hosts.change_guest(to, mine, guest.server, Verb.LAND_LIVE, order)
    except HostFailed as failed:
        if failed.code == HOST_SILENT:
            record = (await records.find(run.context, run.input.server.id)).server
            return (
                None if record is None or record.moved is None else PowerState.NOSTATE
            )  # it was already lost at the last report
        if failed.code in {NO_GUEST, NOTHING_ARRIVED} and await live_migration.is_lost(run, path_of(run)):
            return PowerState.NOSTATE
        raise Unavailable(
            f"the host could not take over the guest: {failed.public}", private=failed.private
        ) from failed


@step(needs=(begin_action, read_ports, claim_host, land_guest), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def record_moved(run: LiveRun) -> None:
    """Show the server on its new host; for a lost guest, record also what its old host keeps until it is decided
    (`Moved`).

    When it went to another cell, that cell's record says so already, and is shown (`live_migrate/2`).
    """
    if run[claim_host].cell != cell_of(run):
        return
    second = await bound_twice(run, run[claim_host], run[read_ports])
    by, changed = records.fence(run), lambda server: moved(run, server, second=second)
    await records.change(run.context, cell_of(run), run.input.server.id, by, changed)


def moved(run: LiveRun, server: Server, *, second: bool = False) -> Server:
    """The record of a server on its new host, or whose guest was lost there."""
    claim, cards = run[claim_host], run.get(read_ports)
    ports, state, attachments = run.get(activate_bindings), run.get(land_guest), run.get(complete_volumes)
    placed = msgspec.structs.replace(
        move_claims.on_claimed(server, claim, cards, ports, attachments, state), updated_at=server_action.now_us()
    )
    if not _is_lost(run):  # a guest that was found again is not lost
        vm_state = server.vm_state if server.moved is None else run.input.server.vm_state
        return msgspec.structs.replace(placed, vm_state=vm_state, moved=None)
    left = left_behind(run, second=second)
    return msgspec.structs.replace(placed, vm_state=VmState.ERROR, fault=Fault(500, LOST, left.at), moved=left)


def _is_lost(run: LiveRun) -> bool:
    """Whether its new host answers and has no guest of it: then the old host may have the only disk."""
    return run.get(land_guest) is PowerState.NOSTATE


async def keeps_source(run: LiveRun) -> bool:
    """Whether the old host is kept, and the record says so: a release that does not know that releases what the old
    host had.
    """
    if not _is_lost(run):
        return False
    located = await records.find(run.context, run.input.server.id)
    return located.server is not None and located.server.moved is not None


def left_behind(run: LiveRun, *, second: bool) -> Moved:
    """What a revert goes back to: off, because its memory is lost."""
    before = run.input.server
    assert before.host is not None
    cell = None if run[claim_host].cell == cell_of(run) else cell_of(run)
    return Moved(
        at=server_action.now_us(),
        migration=run.input.migration,
        vm_state=VmState.ACTIVE if before.vm_state is VmState.ACTIVE else VmState.STOPPED,
        flavor=before.flavor,
        host=before.host,
        node=before.node,
        provider=before.provider,
        availability_zone=before.availability_zone,
        disk_config=before.disk_config,
        second_bindings=second,
        profiles={} if second else move_ports.profiles_of(run[read_ports]),
        live=True,
        cell=cell,
    )


@step(needs=(begin_action, land_guest, record_moved), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def clear_source(run: LiveRun) -> None:
    """Remove the rest on the old host: the disk, unless it may be the only one. A silent host does so when it returns.

    Raises Unavailable when the host fails.
    """
    if _is_lost(run):
        return
    mine, source = live_migration.command_after(run, "clear_source", run[claim_host].attempt), source_end(run).address
    try:
        await moving.if_there(run.context.hosts.destroy_guest(source, mine, run.input.server.id))
    except HostFailed as failed:
        raise Unavailable(f"the host could not remove the guest: {failed.public}", private=failed.private) from failed


@step(needs=(begin_action, complete_volumes, clear_source), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def drop_source_volumes(run: LiveRun) -> None:
    """Remove the volumes' attachments to the old host."""
    for each in server_of(run).volumes:
        if each.attachment is not None:
            await volumes_of(run.context).drop_attachment(each.attachment)


@step(needs=(begin_action, read_ports, land_guest, clear_source), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def drop_source_bindings(run: LiveRun) -> None:
    """Remove the bindings there, together with the claim (S1.7)."""
    cards, claim = run[read_ports], run[claim_host]
    if not await keeps_source(run) and cards.ports and await bound_twice(run, claim, cards):
        await live_migration.drop_bindings(run, source_end(run).name, cards)


@step(region=True, needs=(begin_action, land_guest, clear_source, drop_source_bindings), no_undo=FORWARD_ONLY)
async def release_source(run: LiveRun) -> None:
    """Release what the move held on the old host."""
    keeps = await keeps_source(run)

    def work(tx: Tx) -> Sequence[InventoryState]:
        inbox.drop(tx, run.input.server.id, live_migration.FORCE)
        return () if keeps else run.context.placement.release(tx, run.input.migration)

    run.context.placement.settle(await run.commit(work, result=no_result))


@step(needs=(begin_action, land_guest, release_source), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def record_completed(run: LiveRun) -> None:
    """End the action and the move; for a lost guest something is left to decide."""
    now, name = server_action.now_us(), run[claim_host].name
    status = MigrationStatus.FINISHED if await keeps_source(run) else MigrationStatus.COMPLETED
    at = {EVENTS[0]: None, EVENTS[3]: source_end(run).name}
    events = tuple(server_action.ended_event(each, now, at.get(each, name)) for each in EVENTS)

    def also(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status)
        server_action.finish(tx, run, events, now)

    done = lambda server: msgspec.structs.replace(server, task_state=None, updated_at=now)  # noqa: E731
    await records.change(
        run.context, run[claim_host].cell, run.input.server.id, records.fence(run), done, also, last=True
    )


LIVE_MIGRATE = Saga(
    "live_migrate/1",
    LiveMigrate,
    begin_action,
    read_ports,
    check_source,
    on_some_host(
        claim_host,
        check_destination,
        bind_destination,
        record_destination,
        export_volumes,
        prepare_guest,
        await_vifs,
        max_attempts=HOSTS_TRIED_MAX,
        host=lambda claim: claim.host,
    ),
    switch_guest,
    activate_bindings,
    complete_volumes,
    land_guest,
    record_moved,
    clear_source,
    drop_source_volumes,
    drop_source_bindings,
    release_source,
    record_completed,
    ended=records.release_server,
)
