"""The first steps of a resize to a host of another cell: a host is claimed and checked, and volumes are reserved there."""

from moorage.bus.agent_calls import HostAddress
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, Problem
from moorage.model.guest import MoveTarget
from moorage.model.ids import CellId
from moorage.model.server import Server
from moorage.model.volume import RESERVED
from moorage.operations import move_claims
from moorage.operations.boot.boot import Claim
from moorage.operations.resize import prepare_resize
from moorage.operations.resize.prepare_resize import (
    HOST_PATIENCE_S,
    NETWORK_PATIENCE_S,
    ResizeRun,
    begin_action,
    bind_destination,
    check_source,
    read_ports,
)
from moorage.operations.resize.resize_input import tries_of
from moorage.operations.steps import moving, other_cells, record_cells, second_records
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import NO_GUEST
from moorage.operations.steps.other_cells import CellReach
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete, volumes_of
from moorage.saga import step

HAS_GUEST = "guest_already_there"


@step(
    name="check_neighbours",
    needs=(begin_action, check_source, read_ports),
    no_undo="reads only",
    patience_s=NETWORK_PATIENCE_S,
)
async def check_services(run: ResizeRun) -> CellReach:
    """The unsuitable cells, each with its reason; asked of the network and volume services before anything is changed."""
    return await other_cells.reach_of(run.context, server_of(run), run[read_ports], other_cells.RESIZE)


@step(region=True, moves=True, needs=(begin_action, read_ports, check_services))
async def claim_host(run: ResizeRun) -> Claim:
    """Claim the best host with room of any cell; after a failed attempt, first of the same cell. The move then holds
    what the server held.
    """
    cards = run[read_ports]
    exhausted = frozenset(each for cause in run.causes for each in cause.without)
    where = (server_of(run), cards, left_cell(run), run.blamed)
    tries = tries_of(run.input, *where, attempt=run.attempt, exhausted=exhausted)
    return await move_claims.claimed(run, other_cells.widened(run, tries, left_cell(run), run[check_services]), cards)


@claim_host.undo
async def give_claim_back(run: ResizeRun) -> None:
    """The server holds again what the move held."""
    await move_claims.given_back(run, run.get(read_ports) if run.input.across else None)


@step(needs=(claim_host,), no_undo="reads only", patience_s=HOST_PATIENCE_S)
async def prepare_host(run: ResizeRun) -> MoveTarget:
    """Check the host: in the server's cell it reports where it takes guests, in another cell that it has no guest of
    the server.
    """
    claim = run[claim_host]
    prepare_resize.prepares(claim).note(run)
    try:
        if stays_in_cell(run):
            return await moving.target_at(run, claim)
        await _refuse_with_guest(run, claim)
        return MoveTarget(where=claim.name)
    except Problem:
        run.context.placement.count_failure(claim.host, failed=True)
        raise


async def _refuse_with_guest(run: ResizeRun, claim: Claim) -> None:
    to = HostAddress(claim.cell, claim.name)
    try:
        await run.context.hosts.ask(to, run.input.server.id, Verb.GUEST_POWER, None, GuestNow)
    except HostFailed as failed:
        if failed.code != NO_GUEST:
            raise
        return
    if not run.unsure:
        raise HostFailed("the host has a guest of the server already", private=claim.name, code=HAS_GUEST)


@step(needs=(claim_host, prepare_host), no_undo=second_records.A_FENCE)
async def open_cell(run: ResizeRun) -> None:
    """Check that the other cell's database accepts writes. If it does not answer, its hosts are not to blame: another
    cell is tried, and the attempt does not count.
    """
    cell = run[claim_host].cell
    if not stays_in_cell(run):
        await record_cells.or_elsewhere(run, cell, lambda: second_records.open_cell(run, cell))


@step(
    host_local=True,
    needs=(begin_action, claim_host, prepare_host, bind_destination),
    patience_s=VOLUME_PATIENCE_S,
)
async def reserve_volumes(run: ResizeRun) -> None:
    """Make one more attachment for each volume, without a host: a refusal of the volume service comes while the guest
    still runs.
    """
    if stays_in_cell(run) or not server_of(run).volumes:
        return
    await records.not_overtaken(run, left_cell(run))
    client = volumes_of(run.context)
    for volume in _volumes(run):
        attachments = await client.attachments_of(run.input.server.id, volume)
        if not any(each.status == RESERVED for each in attachments):
            await client.reserve(volume, run.input.server.id)


@reserve_volumes.undo
async def drop_reservations(run: ResizeRun) -> None:
    """Remove them. A volume that was exported by then belongs to its old host again."""
    claim = run.get(claim_host)
    if claim is not None and claim.cell != run.input.server.cell and run.input.server.volumes:
        await or_left_to_delete(run.context, run.input.server.id, _drop_reservations(run))


async def _drop_reservations(run: ResizeRun) -> None:
    server = (await records.sure(run.context, run.input.server.id)).server
    if server is None or not server.volumes:
        return
    client, kept = volumes_of(run.context), {each.attachment for each in server.volumes}
    for each in server.volumes:
        for other in await client.attachments_of(server.id, str(each.volume)):
            if other.status == RESERVED and other.id not in kept:
                await client.drop_attachment(other.id)


@step(
    needs=(begin_action, claim_host, prepare_host, bind_destination, reserve_volumes),
    no_undo="what the move's record says of its destination stays; that it failed is said by the first step's undo",
)
async def record_destination(run: ResizeRun) -> None:
    """Write the destination into the move's record, unless that was done before its bindings were made."""
    await prepare_resize.record_destination.do(run)


def server_of(run: ResizeRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


def left_cell(run: ResizeRun) -> CellId:
    """The cell that has the record until it is shown elsewhere."""
    cell = run[begin_action].cell
    assert cell is not None
    return cell


def stays_in_cell(run: ResizeRun) -> bool:
    return run[claim_host].cell == left_cell(run)


def _volumes(run: ResizeRun) -> list[str]:
    return [each.volume for each in server_of(run).volumes if each.volume is not None]
