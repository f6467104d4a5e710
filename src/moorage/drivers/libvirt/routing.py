"""Routers and floating addresses of this host's guests: puts into effect what `routes.py` plans.

Everything is in the kernel, so it goes on without the agent: a table of nftables (`inet moorage_route_<8 characters of the owner>`),
tables of routes with a rule for each bridge, and addresses on the operator's external devices, told to the outside by ARP.  What was made
is written down before it is made, so that whatever is left by an agent that was killed is found.

    <host's directory>/routing.json
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from moorage.drivers.libvirt import daemons
from moorage.drivers.libvirt.arp_entries import keep_arp_entries
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.metadata_keeper import Seat
from moorage.drivers.libvirt.routes import (
    FIRST_TABLE,
    MARK,
    MARKED_PRIORITY,
    NOTHING_FAR,
    RULE_PRIORITY,
    TABLES_MAX,
    FarSide,
    Outside,
    RoutedPort,
    RoutePlan,
    planned,
)
from moorage.model.errors import HostFailed
from moorage.model.ids import PortId
from moorage.model.port_description import PortDescription

FILE = "routing.json"
SYSTEM_CONTROL = Path("/proc/sys/net/ipv4/conf")
ARP_FRAMES, ARP_ETHERTYPE = 3, 0x0806

_log = logging.getLogger(__name__)


class RoutingState(msgspec.Struct):
    """What is, or is about to be, ours."""

    tables: dict[str, int] = {}
    rules: dict[str, int] = {}
    """Bridge → table."""
    addresses: dict[str, str] = {}
    """Address → device."""
    settings: dict[str, str] = {}
    """File of the kernel's settings → what stood in it before."""
    marked: bool = False
    arp_entries: list[str] = []
    """Bridges with permanent ARP entries."""


class _Address(msgspec.Struct):
    local: str = ""
    length: int = msgspec.field(default=32, name="prefixlen")


class _Device(msgspec.Struct):
    name: str = msgspec.field(default="", name="ifname")
    mac: str = msgspec.field(default="", name="address")
    addresses: list[_Address] = msgspec.field(default_factory=list, name="addr_info")


class Routing:
    """Of one host. `external`: physical network, or id of an external network → device of this machine."""

    def __init__(self, owner: str, room: Path, external: Mapping[str, str]) -> None:
        self.table = f"moorage_route_{owner[:8]}"
        self._file, self._external = room / FILE, external
        self._written: str | None = None
        self._troubles: tuple[str, ...] = ()

    async def keep(
        self,
        seats: Mapping[str, Sequence[Seat]],
        described: Mapping[PortId, PortDescription],
        far: FarSide = NOTHING_FAR,
    ) -> None:
        """Bridge → who is on it. A repeat changes nothing, and what goes on is not interrupted. Raises HostFailed (`vif_not_plugged`)."""
        made = self._read()
        if not seats and made == RoutingState():
            await self._filter("")
            return
        devices = await _devices()
        seats = {
            bridge: each for bridge, each in seats.items() if bridge in devices
        }  # a guest may be about to be plugged in
        plan = planned(_ports(seats, described), self._outside(devices), made.addresses, far)
        self._complain(plan)
        made.tables = {name: number for name, number in made.tables.items() if name in plan.tables} | self._numbered(
            plan, made
        )
        coming = RoutingState(
            made.tables,
            made.rules | {bridge: made.tables[router] for bridge, router in plan.rules.items()},
            made.addresses | plan.addresses,
            made.settings,
            made.marked or bool(plan.rules),
            sorted({*made.arp_entries, *plan.arp_entries}),
        )
        if seats:
            self._write(coming)
        self._set(plan, coming)
        await self._filter(plan.chains)
        if plan.tables or coming.rules or coming.marked:
            await self._route(plan, coming)
        await keep_arp_entries(plan.arp_entries, {*made.arp_entries} & devices.keys())
        await self._have(plan, coming, devices)
        self._reset(plan, coming, devices)
        left = RoutingState(
            made.tables,
            {each: made.tables[router] for each, router in plan.rules.items()},
            plan.addresses,
            coming.settings,
            bool(plan.rules),
            sorted(plan.arp_entries),
        )
        self._write(left)

    # ---- what was made ------------------------------------------------------------------------------------------------

    def _read(self) -> RoutingState:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=RoutingState)
        except FileNotFoundError:
            return RoutingState()
        except (OSError, msgspec.MsgspecError) as unreadable:
            _log.error("%s cannot be read; addresses on external devices may be left: %s", self._file, unreadable)
            return RoutingState()

    def _write(self, made: RoutingState) -> None:
        if made == RoutingState():
            self._file.unlink(missing_ok=True)
            return
        try:
            daemons.write(self._file, msgspec.json.encode(made).decode(), 0o600)
        except OSError as full:
            raise HostFailed("the host's disk is full", private=str(full), code="host_full") from full

    def _complain(self, plan: RoutePlan) -> None:
        for each in plan.troubles:
            if each not in self._troubles:
                _log.warning("%s", each)
        self._troubles = tuple(plan.troubles)

    @staticmethod
    def _numbered(plan: RoutePlan, made: RoutingState) -> dict[str, int]:
        taken, found = {*made.tables.values()}, dict(made.tables)
        for router in plan.tables:
            if router not in found:
                number = next(
                    (each for each in range(FIRST_TABLE, FIRST_TABLE + TABLES_MAX) if each not in taken), None
                )
                if number is None:
                    raise HostFailed("the host has no table of routes left", private=router, code="vif_not_plugged")
                found[router] = number
                taken.add(number)
        return {router: found[router] for router in plan.tables}

    def _outside(self, devices: Mapping[str, _Device]) -> dict[str, Outside]:
        found = {}
        for name, device in self._external.items():
            if device in devices:
                found[name] = Outside(
                    device, tuple(f"{each.local}/{each.length}" for each in devices[device].addresses)
                )
        return found

    # ---- the kernel's settings ----------------------------------------------------------------------------------------

    def _set(self, plan: RoutePlan, made: RoutingState) -> None:
        """Only what comes from these devices is forwarded. What comes from outside may be from where the machine's own routes do not lead."""
        for device in sorted(plan.forwarding):
            outside = device in self._external.values()
            for name, value in (("forwarding", "1"), ("rp_filter", "0" if outside else "2")):
                file = SYSTEM_CONTROL / device / name
                try:
                    before = file.read_text().strip()
                    if before != value:
                        if outside:
                            made.settings.setdefault(str(file), before)
                            self._write(made)
                        file.write_text(value)
                except OSError as failure:
                    raise HostFailed(
                        "the host cannot forward", private=str(failure), code="vif_not_plugged"
                    ) from failure

    def _reset(self, plan: RoutePlan, made: RoutingState, devices: Mapping[str, _Device]) -> None:
        for file, before in list(made.settings.items()):
            device = Path(file).parent.name
            if device not in plan.forwarding:
                if device in devices:
                    Path(file).write_text(before)
                del made.settings[file]

    # ---- nftables, routes, addresses ------------------------------------------------------------------------------------

    async def _filter(self, chains: str) -> None:
        if chains == self._written:
            return
        whole = f"table inet {self.table}\ndelete table inet {self.table}\n"
        if chains:
            whole += f"table inet {self.table} {{\n{chains}}}\n"
        await run("nft", "-f", "-", given=whole, code="vif_not_plugged")
        self._written = chains

    async def _route(self, plan: RoutePlan, made: RoutingState) -> None:
        every = await _all_rules()
        rules = _of_bridges(every)
        commands: list[str] = []
        for router, routes in plan.tables.items():
            table = str(made.tables[router])
            commands += [" ".join(("route", "replace", *each, "table", table)) for each in routes]
            kept = {_destination(each) for each in routes}
            commands += [f"route del {each} table {table}" for each in sorted(await _routes(table) - kept)]
        wanted = {bridge: made.tables[router] for bridge, router in plan.rules.items()}
        for bridge, number in wanted.items():
            if (bridge, number) not in rules:
                commands.append(f"rule add iif {bridge} lookup {number} priority {RULE_PRIORITY}")
        for bridge, number in rules:
            if made.rules.get(bridge) is not None and wanted.get(bridge) != number:
                commands.append(f"rule del iif {bridge} lookup {number} priority {RULE_PRIORITY}")
        marked = any(each.priority == MARKED_PRIORITY and each.mark for each in every)
        if wanted and not marked:
            commands.append(f"rule add fwmark {MARK:#x}/{MARK:#x} lookup main priority {MARKED_PRIORITY}")
        if not wanted and marked and made.marked:
            commands.append(f"rule del fwmark {MARK:#x}/{MARK:#x} lookup main priority {MARKED_PRIORITY}")
        used = {*wanted.values()}
        for number in sorted({*made.rules.values()} - used):
            commands += [f"route del {each} table {number}" for each in sorted(await _routes(str(number)))]
        if commands:
            await run("ip", "-batch", "-", given="\n".join(commands) + "\n", code="vif_not_plugged")

    async def _have(self, plan: RoutePlan, made: RoutingState, devices: Mapping[str, _Device]) -> None:
        existing = {(each.local, name) for name, device in devices.items() for each in device.addresses}
        for address, device in plan.addresses.items():
            if (address, device) not in existing:
                await run(
                    "ip", "address", "replace", f"{address}/32", "dev", device, "scope", "link", code="vif_not_plugged"
                )
                await asyncio.to_thread(_announce, device, devices[device].mac, address)
        for address, device in made.addresses.items():
            if plan.addresses.get(address) != device and (address, device) in existing:
                await run("ip", "address", "delete", f"{address}/32", "dev", device, code="vif_not_plugged")


def _ports(seats: Mapping[str, Sequence[Seat]], described: Mapping[PortId, PortDescription]) -> list[RoutedPort]:
    found = []
    for bridge, each in seats.items():
        for seat in each:
            description = described.get(seat.vif.port)
            cidrs = tuple(dict.fromkeys(one.cidr for one in seat.vif.addresses if one.cidr))
            floating, routers = ((), ()) if description is None else (description.floating, description.routers)
            found.append(RoutedPort(bridge, cidrs, floating, routers))
    return found


async def _devices() -> dict[str, _Device]:
    """With their IPv4 addresses."""
    output = await run("ip", "-json", "address", "show", code="vif_not_plugged")
    found = {each.name: each for each in msgspec.json.decode(output or "[]", type=list[_Device]) if each.name}
    for device in found.values():
        device.addresses = [each for each in device.addresses if each.local and ":" not in each.local]
    return found


class _Rule(msgspec.Struct):
    priority: int = 0
    table: str = ""
    device: str = msgspec.field(default="", name="iif")
    mark: str = msgspec.field(default="", name="fwmark")


async def _all_rules() -> list[_Rule]:
    output = await run("ip", "-json", "rule", "show", code="vif_not_plugged")
    return msgspec.json.decode(output or "[]", type=list[_Rule])


def _of_bridges(rules: Iterable[_Rule]) -> set[tuple[str, int]]:
    """Bridge and table, of whoever routes as we do."""
    return {(each.device, int(each.table)) for each in rules if each.priority == RULE_PRIORITY and each.table.isdigit()}


async def _routes(table: str) -> set[str]:
    try:
        output = await run("ip", "-json", "route", "show", "table", table, code="vif_not_plugged")
    except HostFailed:  # nobody has a route in there
        return set()
    found = set()
    for each in msgspec.json.decode(output or "[]"):
        kind = f"{each['type']} " if each.get("type") == "unreachable" else ""
        found.add(f"{kind}{each['dst']}")
    return found


def _destination(route: Iterable[str]) -> str:
    words = list(route)
    return " ".join(words[:2]) if words[0] == "unreachable" else words[0]


def _announce(device: str, mac: str, address: str) -> None:
    """Gratuitous ARP: whoever remembers another host for this address forgets it."""
    own, ip = bytes.fromhex(mac.replace(":", "")), socket.inet_aton(address)
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
            out.bind((device, 0))
            for number in range(ARP_FRAMES):
                operation, target = (2, own) if number % 2 else (1, bytes(6))
                head = b"\xff" * 6 + own + struct.pack("!H", ARP_ETHERTYPE)
                out.send(head + struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + own + ip + target + ip)
    except OSError as failure:
        _log.warning("%s cannot be announced on %s: %s", address, device, failure)
