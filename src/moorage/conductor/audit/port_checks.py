"""Checks ports and their bindings against records."""

from collections.abc import Iterator

from moorage.conductor.audit.claim_checks import HIDDEN, hidden_subnets, lacking, ports_of, strange_providers
from moorage.conductor.audit.finding_builder import finding, joined
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.model.audit import Finding
from moorage.model.ids import ServerId
from moorage.model.network import Port, minted_macs
from moorage.model.server import Server, VmState
from moorage.operations.interfaces.port_sync import addresses_differ
from moorage.operations.steps.ports import unnamed_guarantees

FOR_SERVERS = "compute:"
NOT_MOVED = "the server did not move lately: find out who made it, and delete it there"
SHELVED_AWAY = VmState.SHELVED_OFFLOADED


def of_devices(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Ports that name a server which does not have them."""
    if site.ports is None:
        return
    for device in page.devices:
        id = ServerId(device)
        where = page.mapped.get(id)
        if where is None:
            if site.cells_complete and id not in page.records:
                yield from _unknown(device, site)
            continue
        if (
            where.debts
            or where.operation is not None
            or (where.recorded_in is not None and id not in page.records and id not in page.gone)
        ):
            continue
        if where.cell is not None and where.cell not in site.cells:
            continue
        record = page.record(id)
        if record is None and id in page.records:
            continue  # its mapping is wrong, and is repaired first
        listed = frozenset(str(nic.port) for nic in record.nics) if record is not None else frozenset[str]()
        for port in site.ports[device].values():
            if port.id not in listed:
                yield _stray(id, port, record)


def _unknown(device: str, site: ServicesSnapshot) -> Iterator[Finding]:
    """Only a MAC that was minted for it shows that the device was one of our servers; another port for servers is shown, and
    may be another cloud's."""
    assert site.ports is not None
    for port in site.ports[device].values():
        if port.device_owner.startswith(FOR_SERVERS) and port.mac not in minted_macs(device):
            found = f"device {device}, host {port.host!r}"
            yield finding("port_owner_unknown", port.id, "network", device, expected="a known server", found=found)
        if len(device) == len("00000000-0000-0000-0000-000000000000") and port.mac in minted_macs(device):
            yield finding(
                "port_orphaned",
                port.id,
                "network",
                device,
                expected="none",
                found=f"host {port.host!r}",
                why_not="delete it there",
            )


def _stray(server: ServerId, port: Port, record: Server | None) -> Finding:
    kind = "port_orphaned" if port.mac in minted_macs(server) else "port_not_let_go"
    in_use = record is not None and bool(port.host) and port.host == record.host
    return finding(
        kind,
        port.id,
        "network",
        server,
        expected="no port of that server",
        found=f"host {port.host!r}",
        why_not="it is bound where its server is, so it may be in use: check it" if in_use else "",
    )


def of_servers(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Findings about the ports that records list."""
    if site.ports is None:
        return
    owners = _owners(page, site)
    for _, server in page.settled:
        if not server.nics or (server.host is None and server.vm_state is not SHELVED_AWAY and server.shelved is None):
            continue
        ports = ports_of(server, site)
        for nic in server.nics:
            if nic.port is not None and str(nic.port) not in ports:
                other = owners.get(str(nic.port))
                if other is not None:
                    yield finding(
                        "port_taken_by_other", str(nic.port), "network", server.id, expected=server.id, found=other
                    )
                else:
                    yield finding("port_missing", str(nic.port), "network", server.id, expected="a port", found="none")
        yield from _bindings(page, server, ports, site)


def _owners(page: SnapshotPage, site: ServicesSnapshot) -> dict[str, str]:
    """Port → its device, for ports that another device than their server has; read only when a port is missing."""
    assert site.ports is not None
    missing = {
        str(nic.port)
        for _, server in page.settled
        for nic in server.nics
        if nic.port is not None and str(nic.port) not in site.ports.get(server.id, {})
    }
    if not missing:
        return {}
    return {port: device for device, ports in site.ports.items() for port in ports if port in missing}


def _bindings(page: SnapshotPage, server: Server, ports: dict[str, Port], site: ServicesSnapshot) -> Iterator[Finding]:
    for nic in server.nics:
        port = ports.get(str(nic.port))
        if port is None:
            continue
        if server.host is None:
            if port.host:
                yield finding(
                    "port_bound_of_shelved", port.id, "network", server.id, expected="no host", found=port.host
                )
            continue
        if not port.host:
            yield finding("port_unbound", port.id, "network", server.id, expected=server.host, found="no host")
        elif port.host != server.host:
            yield finding("port_bound_elsewhere", port.id, "network", server.id, expected=server.host, found=port.host)
        elif profile := _profile(server, port, site):
            yield finding(
                "port_profile_wrong", port.id, "network", server.id, expected="providers below its host", found=profile
            )
        if addresses_differ(nic, port, site.segments):
            yield finding(
                "port_addresses_differ",
                port.id,
                "network",
                server.id,
                expected=joined(sorted(each.address for each in port.fixed_ips)),
                found=joined(sorted(each.address for each in nic.addresses)),
                why_not=lacking(server, site) or (HIDDEN if hidden_subnets(nic, port, site) else ""),
            )
    if server.id not in page.moves:
        for nic in server.nics:
            for host in site.inactive.get(str(nic.port), ()):
                yield finding(
                    "port_binding_left",
                    str(nic.port),
                    host,
                    server.id,
                    expected="none",
                    found="an inactive binding",
                    why_not="" if server.id in site.moved else NOT_MOVED,
                )


def _profile(server: Server, port: Port, site: ServicesSnapshot) -> str:
    """What is wrong with the providers in a binding; empty: nothing."""
    if unnamed := unnamed_guarantees(port):
        return f"no provider for {', '.join(unnamed)}"
    strange = strange_providers(server, port, site)
    return f"provider {', '.join(strange)}" if strange else ""
