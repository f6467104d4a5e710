"""Unshelve: an offloaded server is placed as a boot is, with the ports and addresses it kept, and made from the image of its disk.

    read_ports      its ports, with what they ask of a host
    on a host, and if that fails on the next one, with the same ports:
      claim_host    compute, guarantees and the addresses it still holds, in one claim that replaces what it held
      bind_ports    each port on the host; an address that it has stays, so the host is one of that segment, unless it may leave it
      connect_volumes   each volume, reserved until now, is exported to the host and in use
      record_host, start_guest, await_vifs
    announce        ACTIVE (point of no return)
    leave_addresses, release_addresses   where it was given addresses of another segment, the old ones go (`unshelve/2`)
    delete_image

A failure gives it back as it was: SHELVED_OFFLOADED with the same image, addresses claimed, ports on no host, volumes reserved.  Its record stays in its
cell, so only hosts of that cell are asked; who may leave it has `unshelve_cross_cell`.  A server that is SHELVED is on its host still: `unshelve_in_place` starts it there.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from moorage.bus.agent_rpc import HostAddress
from moorage.model.action import Event
from moorage.model.errors import Conflict, NotFound, Problem
from moorage.model.guest import PowerState
from moorage.model.host_ports import PortOrder
from moorage.model.ids import CellId, PortId
from moorage.model.network import BindRefused, FixedIp, Port
from moorage.model.server import Nic, Server, TaskState, VmState
from moorage.model.verdict import Claimed, DecisionRecord, Shortage, Verdict
from moorage.model.world import Ask, Choice
from moorage.operations.boot import legacy_ports
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.gates import PORTS_ARRIVE_BOUND
from moorage.operations.move_claims import claimed_in_turn
from moorage.operations.steps import (
    groups,
    offload,
    old_addresses,
    other_cells,
    segment_change,
    server_action,
    snapshot_image,
)
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_attachments, with_disks
from moorage.operations.steps.claims import first, granted
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.failures import failed_event, fault_of
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import command_context, destroy_or_leave, names_of
from moorage.operations.steps.other_cells import CellReach
from moorage.operations.steps.ports import (
    VIF_PLUGGED,
    as_recorded,
    nics_of,
    other_subnets,
)
from moorage.operations.steps.segments import note_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.vif_plugging import VIF_PLUGGING_MAX_S, await_plugged
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete
from moorage.operations.unshelve_input import Unshelve, addresses_of, host_may_bind, tries_of
from moorage.saga import Run, Saga, on_some_host, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers
from moorage.store.region import inbox

NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 300.0
PATIENCE_S = 24 * 3600.0
CLAIM_ROUNDS_MAX = 50
ACTION, EVENT = "unshelve", "compute_unshelve_instance"
IMAGE_GONE = "shelved_image_gone"


UnshelveRun = Run[Unshelve, SagaContext]


@step
async def begin_action(run: UnshelveRun) -> LocatedServer:
    """The action shows from the start."""
    found = await records.find(run.context, run.input.server.id)
    if found.server is None or found.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    cell = found.cell
    await run.context.cells[cell].write(lambda tx: actions.write(tx, server_action.action_of(run, ACTION)))
    return found


@begin_action.undo
async def fail_action(run: UnshelveRun) -> None:
    """The action ends in Error, and the server is as it was; without its image it is an ERROR, as in Nova."""
    found = await records.find(run.context, run.input.server.id)
    if found.cell is None or found.server is None:
        return
    now = server_action.now_us()
    events = (failed_event(EVENT, now, None, run.turned),)

    def finish(tx: Tx) -> None:
        actions.finish(tx, run.input.server.id, server_action.request_of(run), events, now, "Error")

    if run.turned is None or run.turned.code != IMAGE_GONE:
        id, same = run.input.server.id, lambda server: server  # the fence is ours: who was overtaken binds no port
        await records.change(run.context, found.cell, id, records.fence(run), same, finish)
        return
    fault = fault_of(run.turned.problem(), now)
    await records.change(
        run.context,
        found.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: msgspec.structs.replace(server, vm_state=VmState.ERROR, fault=fault, updated_at=now),
        finish,
    )


@step(needs=(begin_action,), no_undo="reads only")
async def check_image(run: UnshelveRun) -> None:
    """Raises Conflict when the image of the disk is not there any more."""
    image = run.input.image
    if image is not None and not await snapshot_image.is_usable(run.context, image):
        raise Conflict(f"Unshelve attempted but the image {image} cannot be found.", code=IMAGE_GONE)


@step(needs=(begin_action, check_image), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: UnshelveRun) -> Cards:
    """The ports it kept, and what they ask by now."""
    return await cards_of(run.context, _server(run))


@step(needs=(begin_action, check_image, read_ports), no_undo="reads only", patience_s=VOLUME_PATIENCE_S)
async def check_cells(run: UnshelveRun) -> CellReach:
    """Which other cells cannot have its volumes and addresses; only of one that may leave its cell (`unshelve/3`)."""
    return await other_cells.reach_of(run.context, _server(run), run[read_ports], other_cells.ANEW)


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: UnshelveRun) -> Claim:
    """Compute, guarantees and addresses on the best willing host of its cell, or of any it may go to; a loser takes the next (N1)."""
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    asks = tries_of(run.input, _server(run), run[read_ports], _cell(run), run.blamed, exhausted=exhausted)
    asks = other_cells.widened(run, asks, _cell(run), run.get(check_cells))
    return await claimed_in_turn(run, asks, partial(_claimed, run))


async def _claimed(run: UnshelveRun, ask: Ask, may_leave: frozenset[int], lost: list[str]) -> Claim | Verdict:
    """The claim, or why there is none; `lost` grows by the choices that were lost."""
    engine = run.context.placement
    verdict, fresh = engine.rank(ask), False
    for _ in range(CLAIM_ROUNDS_MAX):
        for choice in verdict.best:
            claim = _claim_of(run, choice, ask, _subnets(run, choice, may_leave), verdict.ledger, tuple(lost))
            with engine.holding(choice, ask):
                answer = await _take(run, choice, ask, claim)
            if isinstance(answer, Claim):
                return answer
            lost.append(answer.why())
            if answer.stale:
                break
        if fresh and not verdict.best:
            break
        verdict, fresh = await engine.rank_fresh(ask), True
    return verdict


async def _take(run: UnshelveRun, choice: Choice, ask: Ask, claim: Claim) -> Claim | Shortage:
    engine, server = run.context.placement, run.input.server

    def work(tx: Tx) -> tuple[Claim, Claimed]:
        answer = engine.claim(
            tx,
            server.id,
            choice,
            ask,
            project=server.project,
            user=server.user,
            operation=run.operation,
            attempt=run.attempt,
            replace=True,
            stays=addresses_of(run[read_ports]),
        )
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        inbox.drop(tx, server.id, VIF_PLUGGED)
        profiles = groups.with_functions(claim.profiles, run[read_ports].ports, answer.functions)
        return msgspec.structs.replace(claim, profiles=profiles), answer

    answer = await run.commit(work, result=first)
    return granted(engine, answer)


@claim_host.undo
async def release_host(run: UnshelveRun) -> None:
    """Its addresses stay claimed, as before."""
    engine, cards = run.context.placement, run.get(read_ports)
    stays = None if cards is None else addresses_of(cards)
    engine.settle(await run.commit(lambda tx: engine.keep_addresses(tx, run.input.server.id, stays)))


@step(moves=True, needs=(read_ports, claim_host), patience_s=NETWORK_PATIENCE_S)
async def bind_ports(run: UnshelveRun) -> tuple[Port, ...]:
    """Set the host on each port; refusals are found here. Who was overtaken binds nothing: the fence is asked before."""
    claim, cards = run[claim_host], run[read_ports]
    await records.change(run.context, _cell(run), run.input.server.id, records.fence(run), lambda server: server)
    if not host_binds(run, claim):
        return segment_change.new_only(cards, claim.subnets, await _bound(run, claim, cards))
    if _previous_addresses(run, claim, cards) is not None:  # an earlier host was of another segment
        await _take_off(run, claim, cards)
    return cards.ports


def host_binds(run: UnshelveRun, claim: Claim) -> bool:
    """It is of level 2, and the unshelve was begun while that was the way: the binding is made where the guest is (S1.5)."""
    return bool(run[read_ports].ports) and host_may_bind(run.input.gates) and claim.level < PORTS_ARRIVE_BOUND


async def _bound(run: UnshelveRun, claim: Claim, cards: Cards) -> tuple[Port, ...]:
    try:
        return await run.context.network.bind_ports(
            run.input.server.id,
            claim.name,
            claim.availability_zone,
            cards.ports,
            subnets=claim.subnets,
            beside=other_subnets(cards.ports, cards.networks, claim.subnets),
            profiles=claim.profiles,
            tried=names_of(run.context.placement.world(), run.tried),
            unsure=run.unsure or run.attempt > 1,
            keeps=_previous_addresses(run, claim, cards),
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, cards.networks, claim.subnets)
        raise


@bind_ports.undo
async def take_ports_off(run: UnshelveRun) -> None:
    """Only in the final unwinding; the next attempt's bind replaces the host."""
    cards = run.get(read_ports)
    if cards is not None and cards.ports:
        await _take_off(run, run.get(claim_host), cards)


async def _take_off(run: UnshelveRun, claim: Claim | None, cards: Cards) -> None:
    """They are on no host, with the addresses they had."""
    again = None if claim is None else _previous_addresses(run, claim, cards)
    keeps = {port.id: again[port.index] for port in cards.ports if port.index in again} if again else None
    await run.context.network.take_off_host(run.input.server.id, [port.id for port in cards.ports], keeps=keeps)


def _previous_addresses(run: UnshelveRun, claim: Claim, cards: Cards) -> dict[int, tuple[FixedIp, ...]] | None:
    return (
        segment_change.previous_addresses(_server(run), cards, claim.subnets, run.attempt) if run.input.across else None
    )


@step(moves=True, needs=(begin_action, claim_host, bind_ports), patience_s=VOLUME_PATIENCE_S)
async def connect_volumes(run: UnshelveRun) -> dict[str, str]:
    """Mapping → attachment. A host that a volume cannot reach is refused with that cause."""
    claim, server = run[claim_host], _server(run)
    to, again = HostAddress(claim.cell, claim.name), run.unsure or run.attempt > 1
    return await offload.export_volumes(run, _cell(run), server, to, again=again)


@connect_volumes.undo
async def give_volumes_back(run: UnshelveRun) -> None:
    """Only in the final unwinding: reserved again, on no host, as they were; the next attempt's export replaces this one."""
    found = run.get(begin_action)
    if found is not None and found.server is not None and found.server.volumes:
        await or_left_to_delete(
            run.context, run.input.server.id, offload.hold_volumes_again(run, cell_at_begin(run), found.server)
        )


@step(moves=True, needs=(begin_action, claim_host, bind_ports, connect_volumes))
async def record_host(run: UnshelveRun) -> Server:
    """The record says where it is to be."""
    claim, cards, cell = run[claim_host], run[read_ports], _cell(run)
    ports: tuple[Port, ...] = run[bind_ports]
    nics, attachments = nics_of(ports, cards.networks), run[connect_volumes]
    return await records.change(
        run.context,
        cell,
        run.input.server.id,
        records.fence(run),
        lambda server: msgspec.structs.replace(
            with_attachments(server, attachments),
            host=claim.name,
            node=claim.node,
            provider=claim.host,
            availability_zone=claim.availability_zone,
            nics=tuple(_with_record_fields(server, each) for each in nics),
            task_state=TaskState.SPAWNING,
        ),
    )


@record_host.undo
async def forget_host(run: UnshelveRun) -> None:
    """The record as it was, on no host."""
    found = run.get(begin_action)
    before = found.server.nics if found is not None and found.server is not None and run.input.across else ()
    back = lambda server: _back(server, {nic.port: nic for nic in before})  # noqa: E731
    try:
        await records.change(run.context, cell_at_begin(run), run.input.server.id, records.fence(run), back)
    except NotFound:
        return


def _back(server: Server, before: Mapping[PortId | None, Nic]) -> Server:
    was = server.vm_state
    gone = offload.offloaded(server)
    nics = tuple(segment_change.addressed_as(nic, before.get(nic.port)) for nic in gone.nics)
    return msgspec.structs.replace(gone, vm_state=was, nics=nics)


def _with_record_fields(server: Server, nic: Nic) -> Nic:
    """What only the record knows of a card."""
    before = next((each for each in server.nics if each.port == nic.port), nic)
    return as_recorded(nic, before)


@step(host_local=True, needs=(claim_host, bind_ports, connect_volumes, record_host), patience_s=HOST_PATIENCE_S)
async def start_guest(run: UnshelveRun) -> PowerState | legacy_ports.Built:
    """The host makes the guest from the image of its disk; one of level 2 binds its ports first, and tells what became of them."""
    claim, cards, server = run[claim_host], run[read_ports], run[record_host]
    ports: tuple[Port, ...] = run[bind_ports]
    guest = guest_of(server, cards.networks, ports, claim.availability_zone)
    guest = await with_drive(run.context, server, guest, cards.networks, ports)
    guest = msgspec.structs.replace(guest, image=run.input.image or guest.image)
    guest = await with_disks(run.context, server, guest, run[connect_volumes])
    to, mine = HostAddress(claim.cell, claim.name), command_context(run, "start_guest")
    state: PowerState | legacy_ports.Built
    try:
        if host_binds(run, claim):
            order = _order(run, claim, cards)
            state = await legacy_ports.build(run, mine, claim, order, guest, lambda: _same(cards.ports))
        else:
            state = await run.context.hosts.start_guest(to, mine, guest)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise
    run.context.placement.count_failure(claim.host, failed=False)
    return state


def _order(run: UnshelveRun, claim: Claim, cards: Cards) -> PortOrder:
    return PortOrder(
        how="bind",
        project=run.input.server.project,
        availability_zone=claim.availability_zone,
        ports=cards.ports,
        networks=cards.networks,
        subnets=claim.subnets,
        beside=other_subnets(cards.ports, cards.networks, claim.subnets),
        profiles=claim.profiles,
        tried=names_of(run.context.placement.world(), run.tried),
        unsure=run.unsure or run.attempt > 1,
    )


async def _same(ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """They are there: only a boot makes any."""
    return ports


@start_guest.undo
async def destroy_guest(run: UnshelveRun) -> None:
    claim = run.get(claim_host)
    if claim is not None:
        await destroy_or_leave(run, "destroy_guest", claim.cell, claim.name, run.input.server.id)


@step(
    needs=(claim_host, bind_ports, start_guest),
    no_undo="it only waits",
    patience_s=VIF_PLUGGING_MAX_S + NETWORK_PATIENCE_S,
)
async def await_vifs(run: UnshelveRun) -> None:
    """Wait until the network says that what was bound is plugged, as a boot does."""
    ports = legacy_ports.bound(run.get(start_guest), run[bind_ports])
    await await_plugged(run, ports, run[claim_host].name)


@step(no_undo="a server that was shown ACTIVE stays so", point_of_no_return=True, needs=(claim_host, start_guest))
async def announce(run: UnshelveRun) -> None:
    """ACTIVE, on its host, no longer shelved; the action is finished with it."""
    await show_active(run)


async def show_active(run: UnshelveRun) -> None:
    """In its own cell."""
    now = server_action.now_us()
    await records.change(
        run.context,
        cell_at_begin(run),
        run.input.server.id,
        records.fence(run),
        lambda server: unshelved(run, server, now),
        lambda tx: actions.finish(
            tx, run.input.server.id, server_action.request_of(run), ended_well(run, now), now, None
        ),
    )


def ended_well(run: UnshelveRun, now: int) -> tuple[Event, ...]:
    """What its action says when it is done."""
    claim = run[claim_host]
    told = segment_change.describe_bound(run.get(read_ports), claim.subnets, run.get(bind_ports))
    return (Event(EVENT, now, now, "Success", claim.name, details=told),)


@announce.passed
async def was_announced(run: UnshelveRun) -> bool:
    """An adopter asks: was the server shown ACTIVE already, by this operation?"""
    by = records.fence(run)
    row = await run.context.cells[cell_at_begin(run)].write(
        lambda tx: cell_servers.take_over(tx, run.input.server.id, by)
    )
    shown = row is not None and row.operation == run.operation and row.shelved is None
    if shown and row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return shown


def unshelved(run: UnshelveRun, server: Server, now: int) -> Server:
    """The record of a server that runs again; where its host bound the ports, they are as it said."""
    cards = run.get(read_ports)
    state, by_host = legacy_ports.answered(run.get(start_guest), {} if cards is None else cards.networks)
    return msgspec.structs.replace(
        server,
        vm_state=VmState.ACTIVE,
        task_state=None,
        power_state=server.power_state if state is None else int(state),
        nics=server.nics if by_host is None else tuple(_with_record_fields(server, each) for each in by_host),
        pinned_az=run.input.zone,
        shelved=None,
        fault=None,
        launched_at=now,
        updated_at=now,
    )


@step(
    needs=(read_ports, claim_host, start_guest), no_undo=old_addresses.FORWARD_ONLY, patience_s=old_addresses.PATIENCE_S
)
async def leave_addresses(run: UnshelveRun) -> None:
    """Of segments that it left; the record is in the cell of its host by now."""
    await old_addresses.leave(run, run[claim_host].cell, run[read_ports], run[claim_host].subnets)


@step(region=True, needs=(read_ports, claim_host, leave_addresses), no_undo=old_addresses.FORWARD_ONLY)
async def release_addresses(run: UnshelveRun) -> None:
    """The server has held them beside its new ones."""
    await old_addresses.release(run, run.input.server.id, run[read_ports], run[claim_host].subnets)


@step(needs=(start_guest,), no_undo="it only goes forward", patience_s=PATIENCE_S)
async def delete_image(run: UnshelveRun) -> None:
    """The disk is on its host again; its image is of no use. One that its owner protected stays."""
    if run.input.image is not None:
        await run.context.images.delete(run.input.image)


_BEFORE = (begin_action, check_image, read_ports)
_ON_A_HOST = on_some_host(
    claim_host,
    bind_ports,
    connect_volumes,
    record_host,
    start_guest,
    await_vifs,
    host=lambda claim: claim.host,
)

UNSHELVE = Saga("unshelve/1", Unshelve, *_BEFORE, _ON_A_HOST, announce, delete_image, ended=records.release_server)

UNSHELVE_ACROSS = Saga(
    "unshelve/2",
    Unshelve,
    *_BEFORE,
    _ON_A_HOST,
    announce,
    leave_addresses,
    release_addresses,
    delete_image,
    ended=records.release_server,
)
"""For servers that may be given addresses of other segments."""


# ------------------------------------------------------------------------------------------------- what is asked


def _claim_of(
    run: UnshelveRun, choice: Choice, ask: Ask, subnets: dict[int, str], ledger: DecisionRecord, lost: tuple[str, ...]
) -> Claim:
    world, ports = run.context.placement.world(), run[read_ports].ports
    slot_of = world.slots[choice.host]
    return Claim(
        host=choice.host,
        name=choice.name,
        node=world.nodes[slot_of],
        cell=choice.cell,
        availability_zone=world.zone_names[int(world.zone[slot_of])],
        level=int(world.level[slot_of]),
        subnets=subnets,
        ledger=ledger,
        lost=lost[-20:],
        profiles=groups.profiles(ports, choice) if ask.groups else {},
        given=groups.given(ask.groups, choice, world),
    )


def _subnets(run: UnshelveRun, choice: Choice, may_leave: frozenset[int]) -> dict[int, str]:
    """For a port without an address on its claimed segment, that segment's IPv4 subnet; and for one that leaves its segment."""
    cards = run[read_ports]
    found = segment_change.subnets_for(cards, choice, may_leave)
    for port, segment in zip(cards.ports, choice.segments, strict=False):
        network = cards.networks.get(port.network)
        if segment is None or network is None or port.fixed_ips or port.ip_allocation == "none":
            continue
        subnet = next((s.id for s in network.subnets if s.segment == segment and s.version == 4), None)
        if subnet is not None:
            found[port.index] = subnet
    return found


def _server(run: UnshelveRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def _cell(run: UnshelveRun) -> CellId:
    cell = run[begin_action].cell
    assert cell is not None
    return cell


def cell_at_begin(run: UnshelveRun) -> CellId:
    """Where its record was when this began: until another cell's is shown (`unshelve/3`) it is there."""
    cell = run.input.server.cell
    assert cell is not None
    return cell
