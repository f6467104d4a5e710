"""The first half of an unshelve: a host is claimed, ports are bound to it, and volumes are exported to it."""

from functools import partial

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.decision_log import Subject
from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import CellId
from moorage.model.network import BindOptions, BindRefused, FixedIp, Port
from moorage.model.server import Server, VmState
from moorage.model.verdict import Claimed, DecisionRecord, Shortage, Verdict
from moorage.model.world import Ask, Choice
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.gates import PORTS_ARRIVE_BOUND
from moorage.operations.move_claims import claimed_or_redrawn
from moorage.operations.steps import groups, offload, other_cells, segment_change, server_action, snapshot_image
from moorage.operations.steps import servers as records
from moorage.operations.steps.claims import first, granted
from moorage.operations.steps.failures import failed_event, fault_of
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.hosts import names_of
from moorage.operations.steps.other_cells import CellReach
from moorage.operations.steps.ports import VIF_PLUGGED, other_subnets
from moorage.operations.steps.segments import note_exhausted
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete
from moorage.operations.unshelve_input import Unshelve, addresses_of, host_may_bind, tries_of
from moorage.saga import Run, step
from moorage.sql import Tx
from moorage.store.region import inbox
from moorage.store.region.placement.claim_statements import Owner

NETWORK_PATIENCE_S = 300.0
CLAIM_ROUNDS_MAX = 50
ACTION, EVENT = "unshelve", "compute_unshelve_instance"
IMAGE_GONE = "shelved_image_gone"
UnshelveRun = Run[Unshelve, SagaContext]


@step
async def begin_action(run: UnshelveRun) -> LocatedServer:
    """Show the action from the start. Raises NotFound when the server is in no cell."""
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    cell = located.cell
    await run.context.cells[cell].write(lambda tx: server_action.begin(tx, run, ACTION, EVENT))
    return located


@begin_action.undo
async def fail_action(run: UnshelveRun) -> None:
    """End the action with Error, and restore the server; without its image it is in ERROR, as in Nova."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None or located.server is None:
        return
    now = server_action.now_us()
    events = (failed_event(EVENT, now, None, run.turned),)

    def finish(tx: Tx) -> None:
        server_action.finish(tx, run, events, now, "Error")

    if run.turned is None or run.turned.code != IMAGE_GONE:
        id, same = (
            run.input.server.id,
            lambda server: server,
        )  # this checks the fence: an executor that was overtaken binds no port
        await records.change(run.context, located.cell, id, records.fence(run), same, finish, last=True)
        return
    fault = fault_of(run.turned.problem(), now)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: msgspec.structs.replace(server, vm_state=VmState.ERROR, fault=fault, updated_at=now),
        finish,
        last=True,
    )


@step(needs=(begin_action,), no_undo="reads only")
async def check_image(run: UnshelveRun) -> None:
    """Raises Conflict when the image of the disk no longer exists."""
    image = run.input.image
    if image is not None and not await snapshot_image.is_usable(run.context, image):
        raise Conflict(f"Unshelve attempted but the image {image} cannot be found.", code=IMAGE_GONE)


@step(needs=(begin_action, check_image), no_undo="reads only", patience_s=NETWORK_PATIENCE_S)
async def read_ports(run: UnshelveRun) -> Cards:
    """The ports it kept, with their current resource requests."""
    return await cards_of(run.context, _server(run))


@step(needs=(begin_action, check_image, read_ports), no_undo="reads only", patience_s=VOLUME_PATIENCE_S)
async def check_cells(run: UnshelveRun) -> CellReach:
    """Which other cells cannot use its volumes and addresses; only for a server that may leave its cell (`unshelve/3`)."""
    return await other_cells.reach_of(run.context, _server(run), run[read_ports], other_cells.ANEW)


@step(region=True, moves=True, needs=(begin_action, read_ports))
async def claim_host(run: UnshelveRun) -> Claim:
    """Claim compute, guarantees and addresses on the best host with room, in its cell or in any allowed cell; if
    another claim was faster, try the next (N1).
    """
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    tries = tries_of(run.input, _server(run), run[read_ports], cell_of(run), run.blamed, exhausted=exhausted)
    tries = other_cells.widened(run, tries, cell_of(run), run.get(check_cells))
    return await claimed_or_redrawn(run, tries, partial(_claimed, run), run[read_ports])


async def _claimed(run: UnshelveRun, ask: Ask, may_leave: frozenset[int], lost: list[str]) -> Claim | Verdict:
    """The claim, or why there is none; `lost` collects the choices that another claim took first."""
    engine = run.context.placement
    subject = Subject(run.input.server.id, run.operation, run.attempt, "unshelve")
    verdict, fresh = engine.decide(ask, subject), False
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
        verdict, fresh = await engine.decide_fresh(ask, subject), True
    return verdict


async def _take(run: UnshelveRun, choice: Choice, ask: Ask, claim: Claim) -> Claim | Shortage:
    engine, server = run.context.placement, run.input.server

    def work(tx: Tx) -> tuple[Claim, Claimed]:
        answer = engine.claim(
            tx,
            Owner(server.id, server.project, server.user, operation=run.operation, attempt=run.attempt),
            choice,
            ask,
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
    """Release the claim; its addresses stay claimed, as before."""
    engine, cards = run.context.placement, run.get(read_ports)
    stays = None if cards is None else addresses_of(cards)
    engine.settle(await run.commit(lambda tx: engine.keep_addresses(tx, run.input.server.id, stays)))


@step(moves=True, needs=(read_ports, claim_host), patience_s=NETWORK_PATIENCE_S)
async def bind_ports(run: UnshelveRun) -> tuple[Port, ...]:
    """Set the host on each port; refusals are found here. An executor that was overtaken binds nothing: the fence is
    checked first.
    """
    claim, cards = run[claim_host], run[read_ports]
    await records.not_overtaken(run, cell_of(run))
    if not host_binds(run, claim):
        return segment_change.new_only(cards, claim.subnets, await _bound(run, claim, cards))
    if _previous_addresses(run, claim, cards) is not None:  # an earlier host was of another segment
        await _take_off(run, claim, cards)
    return cards.ports


def host_binds(run: UnshelveRun, claim: Claim) -> bool:
    """Whether the host binds the ports (S1.5): it is of level 2, and the gates were shut when the unshelve began."""
    return bool(run[read_ports].ports) and host_may_bind(run.input.gates) and claim.level < PORTS_ARRIVE_BOUND


async def _bound(run: UnshelveRun, claim: Claim, cards: Cards) -> tuple[Port, ...]:
    try:
        return await run.context.network.bind_ports(
            run.input.server.id,
            claim.name,
            claim.availability_zone,
            cards.ports,
            BindOptions(
                subnets=claim.subnets,
                other_subnets=other_subnets(cards.ports, cards.networks, claim.subnets),
                profiles=claim.profiles,
                tried=names_of(run.context.placement.world(), run.tried),
                keeps=_previous_addresses(run, claim, cards),
            ),
        )
    except BindRefused as refused:
        await note_exhausted(run.context, refused, cards.networks, claim.subnets)
        raise


@bind_ports.undo
async def take_ports_off(run: UnshelveRun) -> None:
    """Runs only in the final unwinding: the next attempt's bind replaces the host."""
    cards = run.get(read_ports)
    if cards is not None and cards.ports:
        await _take_off(run, run.get(claim_host), cards)


async def _take_off(run: UnshelveRun, claim: Claim | None, cards: Cards) -> None:
    """Unbind the ports, with the addresses they had."""
    again = None if claim is None else _previous_addresses(run, claim, cards)
    keeps = {port.id: again[port.index] for port in cards.ports if port.index in again} if again else None
    await run.context.network.take_off_host(run.input.server.id, [port.id for port in cards.ports], keeps=keeps)


def _previous_addresses(run: UnshelveRun, claim: Claim, cards: Cards) -> dict[int, tuple[FixedIp, ...]] | None:
    return (
        segment_change.previous_addresses(_server(run), cards, claim.subnets, run.attempt) if run.input.across else None
    )


@step(moves=True, needs=(begin_action, claim_host, bind_ports), patience_s=VOLUME_PATIENCE_S)
async def connect_volumes(run: UnshelveRun) -> dict[str, str]:
    """Export the volumes. Returns mapping → attachment. A host that a volume cannot reach is refused with that cause."""
    claim, server = run[claim_host], _server(run)
    to, again = HostAddress(claim.cell, claim.name), run.unsure or run.attempt > 1
    return await offload.export_volumes(run, cell_of(run), server, to, again=again)


@connect_volumes.undo
async def give_volumes_back(run: UnshelveRun) -> None:
    """Runs only in the final unwinding: reserve the volumes without a host, as before; the next attempt's export
    replaces this one.
    """
    located = run.get(begin_action)
    if located is not None and located.server is not None and located.server.volumes:
        await or_left_to_delete(
            run.context, run.input.server.id, offload.hold_volumes_again(run, cell_at_begin(run), located.server)
        )


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
    """For a port without an address on its claimed segment, and for one that leaves its segment: the segment's IPv4
    subnet.
    """
    cards = run[read_ports]
    subnets = segment_change.subnets_for(cards, choice, may_leave)
    for port, segment in zip(cards.ports, choice.segments, strict=False):
        network = cards.networks.get(port.network)
        if segment is None or network is None or port.fixed_ips or port.ip_allocation == "none":
            continue
        subnet = next((s.id for s in network.subnets if s.segment == segment and s.version == 4), None)
        if subnet is not None:
            subnets[port.index] = subnet
    return subnets


def _server(run: UnshelveRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def cell_of(run: UnshelveRun) -> CellId:
    cell = run[begin_action].cell
    assert cell is not None
    return cell


def cell_at_begin(run: UnshelveRun) -> CellId:
    """The cell of its record when this began; the record is there until another cell's is shown (`unshelve/3`)."""
    cell = run.input.server.cell
    assert cell is not None
    return cell
