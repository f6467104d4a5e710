"""Asks a host whether a guest of it has a volume, before an export to it is removed.

A record that names another host than the attachment may be of an earlier time (RULES §22): its word alone removes no export,
for the server's only guest may run there and write to the volume.
"""

from moorage.bus.agent_calls import HostAddress
from moorage.bus.agent_rpc import NOT_SUPPORTED
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed
from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import ServerId
from moorage.operations.context import SagaContext
from moorage.operations.steps.hosts import NO_GUEST

ANSWERS_WITHIN_S = 10.0


async def is_unused(context: SagaContext, host: str, server: ServerId, volume: str) -> bool:
    """Whether that host says that no guest of the server has the volume. A host that is unknown or does not answer says nothing."""
    world = context.placement.world()
    slot = world.slots_by_name.get(host)
    if slot is None:
        return False
    to = HostAddress(world.cell_names[int(world.cell[slot])], host)
    try:
        has = await context.hosts.ask(to, server, Verb.GUEST_DEVICES, None, GuestDevices, ANSWERS_WITHIN_S)
        return volume not in has.names[0]
    except HostFailed as failed:
        if failed.code != NOT_SUPPORTED:
            return failed.code == NO_GUEST
    try:  # a host of an earlier release can only tell whether it has the guest
        await context.hosts.ask(to, server, Verb.GUEST_POWER, None, GuestNow, ANSWERS_WITHIN_S)
    except HostFailed as failed:
        return failed.code == NO_GUEST
    return False
