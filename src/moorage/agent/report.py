"""Builds a host's report.  Heartbeats are frequent and reports are seldom; a heartbeat causes no write to a database."""

import uuid
from collections.abc import Collection, Mapping

import msgspec

from moorage import __version__
from moorage.bus.host_messages import DEVICES_LISTED_MAX, MAX_LISTED, HostReport
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import HostDescription, PowerState
from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import CellId, HostId, ServerId

TURNS_MAX = MAX_LISTED // 2
LEVEL = 3
"""The present protocol level: ports arrive bound, and the agent has no network client."""

_HOSTS = uuid.UUID("8a6f2f0e-6a0f-5c0e-9f0e-2b7f5f1d9c11")


def host_id(host: str) -> HostId:
    """Return the id of a host's resource provider: made from its name, so that it stays the same if the host loses its disk."""
    return HostId(str(uuid.uuid5(_HOSTS, host)))


def changes(before: Mapping[ServerId, PowerState], now: Mapping[ServerId, PowerState]) -> dict[ServerId, PowerState]:
    """Return the power states that changed; a guest that is gone has NOSTATE."""
    differ = {server: power for server, power in now.items() if before.get(server) is not power}
    differ.update((server, PowerState.NOSTATE) for server in before if server not in now)
    return differ


def report(
    host: str,
    cell: CellId,
    boot: str,
    description: HostDescription,
    states: Mapping[ServerId, PowerState],
    level: int = LEVEL,
    replaces: tuple[str, ...] | None = None,
) -> HostReport:
    return HostReport(
        host=host,
        cell=cell,
        host_id=host_id(host),
        boot=boot,
        level=level,
        version=__version__,
        inventory=description.inventory,
        traits=description.traits,
        physical_networks=description.physical_networks,
        guests=dict(list(states.items())[:MAX_LISTED]),
        hypervisor_type=description.hypervisor_type,
        hypervisor_version=description.hypervisor_version,
        hypervisor_hostname=description.hypervisor_hostname or host,
        cpu_info=description.cpu_info,
        address=description.address,
        physical_functions=description.physical_functions,
        guests_in_all=len(states),
        set_aside=description.set_aside,
        up_since=description.up_since,
        replaces=replaces,
        takes_descriptions=description.takes_descriptions,
        not_wired=description.not_wired,
    )


def turns_listed(turns: Mapping[ServerId, FencingToken], guests: Collection[ServerId]) -> dict[ServerId, int]:
    """The operation of each turn; those of guests come first, because not all may fit into one message."""
    ordered = sorted(turns, key=lambda server: server not in guests)
    return {server: turns[server].operation_seq for server in ordered[:TURNS_MAX]}


def listed_devices(
    devices: Mapping[ServerId, GuestDevices], after: str, limit: int = DEVICES_LISTED_MAX
) -> dict[ServerId, GuestDevices]:
    """Return as many guests' devices as one message holds, beginning after this server; the next report continues there."""
    if sum(max(1, each.count) for each in devices.values()) <= limit:
        return dict(devices)
    ordered, listed, left = sorted(devices), dict[ServerId, GuestDevices](), limit
    for each in (*(one for one in ordered if one > after), *(one for one in ordered if one <= after)):
        left -= max(1, devices[each].count)
        if left < 0:
            break
        listed[each] = devices[each]
    return listed


def described(description: HostDescription) -> bytes:
    """Encode a description, to see whether the host has changed."""
    return msgspec.json.encode(description, order="sorted")
