"""Assisted snapshots: the volume service asks a server's host to take a snapshot of an attached volume, or to delete
one.

The volume service plans what the host does: the file to which the guest writes from now on, or the file that is merged
into another. At the end it gets the status for which it waits, and does the rest itself. As in Nova, there is no
instance action.
"""

import logging
from collections.abc import Callable

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.bus.verbs import Verb
from moorage.bus.volume_payloads import DropVolumeSnapshot, TakeVolumeSnapshot
from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import command_context, may_have_been_done, until_given_up
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete, volumes_of
from moorage.saga import Run, Saga, step

logger = logging.getLogger(__name__)

HOST_PATIENCE_S = 600.0
"""A merge copies data while the guest runs."""
TAKEN, NOT_TAKEN = "creating", "error"
DROPPED, NOT_DROPPED = "deleting", "error_deleting"
"""The statuses for the volume service: with the first of each pair it continues by itself."""


class SnapshotWish(msgspec.Struct, frozen=True):
    """The volume service's request; a `drop` names what is to be merged, or leaves that to the host."""

    volume: str
    snapshot: str
    drop: bool = False
    new_file: str = ""
    merge_file: str | None = None
    merge_target: str | None = None


class AssistedSnapshot(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    wish: SnapshotWish
    request_id: str = ""
    user: str = ""


SnapshotRun = Run[AssistedSnapshot, SagaContext]


@step(of_request=True)
async def find_server(run: SnapshotRun) -> LocatedServer:
    """Find where the server is. Raises NotFound when it is in no cell."""
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    return located


@find_server.undo
async def report_failure(run: SnapshotRun) -> None:
    """Tell the volume service that the host failed, so that it need not wait for its own time-out.

    It is told nothing when the host may have done it: the guest may write to the new file.
    """
    wish = run.input.wish
    if may_have_been_done(run):
        logger.error("%s: whether snapshot %s was taken or dropped is not known", run.operation, wish.snapshot)
        return
    call = volumes_of(run.context).snapshot_is(wish.snapshot, NOT_DROPPED if wish.drop else NOT_TAKEN)
    await or_left_to_delete(run.context, run.input.server.id, call)


@step(
    name="tell_host",
    needs=(find_server,),
    no_undo="the guest writes to another file; which, only the volume service may change",
    patience_s=HOST_PATIENCE_S,
    point_of_no_return=True,
)
async def command_host(run: SnapshotRun) -> None:
    """Let the host do it. Raises HostFailed when it cannot, or has no such guest or volume; Conflict when the server is
    on no host. A host that was told and does not answer is asked again until it does.
    """
    server, wish = run[find_server].server, run.input.wish
    if server is None or server.host is None or server.cell is None:
        raise Conflict(f"Instance {run.input.server.id} is not ready")
    to, errand_ = HostAddress(server.cell, server.host), command_context(run, "tell_host")
    hosts = run.context.hosts
    with until_given_up(run, to):
        if wish.drop:
            dropping = DropVolumeSnapshot(wish.volume, wish.snapshot, wish.merge_file, wish.merge_target)
            await hosts.change_guest(to, errand_, server.id, Verb.DROP_VOLUME_SNAPSHOT, dropping)
        else:
            taking = TakeVolumeSnapshot(wish.volume, wish.snapshot, wish.new_file)
            await hosts.change_guest(to, errand_, server.id, Verb.TAKE_VOLUME_SNAPSHOT, taking)


@step(
    name="tell_volume_service",
    needs=(find_server, command_host),
    no_undo="the volume service goes on by itself",
    patience_s=VOLUME_PATIENCE_S,
)
async def report_success(run: SnapshotRun) -> None:
    wish = run.input.wish
    await volumes_of(run.context).snapshot_is(wish.snapshot, DROPPED if wish.drop else TAKEN)


ASSISTED_SNAPSHOT = Saga(
    "assisted_snapshot/1", AssistedSnapshot, find_server, command_host, report_success, ended=records.release_unrecorded
)


async def begin(
    context: SagaContext,
    principal: Principal,
    server: Server,
    wish: SnapshotWish,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> None:
    """Accept the request. Raises NotFound, Conflict while another operation holds the server, and what `check` raises."""
    volumes_of(context)
    owner = await context.dispatcher.choose(ASSISTED_SNAPSHOT.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = AssistedSnapshot(now, seq, wish, request_id, principal.user)
        return accepted(
            ASSISTED_SNAPSHOT, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    word = "volume_snapshot_delete" if wish.drop else "volume_snapshot_create"
    await dispatch(context, await server_lock.accept(context, server.id, word, make))
