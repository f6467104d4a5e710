"""Repairs the devices of a guest that differ from its server's record, in the direction in which nothing is lost.

    compare         the host shows the guest's devices now; record, volume service and network service are read; it is decided what to do
    change_guest    the host plugs in what is missing, and takes out what belongs to nobody or to another server
    record_devices  the record lists what the guest has by right

An audit begins it (`moorage audit --repair`), after two looks that agreed while no operation held the server. It holds the server as
every operation does, so its orders have a fencing token above all earlier ones, and nothing is changed beside it.

Who is right, one case after the other:

* The guest has a volume that the record does not list. An attachment of this server that is exported to this host means that the
  guest has it by right, and writes to it: the record lists it from now on. Without any attachment of this server nobody keeps the volume
  for it: another server may get it, or has it, so it is taken out of this guest. An attachment that is only reserved, or that is
  exported elsewhere, is another matter, and is left to a person.
* The guest lacks a volume that the record lists. Its attachment is exported to this host: the volume is kept for this guest, which
  gets it again. Otherwise nothing is done; a volume that is plugged in without an export could be somebody else's.
* The guest has another volume in the place of a recorded one. It writes to that one, so the record lists it, if an attachment says so
  as above; the other's attachment stays, and an audit shows it. Otherwise a person decides which of them has the data.
* The guest has an interface that the record does not list. A port that names this server and is bound to this host is recorded.
  A port that names nobody or another device, or is gone for certain (RULES §22), is unplugged.
* The guest lacks an interface that the record lists, and its port names this server and is bound to this host: it is plugged in again.
"""

import logging
from collections.abc import Collection

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.bus.verbs import Verb
from moorage.model.errors import Conflict, NotFound, Problem
from moorage.model.guest_devices import GuestDevices, GuestInterface, recorded_devices
from moorage.model.host_ports import vif_of
from moorage.model.ids import CellId, OperationId, ServerId, new_uuid
from moorage.model.network import Port, minted_macs
from moorage.model.operation import Accepted
from moorage.model.server import BlockDevice, Server
from moorage.model.volume import ATTACHED
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import command_context
from moorage.operations.steps.ports import nic_of
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, disk_of, next_device, volumes_of, with_device
from moorage.saga import Run, Saga, step
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)

HOST_PATIENCE_S = 120.0
ENDS_WITHIN_S = 150.0
ACTION = "repair_devices"


class RepairDevicesInput(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""


class DevicePlan(msgspec.Struct, frozen=True):
    """What is to be done; all of it may be repeated."""

    cell: CellId | None = None
    host: str = ""
    plug_volumes: tuple[BlockDevice, ...] = ()
    unplug_volumes: tuple[str, ...] = ()
    record_volumes: tuple[BlockDevice, ...] = ()
    plug_ports: tuple[str, ...] = ()
    unplug_ports: tuple[str, ...] = ()
    record_ports: tuple[Port, ...] = ()

    @property
    def is_empty(self) -> bool:
        volumes = self.plug_volumes or self.unplug_volumes or self.record_volumes
        return not (volumes or self.plug_ports or self.unplug_ports or self.record_ports)


RepairRun = Run[RepairDevicesInput, SagaContext]


@step(no_undo="it only reads", patience_s=VOLUME_PATIENCE_S)
async def compare(run: RepairRun) -> DevicePlan:
    """Decide what to do. Raises NotFound when the server is on no host, HostFailed when the host cannot show the guest's devices."""
    located = await records.sure(run.context, run.input.server.id)
    server = located.server
    if server is None or located.cell is None or server.host is None or server.deleted:
        raise NotFound(f"server {run.input.server.id} is on no host")
    to = HostAddress(located.cell, server.host)
    has = await run.context.hosts.ask(to, server.id, Verb.GUEST_DEVICES, None, GuestDevices)
    volumes = await _volumes(run.context, server, has)
    ports = await _ports(run.context, server, has)
    return msgspec.structs.replace(
        ports,
        cell=located.cell,
        host=server.host,
        plug_volumes=volumes.plug_volumes,
        unplug_volumes=volumes.unplug_volumes,
        record_volumes=volumes.record_volumes,
    )


async def _volumes(context: SagaContext, server: Server, has: GuestDevices) -> DevicePlan:
    listed = {str(each.volume): each for each in server.volumes}
    has_now = {each.volume: each for each in has.volumes}
    unplug, record, replaced = list[str](), dict[str, BlockDevice](), set[str]()
    by_bdm = {each.bdm: each for each in server.volumes if each.bdm}
    for volume in sorted(has_now.keys() - listed.keys()):
        before = by_bdm.get(has_now[volume].bdm)
        if before is not None and before.volume not in has_now:
            replaced.add(str(before.volume))
        try:
            shown = await volumes_of(context).show(volume)
        except Problem as problem:  # one that the service does not know: a person decides
            logger.warning("volume %s in the guest of %s cannot be looked at: %s", volume, server.id, problem)
            continue
        ours = await volumes_of(context).attachments_of(server.id, volume)
        by_right = next(
            (each.id for each in ours if each.status == ATTACHED and shown.hosts.get(each.id) == server.host), None
        )
        if by_right is not None:
            taken = [each.device for each in record.values()]
            device = before if before is not None and str(before.volume) in replaced else None
            record[volume] = BlockDevice(
                source="volume",
                destination="volume",
                boot_index=None if device is None else device.boot_index,
                uuid=volume,
                size_gib=shown.size_gib,
                device=next_device(server, taken) if device is None else device.device,
                volume_type=shown.volume_type,
                bdm=new_uuid() if device is None else device.bdm,
                volume=volume,
                attachment=by_right,
                multiattach=shown.multiattach,
            )
        elif not ours and (before is None or str(before.volume) not in replaced):
            unplug.append(volume)
    missing = sorted(listed.keys() - has_now.keys() - replaced)
    plug = [listed[each] for each in missing if await _is_exported(context, server, listed[each])]
    return DevicePlan(plug_volumes=tuple(plug), unplug_volumes=tuple(unplug), record_volumes=tuple(record.values()))


async def _is_exported(context: SagaContext, server: Server, device: BlockDevice) -> bool:
    """Whether the volume is kept for this guest on this host."""
    volume = str(device.volume)
    try:
        shown = await volumes_of(context).show(volume)
    except NotFound:
        return False
    ours = await volumes_of(context).attachments_of(server.id, volume)
    return any(
        each.id == device.attachment and each.status == ATTACHED and shown.hosts.get(each.id) == server.host
        for each in ours
    )


async def _ports(context: SagaContext, server: Server, has: GuestDevices) -> DevicePlan:
    listed = {each.port: each for each in recorded_devices(server).interfaces if each.port}
    has_now: dict[str, GuestInterface] = {each.port: each for each in has.interfaces if each.port}
    more, less = has_now.keys() - listed.keys(), listed.keys() - has_now.keys()
    if not more and not less:
        return DevicePlan()
    shown = {port.id: port for port in await context.network.ports_of(server.id)}
    bound = {id for id, port in shown.items() if port.host == server.host}
    index, record = max([server.next_nic, *(nic.index + 1 for nic in server.nics)]), list[Port]()
    for port in sorted(more & bound):
        ours = shown[port].mac in minted_macs(server.id)
        record.append(msgspec.structs.replace(shown[port], index=index + len(record), ours=ours))
    foreign = await _foreign(context, server, more - shown.keys())
    return DevicePlan(
        plug_ports=tuple(sorted(less & bound)), unplug_ports=tuple(sorted(foreign)), record_ports=tuple(record)
    )


async def _foreign(context: SagaContext, server: Server, ports: Collection[str]) -> set[str]:
    """Those that are another device's or nobody's, and those that are gone."""
    gone = await context.network.ports_gone(ports, server.project) if ports else frozenset[str]()
    foreign = set(gone)
    for each in sorted(set(ports) - gone):
        try:
            port = await context.network.port(each)
        except NotFound:  # and it is not certain that it is gone
            continue
        if port.device_id != server.id:
            foreign.add(each)
    return foreign


@step(
    needs=(compare,),
    no_undo="the guest gets what its record and the services say",
    patience_s=HOST_PATIENCE_S,
    point_of_no_return=True,
)
async def change_guest(run: RepairRun) -> None:
    """Take out of the guest what is not its own first: another server may wait for it."""
    plan, server = run[compare], run.input.server
    if plan.cell is None:
        return
    hosts, to = run.context.hosts, HostAddress(plan.cell, plan.host)
    for volume in plan.unplug_volumes:
        await hosts.detach_volume(to, command_context(run, f"unplug/{volume}"), server.id, volume)
    for port in plan.unplug_ports:
        await hosts.detach_interface(to, command_context(run, f"unplug/{port}"), server.id, port)
    for device in plan.plug_volumes:
        disk = await disk_of(run.context, device, str(device.attachment))
        await hosts.attach_volume(to, command_context(run, f"plug/{device.volume}"), server.id, disk)
    for port in plan.plug_ports:
        nic = next(each for each in server.nics if each.port == port)
        found = msgspec.structs.replace(
            await run.context.network.port(port), index=nic.index, tag=nic.tag, ours=nic.ours
        )
        vif = vif_of(found, await run.context.network.network(found.network))
        await hosts.attach_interface(to, command_context(run, f"plug/{port}"), server.id, vif)


@step(needs=(compare, change_guest), no_undo="the guest has them by right")
async def record_devices(run: RepairRun) -> None:
    """Let the record list what the guest has by right."""
    plan = run[compare]
    if plan.cell is None or not (plan.record_volumes or plan.record_ports):
        return
    now = server_action.now_us()
    networks = {each.network: await run.context.network.network(each.network) for each in plan.record_ports}

    def with_them(server: Server) -> Server:
        for device in plan.record_volumes:
            server = with_device(server, device, now)
        nics = tuple(nic_of(each, networks[each.network]) for each in plan.record_ports)
        known = {nic.port for nic in nics}
        kept = tuple(each for each in server.nics if each.port not in known)
        following = max([server.next_nic, *(nic.index + 1 for nic in nics)])
        return msgspec.structs.replace(server, nics=(*kept, *nics), next_nic=following, updated_at=now)

    await records.change(run.context, plan.cell, run.input.server.id, records.fence(run), with_them)


REPAIR_DEVICES = Saga(
    "repair_devices/1",
    RepairDevicesInput,
    compare,
    change_guest,
    record_devices,
    ended=records.release_unrecorded,
)


async def begin(context: SagaContext, server: ServerId, seq: int) -> OperationId:
    """Begin the repair, and wait for its end. `seq`: the last of the server's operations when the difference was seen.

    Raises Conflict when another operation holds the server or held it meanwhile, and the problem with which the repair failed.
    """
    owner = await context.dispatcher.choose(REPAIR_DEVICES.name)
    request = f"req-{new_uuid()}"

    def make(now: Server, operation: OperationId, next_seq: int) -> Accepted:
        if next_seq != seq + 1:
            raise Conflict(f"Instance {server} was changed by another operation since.")
        input = RepairDevicesInput(now, next_seq, request, now.user)
        return accepted(
            REPAIR_DEVICES, operation, now, input, owner=owner, user=now.user, seq=next_seq, request_id=request
        )

    new = await server_lock.accept(context, server, ACTION, make)
    await dispatch(context, new)
    await server_lock.ended_or(context, new.id, lambda: _released(context, server, new.id), ENDS_WITHIN_S)
    return new.id


async def _released(context: SagaContext, server: ServerId, operation: OperationId) -> bool:
    where = await context.region.read(lambda tx: region_servers.find(tx, server))
    return where is None or where.operation != operation
