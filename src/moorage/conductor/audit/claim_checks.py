"""Checks the claims of servers and moves against records, flavors and ports."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from moorage.conductor.audit.finding_builder import amounts, finding
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.model import guest_requests
from moorage.model.audit import Finding
from moorage.model.ids import HostId, ProviderId, ServerId
from moorage.model.network import Port
from moorage.model.network_providers import GUARANTEED
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Nic, Server, VmState
from moorage.operations.interfaces.port_sync import asks_itself
from moorage.operations.steps.ports import guarantees_of, held_by_all, unnamed_guarantees
from moorage.operations.steps.segment_change import shown
from moorage.operations.unshelve_input import needs_of_server
from moorage.store.region.audit_reads import ConsumerHoldings, Mapped
from moorage.store.region.placement.claim_statements import Key

HIDDEN = "its subnet is not shown"


def wanted(
    server: Server, site: ServicesSnapshot, held: Mapping[Key, int], left: Collection[str] = frozenset()
) -> dict[Key, int]:
    """What the server's claim must be, by its record and ports; for the classes `left`, what it is now."""
    total: Counter[Key] = Counter()
    needs = needs_of_server(server, settled=not any(guest_requests.stands_for(name) for _, name in held))
    if server.host is not None and server.provider is not None:
        own = {(ProviderId(server.provider), name): n for name, n in needs.resources.items() if n > 0}
        total.update(own)
        total.update(_of_groups(server, site, held) if needs.groups else {})
    total.update(of_ports(server, site))
    judged = judges_guarantees(server, site)
    for key in total.keys() | held.keys():
        if _is_unknown(key, server, site) or (key[1] in GUARANTEED and not judged) or key[1] in left:
            total[key] = held.get(key, 0)
    return {key: amount for key, amount in total.items() if amount > 0}


def _of_groups(server: Server, site: ServicesSnapshot, held: Mapping[Key, int]) -> dict[Key, int]:
    """Only the claim names the providers of a flavor's request groups."""
    below = site.below.get(HostId(str(server.provider)), ())
    return {key: n for key, n in held.items() if key[0] in below and key[1] not in GUARANTEED}


def _is_unknown(key: Key, server: Server, site: ServicesSnapshot) -> bool:
    """Below the server's own host, and of a class that no port is guaranteed: for example a virtual function."""
    below = site.below.get(HostId(str(server.provider)), ())
    return key[0] in below and key[1] not in GUARANTEED


def judges_guarantees(server: Server, site: ServicesSnapshot) -> bool:
    """Whether guarantees in the claim can be told apart from the flavor's amounts, and every binding names providers of
    its host.
    """
    return not asks_itself(server) and not any(
        unnamed_guarantees(port) or strange_providers(server, port, site) for port in ports_of(server, site).values()
    )


def strange_providers(server: Server, port: Port, site: ServicesSnapshot) -> list[str]:
    """Providers in the port's binding that are not below the server's host."""
    below = {*site.below.get(HostId(str(server.provider)), ()), str(server.provider)}
    return sorted({provider for provider, _, _ in guarantees_of(port)} - below)


def hidden_subnets(nic: Nic, port: Port, site: ServicesSnapshot) -> list[str]:
    """Subnets of its addresses that are not listed, or lack the recorded segment: a service user that lost a role sees
    less.
    """
    return [
        ip.subnet
        for ip in port.fixed_ips
        if site.segments.get(ip.subnet) is None and (ip.subnet not in site.segments or nic.segment is not None)
    ]


def ports_of(server: Server, site: ServicesSnapshot) -> dict[str, Port]:
    """The ports of the record that exist at the network service."""
    ports = {} if site.ports is None else site.ports.get(server.id, {})
    if server.moved is not None and server.moved.readdressed:
        ports = {port.id: port for port in shown(server, ports.values())}
    return {str(nic.port): ports[str(nic.port)] for nic in server.nics if str(nic.port) in ports}


def of_ports(server: Server, site: ServicesSnapshot) -> Counter[Key]:
    """Addresses of segments, and guarantees of the providers in the bindings; from the record where ports were not
    read.
    """
    if site.ports is None:
        return Counter(held_by_all(server.nics))
    ports = ports_of(server, site)
    total: Counter[Key] = Counter()
    for nic in server.nics:
        port = ports.get(str(nic.port))
        if port is None:
            total.update(held_by_all((nic,)))
            continue
        for ip in port.fixed_ips:
            segment = site.segments.get(ip.subnet) or nic.segment
            if segment is not None and ":" not in ip.address:
                total[ProviderId(segment), IPV4_ADDRESS] += 1
        for provider, resource, amount in guarantees_of(port):
            total[ProviderId(provider), resource] += amount
    return total


def of_servers(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Findings about claims of servers in cells: what they hold, and what they should hold."""
    for where, server in page.settled:
        held = page.held.get(server.id)
        amounts_held = {} if held is None else held.amounts
        if server.host is None:
            if server.shelved is None and server.vm_state is not VmState.SHELVED_OFFLOADED:
                yield from _orphan(server.id, held, "a server that is on no host")
            else:
                yield from _differences(server, site, amounts_held)
            continue
        if server.provider is None or server.provider not in site.hosts:
            continue
        yield from _differences(server, site, amounts_held)
        if held is not None:
            yield from _owner(where, server, held)


def _owner(where: Mapped, server: Server, held: ConsumerHoldings) -> Iterator[Finding]:
    owner = held.owner
    recorded = (owner.project, owner.user, owner.host)
    if recorded != (server.project, server.user, server.provider):
        yield finding(
            "allocation_owner_wrong",
            server.id,
            "placement",
            server.id,
            expected=f"project {server.project}, user {server.user}, host {server.provider}",
            found=f"project {owner.project}, user {owner.user}, host {owner.host}",
        )


def _differences(server: Server, site: ServicesSnapshot, held: Mapping[Key, int]) -> Iterator[Finding]:
    want = wanted(server, site, held)
    if want == dict(held):
        return
    own = str(server.provider) if server.host is not None else ""
    by_kind: dict[str, list[Key]] = {}
    for key in sorted(want.keys() | held.keys()):
        if want.get(key, 0) != held.get(key, 0):
            by_kind.setdefault(_kind(key, own, want, held, site), []).append(key)
    for kind, keys in by_kind.items():
        expected = {key: want[key] for key in keys if key in want}
        found = {key: held[key] for key in keys if key in held}
        yield finding(
            kind,
            server.id,
            "placement",
            server.id,
            expected=amounts(expected),
            found=amounts(found),
            why_not=lacking(server, site) or _why_not(keys[0][1], server, site),
        )


def _why_not(resource: str, server: Server, site: ServicesSnapshot) -> str:
    """A port's part of a claim is repaired only when all of it is visible."""
    if "network" in site.out and (resource == IPV4_ADDRESS or resource in GUARANTEED):
        return "the network service could not be asked"
    return HIDDEN if resource == IPV4_ADDRESS and hides(server, site) else ""


def hides(server: Server, site: ServicesSnapshot) -> bool:
    """Whether some subnet of its ports' addresses is hidden from us."""
    ports = ports_of(server, site)
    return any(hidden_subnets(nic, ports[str(nic.port)], site) for nic in server.nics if str(nic.port) in ports)


def lacking(server: Server, site: ServicesSnapshot) -> str:
    """A claim is not reduced because a port was not found: it may only be hidden from us (RULES §22)."""
    if site.ports is None:
        return ""
    missing = [
        str(nic.port) for nic in server.nics if nic.port is not None and str(nic.port) not in ports_of(server, site)
    ]
    return f"first its ports: {', '.join(missing)}" if missing else ""


def _kind(key: Key, own: str, want: Mapping[Key, int], held: Mapping[Key, int], site: ServicesSnapshot) -> str:
    provider, resource = key
    more = want.get(key, 0) > held.get(key, 0)
    if resource == IPV4_ADDRESS:
        return "address_claim_missing" if more else "address_claim_orphaned"
    if resource in GUARANTEED:
        if key not in want:
            return "port_allocation_wrong_provider"
        return "port_allocation_wrong" if key in held else "port_allocation_missing"
    if not own:
        return "shelved_holds_host"
    if provider != own:
        return "allocation_wrong_host" if HostId(provider) in site.hosts else "allocation_amounts_wrong"
    return "allocation_amounts_wrong" if any(name == own for name, _ in held) else "allocation_missing"


def _orphan(consumer: str, held: ConsumerHoldings | None, whose: str) -> Iterator[Finding]:
    if held is not None:
        yield finding(
            "allocation_orphaned",
            consumer,
            "placement",
            consumer,
            expected="nothing",
            found=f"{amounts(held.amounts)}, of {whose}",
        )


def orphans(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Claims of servers that are gone, were never placed, or moved away."""
    for consumer, held in page.held.items():
        where = page.mapped.get(ServerId(consumer))
        if held.moves:
            yield from _move(page, site, consumer, held)
        elif where is None:
            if site.cells_complete and ServerId(consumer) not in page.records:
                yield from _orphan(consumer, held, "an unknown server")
        elif where.operation is None and ServerId(consumer) not in page.records:
            if where.deleted:
                if not where.debts:  # else a silent host may have its guest
                    yield from _orphan(consumer, held, "a deleted server")
            elif where.cell is None or (where.has_order and where.cell in site.cells):
                yield from _orphan(consumer, held, "a server that no host was found for")


def _move(page: SnapshotPage, site: ServicesSnapshot, move: str, held: ConsumerHoldings) -> Iterator[Finding]:
    state = page.move_states.get(move)
    if state is None:
        if site.cells_complete:
            yield finding(
                "migration_allocation_unknown", move, "placement", "", expected="a record", found=amounts(held.amounts)
            )
        return
    where = page.mapped.get(state.server)
    if not state.is_open and (where is None or where.operation is None):
        yield finding(
            "migration_allocation_orphaned",
            move,
            "placement",
            state.server,
            expected="nothing",
            found=amounts(held.amounts),
        )
