"""Checks the volumes and interfaces of guests, as hosts reported them, against records, attachments and ports.

Only guests that a cell's conductor found to differ are looked at (`conductor/device_comparison.py`); a guest of which nothing was
reported is none of them.
"""

from collections.abc import Iterator

from moorage.conductor.audit.finding_builder import finding
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.model.audit import Finding
from moorage.model.guest_devices import GuestDevices, GuestVolume, recorded_devices
from moorage.model.server import Server, VmState
from moorage.model.volume import ATTACHED
from moorage.store.cell.recorded_devices import WITH_DEVICES

NOT_SHOWN = "the volume service does not know it: find out what it is"
BY_A_PERSON = "find out which of the two has the server's data"
NOT_EXPORTED = "its attachment is not exported to the host: detach and attach it"
HALF_MADE = "the server has an attachment of it that is not exported to the host: check it"
NO_PORT = "the host knows no port for it: check it there"
NOT_BOUND = "its port is not bound to the host, which is repaired first"
RUNS_NOT = "the guest's devices cannot be changed while it is suspended or paused"


def of_servers(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Guests with other devices than their records list."""
    for _, server in page.settled:
        has = site.differing.get(str(server.host), {}).get(server.id)
        if has is None or server.vm_state not in WITH_DEVICES or page.moves.get(server.id):
            continue
        where = page.mapped.get(server.id)
        if where is not None and where.debts:  # what is owed is done first, and may be what differs
            continue
        if site.attachments is not None:
            yield from _volumes(server, has, site)
        if site.ports is not None:
            yield from _interfaces(server, has, site)


def _volumes(server: Server, has: GuestDevices, site: ServicesSnapshot) -> Iterator[Finding]:
    host, listed, has_now = str(server.host), {str(each.volume) for each in server.volumes}, has.names[0]
    by_bdm = {each.bdm: str(each.volume) for each in server.volumes if each.bdm}
    still = "" if server.vm_state not in {VmState.SUSPENDED, VmState.PAUSED} else RUNS_NOT
    replaced: set[str] = set()
    for each in has.volumes:
        before = by_bdm.get(each.bdm)
        if each.volume in listed:
            continue
        right, why_not = _right(server, each, site)
        if before is not None and before not in has_now:
            replaced.add(before)
            kind, expected = "guest_volume_replaced", f"volume {before}"
            why_not = why_not or ("" if right == OURS else BY_A_PERSON)
        else:
            kind, expected = ("guest_volume_of_other" if right == OTHERS else "guest_volume_unrecorded"), "none"
        takes_out = right != OURS and not why_not
        yield finding(
            kind,
            each.volume,
            host,
            server.id,
            expected=expected,
            found=f"the guest has it; {_attached(each, site)}",
            why_not=why_not or (still if takes_out else ""),
        )
    attached = {each.id for each in (site.attachments or {}).get(server.id, []) if each.status == ATTACHED}
    for device in server.volumes:
        if str(device.volume) in has_now or str(device.volume) in replaced:
            continue
        is_exported = device.attachment in attached and site.exported.get(str(device.attachment)) == host
        yield finding(
            "guest_volume_missing",
            str(device.volume),
            host,
            server.id,
            expected="the guest has it",
            found="the guest lacks it",
            why_not=still if is_exported else NOT_EXPORTED,
        )


OURS, OTHERS, NOBODYS = "ours", "others", "nobodys"


def _right(server: Server, has: GuestVolume, site: ServicesSnapshot) -> tuple[str, str]:
    """Whose the volume is by the volume service, and why that is not enough for a repair; empty: it is."""
    shown = site.volumes.get(has.volume)
    if shown is None:
        return NOBODYS, NOT_SHOWN
    ours = [each for each in (site.attachments or {}).get(server.id, []) if each.volume == has.volume]
    if any(each.status == ATTACHED and shown.hosts.get(each.id) == server.host for each in ours):
        return OURS, ""
    if ours:
        return OURS, HALF_MADE
    return (OTHERS if any(of != server.id for _, of in shown.attachments) else NOBODYS), ""


def _attached(has: GuestVolume, site: ServicesSnapshot) -> str:
    shown = site.volumes.get(has.volume)
    if shown is None:
        return "the volume service does not know it"
    servers = sorted({of for _, of in shown.attachments})
    return f"it is {shown.status}" + (f", attached to {', '.join(servers)}" if servers else ", attached to nobody")


def _interfaces(server: Server, has: GuestDevices, site: ServicesSnapshot) -> Iterator[Finding]:
    host, listed = str(server.host), recorded_devices(server)
    shown = (site.ports or {}).get(server.id, {})
    still = RUNS_NOT if server.vm_state is VmState.SUSPENDED else ""
    for each in has.interfaces:
        name = each.port or each.mac
        if name in listed.names[1]:
            continue
        port = shown.get(each.port)
        why_not = NO_PORT if not each.port else NOT_BOUND if port is not None and port.host != host else ""
        whose = "no port of the server" if port is None else f"a port of the server on host {port.host!r}"
        yield finding(
            "guest_interface_unrecorded",
            name,
            host,
            server.id,
            expected="none",
            found=f"the guest has it, and it is {whose}",
            why_not=why_not or ("" if port is not None else still),
        )
    for each in listed.interfaces:
        name = each.port or each.mac
        if name in has.names[1]:
            continue
        port = shown.get(each.port)
        is_bound = port is not None and port.host == host
        yield finding(
            "guest_interface_missing",
            name,
            host,
            server.id,
            expected="the guest has it",
            found="the guest lacks it",
            why_not=still if is_bound else NOT_BOUND if each.port else NO_PORT,
        )
