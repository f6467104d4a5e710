"""Live migration: a server changes hosts while it runs.

    check_source, read_ports    its host can send it, and its ports can be bound at two hosts if they have guarantees (S1.10 to S1.12)
    on a host, and if that cannot have it on the next one:
      claim_host                compute, guarantees and addresses there in one claim; what it had is held by the move (RULES §11)
      check_destination         the host says whether the guest could go on there
      bind_destination          inactive bindings there, with the providers of the new claim (S1.6)
      record_destination, export_volumes, prepare_guest, await_vifs
    switch_guest                the source sends, and the guest goes on at the destination (point of no return)
    activate_bindings, complete_volumes, land_guest, record_moved
    clear_source, drop_source_volumes, drop_source_bindings, release_source, record_completed

The switch is between the two hosts; no word of ours lies in it.  So until the source says that the guest has left, everything can be
taken back and the guest was never touched; from then on the story only goes forward.  Who adopts it asks the hosts.
"""

from collections.abc import Sequence

import msgspec

from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.bus.messages import TakeGuest, Verb
from moorage.model.errors import BusOut, HostFailed, NotFound, Unavailable, UnknownOutcome
from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import CellId
from moorage.model.live_migration import LiveSource
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.network import Port
from moorage.model.server import Fault, Moved, Server, VmState
from moorage.model.verdict import Row
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate, ask_of
from moorage.operations.steps import live_migration, live_migration_limit, moving, other_cells, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.failures import as_it_was, failed_event
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import HOST_SILENT, NO_GUEST, command_context, destroy_or_leave
from moorage.operations.steps.live_migration import LiveMovePath
from moorage.operations.steps.live_migration_limit import QUEUED_MAX_S
from moorage.operations.steps.moving import End
from moorage.operations.steps.other_cells import CellReach
from moorage.operations.steps.segment_change import Tries
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete, volumes_of
from moorage.saga import Run, Saga, no_result, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.region import inbox

NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
FORWARD_PATIENCE_S = 24 * 3600.0
HOSTS_TRIED_MAX = 10
"""More than of a boot: a host with other processors, or of an older version, refuses at once, and nothing was sent yet."""
REFUSALS = frozenset({"live_refused", NOT_SUPPORTED})
"""Codes by which a healthy host says that the guest could not go on there."""
ACTION = "live-migration"
EVENTS = (
    "conductor_live_migrate_instance",
    "compute_check_can_live_migrate_destination",
    "compute_pre_live_migration",
    "compute_live_migration",
    "compute_post_live_migration_at_destination",
)
FORWARD_ONLY = "the guest runs on its new host: from here on it only goes forward"
SWITCHING, NOTHING_ARRIVED = "switch_guest", "nothing_arrived"
LOST = (
    "The server was live migrated, and its new host has lost it since. Its old host keeps its disk as it was then: when an administrator "
    "has set its state to active, the move can be reverted."
)

LiveRun = Run[LiveMigrate, SagaContext]


class Bound(msgspec.Struct, frozen=True):
    """What was made of its ports at the destination."""

    second: bool = False
    """They have inactive bindings there; else they are bound there after the switch."""
    ports: tuple[Port, ...] = ()
    """As they will be there."""


@step
async def begin_action(run: LiveRun) -> LocatedServer:
    """The action and the move's record show from the start."""
    return await moving.begun(run, ACTION, MigrationType.LIVE_MIGRATION, MigrationStatus.ACCEPTED)


@begin_action.undo
async def fail_action(run: LiveRun) -> None:
    """The action ends in Error and the move's record with it; the server is where it was, and was never off."""
    found = await records.find(run.context, run.input.server.id)
    if found.cell is None or found.server is None:
        return
    now, turned, stopped = server_action.now_us(), run.turned, was_stopped(run)
    status = MigrationStatus.ERROR
    if stopped:
        status = MigrationStatus.CANCELLED
    elif turned is not None and turned.step == SWITCHING:
        status = MigrationStatus.FAILED
    events = (
        failed_event(EVENTS[3 if turned is not None and turned.step == SWITCHING else 0], now, _here(run).name, turned),
    )

    def finish(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status, stays=False)
        actions.finish(tx, run.input.server.id, server_action.request_of(run), events, now, "Error")

    changed = lambda server: as_it_was(server, None if stopped else turned, now)  # noqa: E731
    await records.change(run.context, found.cell, found.server.id, records.fence(run), changed, finish)


def was_stopped(run: LiveRun) -> bool:
    """Somebody wanted it no more."""
    return run.cancelled is not None or (run.turned is not None and run.turned.problem().code == live_migration.ABORTED)


@step(needs=(begin_action,), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: LiveRun) -> Cards:
    """One reading for the whole move (S1.16). With guarantees they need two bindings, and hosts that understand them."""
    cards = await cards_of(run.context, _server(run))
    await refuse_guarantees(run.context, cards, _here(run).name)
    return cards


async def refuse_guarantees(context: SagaContext, cards: Cards, source: str) -> None:
    """Of ports with a resource request: raises HostFailed where they cannot be bound to two hosts, or an agent or the pin is too old."""
    if not any(port.resource_request for port in cards.ports):
        return
    if not await moving.second_bindings(context, cards, source, ""):
        why = (
            "the network service has one binding of a port only" if not await context.network.has_bindings() else source
        )
        raise HostFailed(
            "Ports with a resource request cannot be live migrated: they cannot be bound to two hosts.",
            private=why,
            code="no_second_bindings",
        )
    moving.refuse_old_hosts(context, source, cards.ports, "live migrated")


@step(needs=(begin_action, read_ports), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def check_source(run: LiveRun) -> LiveSource:
    """Its own host can send it; refused before anything is touched."""
    if any(each.attachment is None for each in _server(run).volumes):
        raise HostFailed("a volume of the server is not exported to its host", code="volume_not_exported")
    return await live_migration.source_of(run, _here(run).address)


@step(needs=(begin_action, read_ports), no_undo="reads only", patience_s=VOLUME_PATIENCE_S)
async def check_cells(run: LiveRun) -> CellReach:
    """Which other cells cannot have it, those among them that are not linked; only of one that may leave its cell (`live_migrate/2`)."""
    return await other_cells.reach_of(run.context, _server(run), run[read_ports], other_cells.LIVE)


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: LiveRun) -> Claim:
    """The best willing host of its cell, or of any it may go to. What the server held is held by the move from then on."""
    cards = run[read_ports]
    ask = ask_of(run.input, _server(run), cards, _cell(run), run.blamed, attempt=run.attempt)
    asks = other_cells.widened(run, Tries((ask,), ask), _cell(run), run.get(check_cells))
    return await move_claims.claimed(run, asks, cards)


@claim_host.undo
async def give_claim_back(run: LiveRun) -> None:
    """What the move held is the server's again."""
    await move_claims.given_back(run)


@step(needs=(claim_host, check_source, read_ports), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def check_destination(run: LiveRun) -> MoveTarget:
    """The guest could go on there: processors, hypervisor, disks. One that is silent, or of an older release, is not the one."""
    claim, cards = run[claim_host], run[read_ports]
    guest = await _guest(run, claim, cards.ports, {})
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
    """Inactive bindings, with the providers that were claimed there (S1.6): that they cannot be had is found out here."""
    claim, cards = run[claim_host], run[read_ports]
    if not await _second(run, claim, cards):
        return Bound()
    await moving.not_overtaken(run, _cell(run))
    id, profiles = run.input.server.id, claim.profiles
    return Bound(True, await run.context.network.bind_inactive(id, claim.name, cards.ports, profiles=profiles))


@bind_destination.undo
async def unbind_destination(run: LiveRun) -> None:
    claim, cards = run.get(claim_host), run.get(read_ports)
    if claim is not None and cards is not None and await _second(run, claim, cards):
        await run.context.network.delete_binding(run.input.server.id, claim.name, [port.id for port in cards.ports])


async def _second(run: LiveRun, claim: Claim, cards: Cards) -> bool:
    return await moving.second_bindings(run.context, cards, _here(run).name, claim.name)


@step(
    moves=True,
    needs=(begin_action, claim_host, check_destination, bind_destination),
    no_undo="what the move's record says of its destination stays; that it failed is said by the first step's undo",
    patience_s=QUEUED_MAX_S,
)
async def record_destination(run: LiveRun) -> None:
    """The move's record says where it goes, and that the host prepares; before that, while its source sends as many as it may, that
    it is queued.
    """
    claim = run[claim_host]
    to = move_claims.destination(claim, run[check_destination].address)
    to["dest_cell"] = None if claim.cell == _cell(run) else claim.cell
    await live_migration_limit.taken(run, _way(run), **to)


@step(host_local=True, needs=(begin_action, claim_host, check_destination), patience_s=VOLUME_PATIENCE_S)
async def export_volumes(run: LiveRun) -> dict[str, str]:
    """Mapping → attachment: each volume is exported there too, and to its own host still."""
    server, claim = _server(run), run[claim_host]
    if not server.volumes:
        return {}
    await moving.not_overtaken(run, _cell(run))
    to = End(claim.cell, claim.name).address
    return {
        each.bdm: await live_migration.export_second_attachment(run.context, to, server, each)
        for each in server.volumes
    }


@export_volumes.undo
async def drop_exports(run: LiveRun) -> None:
    found = run.get(begin_action)
    if found is None or found.server is None:
        return
    for each in found.server.volumes:
        await or_left_to_delete(
            run.context, found.server.id, live_migration.drop_second_attachments(run.context, found.server, each)
        )


@step(
    host_local=True,
    needs=(claim_host, check_destination, bind_destination, export_volumes),
    patience_s=HOST_PATIENCE_S,
)
async def prepare_guest(run: LiveRun) -> None:
    """A place at the destination waits for the guest; nothing runs there."""
    claim, bound = run[claim_host], run[bind_destination]
    guest = await _guest(run, claim, bound.ports or run[read_ports].ports, run[export_volumes])
    order, to = TakeGuest(guest, run.input.migration), End(claim.cell, claim.name).address
    await run.context.hosts.tell(to, command_context(run, "prepare_guest"), guest.server, Verb.PREPARE_LIVE, order)
    run.context.placement.count_failure(claim.host, failed=False)


@prepare_guest.undo
async def drop_guest(run: LiveRun) -> None:
    """A silent host is told by its cell that the guest does not belong there."""
    claim = run.get(claim_host)
    if claim is None:
        return
    await live_migration_limit.freed(run, _here(run).cell, run.input.migration)
    try:
        await destroy_or_leave(run, "drop_guest", claim.cell, claim.name, run.input.server.id)
    except HostFailed as failed:
        raise Unavailable(f"the host could not drop the guest: {failed.public}", private=failed.private) from failed


@step(
    needs=(claim_host, bind_destination, prepare_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: LiveRun) -> None:
    """Before anything is sent: ports that are plugged when their place is made are waited for, as in Nova."""
    settings = run.context.settings
    waiting = {port.id for port in run[bind_destination].ports if port.vif_details.get("ovs_hybrid_plug")}
    if settings.vif_plugging_timeout_s <= 0 or not waiting:
        return
    timeout_s = min(settings.vif_plugging_timeout_s, VIF_PLUGGING_MAX_S)
    missing = await live_migration.unplugged_after(run, waiting, timeout_s)
    if missing and settings.vif_plugging_is_fatal:
        private = ", ".join(sorted(missing))
        raise HostFailed("the network was not plugged in time", private=private, code="vif_not_plugged")


@step(
    needs=(begin_action, claim_host, check_destination, prepare_guest),
    patience_s=FORWARD_PATIENCE_S * 2,
    point_of_no_return=True,
)
async def switch_guest(run: LiveRun) -> None:
    """The source sends the guest, and at the switch it goes on at the destination. Who wants it back is heard until then."""
    way = _way(run)
    since = await live_migration.sending_since(run, way)
    await moving.show(run, _cell(run), run.input.migration, MigrationStatus.RUNNING, sending_at=since)
    try:
        # what an earlier try has aborted is not sent again
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
    """Nothing is sent any more."""
    if run.get(claim_host) is not None:
        await live_migration.stay(run, _way(run))
        await live_migration_limit.freed(run, _here(run).cell, run.input.migration)


@switch_guest.passed
async def is_switched(run: LiveRun) -> bool:
    """An adopter asks the hosts; while the guest is being sent it waits, for until that is over nobody knows."""
    stays = await live_migration.has_left(run, _way(run), run.input.timeout_s, post_copy=run.input.post_copy)
    return stays is None


@step(needs=(begin_action, read_ports, claim_host, switch_guest), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def activate_bindings(run: LiveRun) -> tuple[Port, ...]:
    """Traffic goes to the new host. Where ports have one binding only, it is bound there."""
    claim, cards = run[claim_host], run[read_ports]
    await moving.show(run, _cell(run), run.input.migration, MigrationStatus.POST_MIGRATING)  # and it is not overtaken
    end = End(claim.cell, claim.name, claim.availability_zone)
    second = await bound_twice(run, claim, cards)
    return await live_migration.bound_after(
        run, cards, moving.BindTarget(end, claim.profiles, _here(run).name), second=second
    )


async def bound_twice(run: LiveRun, claim: Claim, cards: Cards) -> bool:
    """As `bind_destination` answered, also when that is lost."""
    bound = run.get(bind_destination)
    return bound.second if bound is not None else await _second(run, claim, cards)


@step(needs=(begin_action, claim_host, switch_guest), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def complete_volumes(run: LiveRun) -> dict[str, str]:
    """Mapping → attachment: each volume is in use there."""
    to = End(run[claim_host].cell, run[claim_host].name).address
    return await live_migration.complete_second_attachments(run.context, to, _server(run))


@step(
    needs=(read_ports, claim_host, activate_bindings, complete_volumes),
    no_undo=FORWARD_ONLY,
    patience_s=FORWARD_PATIENCE_S,
)
async def land_guest(run: LiveRun) -> PowerState | None:
    """The guest has its own cards and volumes there, and is meant to be on there from now on.

    None: the host fell silent after the switch.  The record says all the same that the guest is there, so it can be evacuated.
    NOSTATE: the host is heard, and has lost it since.  No try brings it back, so the record says that (`moved`).
    """
    claim, attachments = run[claim_host], run[complete_volumes]
    try:
        guest = await _guest(run, claim, run[activate_bindings], attachments)
    except NotFound:  # a volume was taken away since
        attachments = await live_migration.present_second_attachments(run.context, _server(run), attachments)
        guest = await _guest(run, claim, run[activate_bindings], attachments)
    guest = msgspec.structs.replace(guest, power_on=_server(run).vm_state is not VmState.PAUSED)
    order, to = TakeGuest(guest, run.input.migration), End(claim.cell, claim.name).address
    try:
        mine = live_migration.command_after(run, "land_guest", claim.attempt)
        return await run.context.hosts.tell(to, mine, guest.server, Verb.LAND_LIVE, order)
    except HostFailed as failed:
        if failed.code == HOST_SILENT:
            said = (await records.find(run.context, run.input.server.id)).server
            return None if said is None or said.moved is None else PowerState.NOSTATE  # it was lost when it was heard
        if failed.code in {NO_GUEST, NOTHING_ARRIVED} and await live_migration.is_lost(run, _way(run)):
            return PowerState.NOSTATE
        raise Unavailable(f"the host could not land the guest: {failed.public}", private=failed.private) from failed


@step(needs=(begin_action, read_ports, claim_host, land_guest), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def record_moved(run: LiveRun) -> None:
    """The record says where it is; of a guest that is lost, also what its old host keeps until somebody decides (`Moved`).

    Where it went to another cell, that cell's record says so already, and is shown (`live_migrate/2`).
    """
    if run[claim_host].cell != _cell(run):
        return
    second = await bound_twice(run, run[claim_host], run[read_ports])
    by, changed = records.fence(run), lambda server: moved(run, server, second=second)
    await records.change(run.context, _cell(run), run.input.server.id, by, changed)


def moved(run: LiveRun, server: Server, *, second: bool = False) -> Server:
    """The record of a server that is on its new host, or was."""
    claim, cards = run[claim_host], run.get(read_ports)
    ports, state, attachments = run.get(activate_bindings), run.get(land_guest), run.get(complete_volumes)
    placed = msgspec.structs.replace(
        move_claims.on_claimed(server, claim, cards, ports, attachments, state), updated_at=server_action.now_us()
    )
    if not _is_lost(run):  # one that was found again since it was said to be lost is as it was
        was = server.vm_state if server.moved is None else run.input.server.vm_state
        return msgspec.structs.replace(placed, vm_state=was, moved=None)
    left = left_behind(run, second=second)
    return msgspec.structs.replace(placed, vm_state=VmState.ERROR, fault=Fault(500, LOST, left.at), moved=left)


def _is_lost(run: LiveRun) -> bool:
    """Its new host is heard, and has no guest of it: what its old host has may be all there is."""
    return run.get(land_guest) is PowerState.NOSTATE


async def keeps_source(run: LiveRun) -> bool:
    """And the record says so: a release that did not know of that has let go of what the old host had, or is to."""
    if not _is_lost(run):
        return False
    found = await records.find(run.context, run.input.server.id)
    return found.server is not None and found.server.moved is not None


def left_behind(run: LiveRun, *, second: bool) -> Moved:
    """What a revert goes back to: off, for its memory is gone."""
    was = run.input.server
    assert was.host is not None
    cell = None if run[claim_host].cell == _cell(run) else _cell(run)
    return Moved(
        at=server_action.now_us(),
        migration=run.input.migration,
        vm_state=VmState.ACTIVE if was.vm_state is VmState.ACTIVE else VmState.STOPPED,
        flavor=was.flavor,
        host=was.host,
        node=was.node,
        provider=was.provider,
        availability_zone=was.availability_zone,
        disk_config=was.disk_config,
        second_bindings=second,
        profiles={} if second else moving.profiles_of(run[read_ports]),
        live=True,
        cell=cell,
    )


@step(needs=(begin_action, land_guest, record_moved), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def clear_source(run: LiveRun) -> None:
    """What is left there goes: the disk, unless it may be all there is. A silent host does so when it returns."""
    if _is_lost(run):
        return
    mine, source = live_migration.command_after(run, "clear_source", run[claim_host].attempt), _here(run).address
    try:
        await moving.if_there(run.context.hosts.destroy_guest(source, mine, run.input.server.id))
    except HostFailed as failed:
        raise Unavailable(f"the host could not clear the guest: {failed.public}", private=failed.private) from failed


@step(needs=(begin_action, complete_volumes, clear_source), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def drop_source_volumes(run: LiveRun) -> None:
    """No volume is exported to the old host any more."""
    for each in _server(run).volumes:
        if each.attachment is not None:
            await volumes_of(run.context).drop_attachment(each.attachment)


@step(needs=(begin_action, read_ports, land_guest, clear_source), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def drop_source_bindings(run: LiveRun) -> None:
    """With the claim there (S1.7)."""
    cards, claim = run[read_ports], run[claim_host]
    if not await keeps_source(run) and cards.ports and await bound_twice(run, claim, cards):
        await live_migration.drop_bindings(run, _here(run).name, cards)


@step(region=True, needs=(begin_action, land_guest, clear_source, drop_source_bindings), no_undo=FORWARD_ONLY)
async def release_source(run: LiveRun) -> None:
    """What the move held on the old host."""
    keeps = await keeps_source(run)

    def work(tx: Tx) -> Sequence[Row]:
        inbox.drop(tx, run.input.server.id, live_migration.FORCE)
        return () if keeps else run.context.placement.release(tx, run.input.migration)

    run.context.placement.settle(await run.commit(work, result=no_result))


@step(needs=(begin_action, land_guest, release_source), no_undo=FORWARD_ONLY, patience_s=FORWARD_PATIENCE_S)
async def record_completed(run: LiveRun) -> None:
    """The end of the action and of the move; of one whose guest is lost there is something left to decide."""
    now, name = server_action.now_us(), run[claim_host].name
    status = MigrationStatus.FINISHED if await keeps_source(run) else MigrationStatus.COMPLETED
    at = {EVENTS[0]: None, EVENTS[3]: _here(run).name}
    events = tuple(server_action.ended_event(each, now, at.get(each, name)) for each in EVENTS)

    def also(tx: Tx) -> None:
        moving.with_status(tx, run.input.migration, status)
        server_action.finish(tx, run, events, now)

    done = lambda server: msgspec.structs.replace(server, task_state=None, updated_at=now)  # noqa: E731
    await records.change(run.context, run[claim_host].cell, run.input.server.id, records.fence(run), done, also)


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


# ------------------------------------------------------------------------------------------------- what is asked


async def _guest(run: LiveRun, claim: Claim, ports: tuple[Port, ...], attachments: dict[str, str]) -> GuestSpec:
    server, networks = _server(run), run[read_ports].networks
    server = live_migration.with_volumes(server, attachments) if attachments else server
    guest = guest_of(server, networks, ports, claim.availability_zone)
    guest = await with_drive(run.context, server, guest, networks, ports)
    return await with_disks(run.context, server, guest, attachments)


def _way(run: LiveRun) -> LiveMovePath:
    claim, target = run[claim_host], run.get(check_destination)
    to = End(claim.cell, claim.name).address
    return LiveMovePath(_here(run).address, to, run.input.migration, target or MoveTarget(), claim.attempt)


def _here(run: LiveRun) -> End:
    """The host that it is on when it is asked: another operation cannot come in between."""
    return moving.here(run.input.server)


def _server(run: LiveRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def _cell(run: LiveRun) -> CellId:
    return moving.here(run.input.server).cell
