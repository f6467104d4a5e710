"""A shelved server leaves its host: the guest is destroyed, its ports are unbound, and the claim is released except its
addresses.

Each step may be repeated, and none is undone: the disk is in an image by then.
"""

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.errors import HostFailed, NotFound
from moorage.model.ids import CellId
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_attachments
from moorage.operations.steps.hosts import HOST_SILENT, destroy_or_leave
from moorage.operations.steps.server_action import DoingRun, now_us
from moorage.operations.steps.volumes import all_held_only, exported, exported_if_there
from moorage.saga import no_result


async def destroy(run: DoingRun, step: str, server: Server) -> bool:
    """Destroy the guest. Returns False when the host is silent; it does so when it returns."""
    assert server.cell is not None
    assert server.host is not None
    return await destroy_or_leave(run, step, server.cell, server.host, server.id)


async def take_ports_off(context: SagaContext, server: Server) -> None:
    """Unbind all ports; they keep addresses, device and owner, so no other server gets them."""
    if server.nics:
        await context.network.take_off_host(server.id, [str(nic.port) for nic in server.nics if nic.port is not None])


async def give_back_host(run: DoingRun) -> None:
    """Release the claim of host and guarantees; addresses of segments stay claimed by the server, whose ports have
    them.
    """
    engine = run.context.placement
    engine.settle(await run.commit(lambda tx: engine.keep_addresses(tx, run.input.server.id), result=no_result))


def offloaded(server: Server) -> Server:
    """The record of a server that is on no host."""
    now = now_us()
    nics = tuple(msgspec.structs.replace(nic, vif_type="unbound", guarantees=()) for nic in server.nics)
    return msgspec.structs.replace(
        server,
        vm_state=VmState.SHELVED_OFFLOADED,
        task_state=None,
        host=None,
        node=None,
        provider=None,
        availability_zone=None,
        nics=nics,
        updated_at=now,
    )


async def export_volumes(
    run: DoingRun, cell: CellId, server: Server, to: HostAddress, *, again: bool, only_forward: bool = False
) -> dict[str, str]:
    """Export the volumes of a server that comes to a host. Returns mapping → attachment, each exported and in use.

    The fence is checked first: an executor that was overtaken exports nothing. `only_forward`: there is no way back, so a
    volume that no longer exists is `GONE`. Raises NotFound for such a volume otherwise.
    """
    if not server.volumes:
        return {}
    await records.change(run.context, cell, server.id, records.fence(run), lambda now: now)
    attachments: dict[str, str] = {}
    for device in server.volumes:
        if only_forward:
            attachments[device.bdm] = await exported_if_there(run.context, to, server.id, device, again=again)
        else:
            attachments[device.bdm] = await exported(run.context, to, server.id, device, device.attachment, again=again)
    return attachments


async def exported_back(run: DoingRun, server: Server) -> None:
    """Export the volumes again to the host where the server stays.

    While that host is silent the volumes are exported nowhere; a hard reboot exports them when it is back.
    """
    assert server.cell is not None
    assert server.host is not None
    try:
        to = HostAddress(server.cell, server.host)
        held = await export_volumes(run, server.cell, server, to, again=True, only_forward=True)
    except HostFailed as failed:
        if failed.code != HOST_SILENT:
            raise
        held = await all_held_only(run.context, server)
    by = records.fence(run)
    await records.change(run.context, server.cell, server.id, by, lambda now: with_attachments(now, held))


async def hold_volumes_again(run: DoingRun, cell: CellId, server: Server) -> None:
    """Reserve them for the server without a host, as before."""
    held = await all_held_only(run.context, server)
    try:
        await records.change(run.context, cell, server.id, records.fence(run), lambda now: with_attachments(now, held))
    except NotFound:
        return
