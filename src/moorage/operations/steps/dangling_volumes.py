"""Drops volumes that the volume service no longer has for a server: somebody deleted them, or took their attachments away,
without asking us.

Nova does so at a hard reboot (its specification "Cleanup dangling volume attachments"). The guest gives the disk up
first. What is dropped was said to be missing by its own id; what is only absent from a list stays.
"""

import logging
from functools import reduce

from moorage.bus.agent_calls import HostAddress
from moorage.model.errors import HostFailed, NotFound
from moorage.model.ids import CellId
from moorage.model.server import BlockDevice, Server
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import NO_GUEST, command_context
from moorage.operations.steps.servers import AboutServer
from moorage.operations.steps.volumes import volumes_of, without_device
from moorage.saga import Run

logger = logging.getLogger(__name__)


async def drop(run: Run[AboutServer, SagaContext], step: str, cell: CellId, server: Server) -> None:
    """Take dangling volumes, but never the root, out of the guest and of the record; a repeat does nothing more.

    A volume that the host does not take out of the guest stays. Raises Unavailable while the volume service does not
    answer.
    """
    assert server.host is not None
    devices = [each for each in server.volumes if each.boot_index != 0]
    if not devices:
        return
    listed = {each.id for each in await volumes_of(run.context).attachments_of(server.id)}
    dropped: list[str] = []
    for device in devices:
        if device.attachment not in listed and await _is_dangling(run.context, server, device):
            assert device.volume is not None
            mine = command_context(run, f"{step}/{device.bdm}")
            try:
                await run.context.hosts.detach_volume(HostAddress(cell, server.host), mine, server.id, device.volume)
            except HostFailed as failed:
                if failed.code != NO_GUEST:
                    logger.warning("volume %s, which is gone, stays in %s: %s", device.volume, server.id, failed)
                    continue
            dropped.append(device.bdm)
            logger.warning("volume %s of server %s is gone, and was dropped", device.volume, server.id)
    if dropped:
        now = server_action.now_us()
        await records.change(
            run.context,
            cell,
            server.id,
            records.fence(run),
            lambda row: reduce(lambda left, bdm: without_device(left, bdm, now), dropped, row),
        )


async def _is_dangling(context: SagaContext, server: Server, device: BlockDevice) -> bool:
    """Whether the volume does not exist, or its recorded attachment does not and the server has no other one."""
    assert device.volume is not None
    client = volumes_of(context)
    try:
        volume = await client.show(device.volume)
        if device.attachment is None or any(each == server.id for _, each in volume.attachments):
            return False
        await client.attachment(device.attachment)
    except NotFound:
        return True
    return False
