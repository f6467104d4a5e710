"""Routers and floating addresses of this host's guests: puts into effect what `routes.py` plans.

Everything is in the kernel, so it goes on without the agent: a table of nftables (`inet moorage_route_<8 characters of the owner>`),
tables of routes with a rule for each bridge and one for each mark, and addresses on the operator's external devices, told to the outside by
ARP and neighbour advertisements.  What was made is written down before it is made, so that whatever an agent that was killed has left is found.

    <host's directory>/routing.json
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from moorage.drivers.libvirt import daemons
from moorage.drivers.libvirt.arp_entries import keep_arp_entries
from moorage.drivers.libvirt.bridge_tables import is_service, loosest_filter
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.firewall import has_tables
from moorage.drivers.libvirt.metadata_keeper import Seat
from moorage.drivers.libvirt.outside_addresses import keep_addresses
from moorage.drivers.libvirt.route_chains import chains_of
from moorage.drivers.libvirt.route_tables import MadeRules, keep_tables, number_of, numbered
from moorage.drivers.libvirt.routes import (
    FIRST_TABLE,
    NOTHING_FAR,
    FamilyPlan,
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
TABLE_PREFIX = "moorage_route_"
SYSTEM_CONTROL = Path("/proc/sys/net")
FOUR, SIX = "ipv4", "ipv6"
FORCE_FORWARDING = "force_forwarding"
"""Linux 6.17 has it: what comes from this device is forwarded, whatever the machine does with others."""
REFLECT = "fwmark_reflect"
"""ICMP errors have the mark of the packet that they are about (route_chains.py)."""
NOT_FORWARDED = "IPv6 is not routed: this kernel needs net.ipv6.conf.all.forwarding = 1 for it"

_log = logging.getLogger(__name__)


class RoutingState(msgspec.Struct):
    """What is, or is about to be, ours."""

    tables: dict[str, int] = {}
    """VRF → table; a rule for its mark leads to it."""
    rules: dict[str, int] = {}
    """Bridge → table."""
    addresses: dict[str, str] = {}
    """Address → device."""
    settings: dict[str, str] = {}
    """File of the kernel's settings → what stood in it before."""
    marked: bool = False
    """Whether the rule for the mark of an earlier release may be there."""
    arp_entries: list[str] = []
    """Bridges with permanent ARP entries."""
    rules_v6: dict[str, int] = {}
    tables_v6: list[str] = []
    """VRFs with routes of IPv6."""
    last: int = FIRST_TABLE - 1
    """The table that was taken last."""


class _Address(msgspec.Struct):
    local: str = ""
    length: int = msgspec.field(default=0, name="prefixlen")


class _Device(msgspec.Struct):
    name: str = msgspec.field(default="", name="ifname")
    mac: str = msgspec.field(default="", name="address")
    addresses: list[_Address] = msgspec.field(default_factory=list, name="addr_info")

    def has(self, address: str) -> bool:
        return any(each.local == address for each in self.addresses)


class Routing:
    """Of one host. `external`: physical network, or id of an external network → device of this machine. `troubles`: what is not in effect."""

    def __init__(self, owner: str, room: Path, external: Mapping[str, str]) -> None:
        self.table = f"{TABLE_PREFIX}{owner[:8]}"
        self._file, self._external = room / FILE, external
        self._written: str | None = None
        self.troubles: tuple[str, ...] = ()

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
            self.troubles = ()
            return
        devices = await _devices()
        seats = {
            bridge: each for bridge, each in seats.items() if bridge in devices
        }  # a guest may be about to be plugged in
        plan = planned(_ports(seats, described), self._outside(devices), made.addresses, far)
        plan.services = {
            bridge: each.local for bridge in seats for each in devices[bridge].addresses if is_service(each.local)
        }
        if not (SYSTEM_CONTROL / SIX).is_dir():  # a machine without IPv6
            plan.six = FamilyPlan()
        left = _state(plan, made)
        coming = _both(made, left)
        if seats:
            self._write(coming)
        self._set(plan, coming)
        self._complain(plan)
        left.settings = coming.settings
        await self._filter(chains_of(plan, {vrf: number_of(table) for vrf, table in left.tables.items()}))
        made_v6 = frozenset(made.tables[vrf] for vrf in made.tables_v6 if vrf in made.tables)
        four = MadeRules(made.rules, frozenset(made.tables.values()), made.marked)
        await keep_tables("-4", plan.four, left.tables, four)
        await keep_tables("-6", plan.six, left.tables, MadeRules(made.rules_v6, made_v6))
        await keep_arp_entries(plan.arp_entries, {*made.arp_entries} & devices.keys())
        await keep_addresses(plan.addresses, made.addresses, devices)
        await self._reset(plan, left)
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
            if each not in self.troubles:
                _log.warning("%s", each)
        self.troubles = tuple(dict.fromkeys(plan.troubles))

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
        """Only what comes from these devices is forwarded. What comes from outside may be from where the machine's own routes do not lead,
        and so may be what a network sends whose addresses another one has too."""
        for device in sorted(plan.four.forwarding | plan.vrfs.keys()):
            outside = device in self._external.values()
            values = {"rp_filter": "0" if outside else loosest_filter()}
            if device in plan.four.forwarding:
                values["forwarding"] = "1"
            self._change(FOUR, device, values, made)
        for device in sorted(plan.six.forwarding):
            # a router that does not say in its advertisements that it is one is forgotten by those who had it
            values = {} if device in self._external.values() else {"forwarding": "1"}
            if (SYSTEM_CONTROL / SIX / "conf" / device / FORCE_FORWARDING).exists():
                values[FORCE_FORWARDING] = "1"
            elif (SYSTEM_CONTROL / SIX / "conf" / "all" / "forwarding").read_text().strip() == "0":
                plan.troubles.append(NOT_FORWARDED)
            self._change(SIX, device, values, made)
        for family, of_family in ((FOUR, plan.four), (SIX, plan.six)):
            if of_family.tables:
                self._write_setting(SYSTEM_CONTROL / family / REFLECT, "1", made, written_down=True)

    def _change(self, family: str, device: str, values: Mapping[str, str], made: RoutingState) -> None:
        """Devices of ours go; what is changed of the operator's is written down. Raises HostFailed."""
        for name, value in values.items():
            file = SYSTEM_CONTROL / family / "conf" / device / name
            self._write_setting(file, value, made, written_down=device in self._external.values())

    def _write_setting(self, file: Path, value: str, made: RoutingState, *, written_down: bool) -> None:
        try:
            before = file.read_text().strip()
            if before != value:
                if written_down:
                    made.settings.setdefault(str(file), before)
                    self._write(made)
                file.write_text(value)
        except OSError as failure:
            raise HostFailed("the host cannot forward", private=str(failure), code="vif_not_plugged") from failure

    async def _reset(self, plan: RoutePlan, made: RoutingState) -> None:
        gone = [each for each in made.settings if not _needs(plan, Path(each))]
        shared = any(Path(each).name == REFLECT for each in gone) and await self._others_route()
        _put_back({each: made.settings.pop(each) for each in gone}, shared=shared)

    async def _others_route(self) -> bool:
        """Whether another agent of this machine does."""
        tables = (await run("nft", "list", "tables", code="vif_not_plugged")).split()
        return any(each.startswith(TABLE_PREFIX) and each != self.table for each in tables)

    # ---- nftables ----------------------------------------------------------------------------------------------------

    async def is_intact(self) -> bool:
        """Whether nobody removed its rules; those that somebody did are written with the next call of `keep`."""
        intact = not self._written or await has_tables([f"table inet {self.table}"])
        if not intact:
            self._written = None
        return intact

    async def _filter(self, chains: str) -> None:
        if chains == self._written:
            return
        whole = f"table inet {self.table}\ndelete table inet {self.table}\n"
        if chains:
            whole += f"table inet {self.table} {{\n{chains}}}\n"
        await run("nft", "-f", "-", given=whole, code="vif_not_plugged")
        self._written = chains


def _needs(plan: RoutePlan, setting: Path) -> bool:
    of_family = plan.six if SIX in setting.parts else plan.four
    return bool(of_family.tables) if setting.name == REFLECT else setting.parent.name in of_family.forwarding


def _put_back(settings: Mapping[str, str], *, shared: bool) -> None:
    """As far as the device, or IPv6, is there. `shared`: what is not of a device stays."""
    for file, before in settings.items():
        path = Path(file)
        if path.exists() and not (shared and path.name == REFLECT):
            path.write_text(before)


def _ports(seats: Mapping[str, Sequence[Seat]], described: Mapping[PortId, PortDescription]) -> list[RoutedPort]:
    found = []
    for bridge, each in seats.items():
        for seat in each:
            description = described.get(seat.vif.port)
            cidrs = tuple(dict.fromkeys(one.cidr for one in seat.vif.addresses if one.cidr))
            floating, routers = ((), ()) if description is None else (description.floating, description.routers)
            gateways = tuple(dict.fromkeys(one.gateway for one in seat.vif.addresses if one.cidr and one.gateway))
            found.append(RoutedPort(bridge, cidrs, floating, routers, gateways))
    return found


async def _devices() -> dict[str, _Device]:
    """With their addresses."""
    output = await run("ip", "-json", "address", "show", code="vif_not_plugged")
    found = {each.name: each for each in msgspec.json.decode(output or "[]", type=list[_Device]) if each.name}
    for device in found.values():
        device.addresses = [each for each in device.addresses if each.local]
    return found


def _state(plan: RoutePlan, made: RoutingState) -> RoutingState:
    """What is ours when the plan is in effect. Raises HostFailed when there are more VRFs than tables."""
    tables, last = numbered(plan.tables, made.tables, made.last)
    return RoutingState(
        tables,
        {bridge: tables[router] for bridge, router in plan.four.rules.items()},
        dict(plan.addresses),
        dict(made.settings),
        arp_entries=sorted(plan.arp_entries),
        rules_v6={bridge: tables[router] for bridge, router in plan.six.rules.items()},
        tables_v6=sorted(plan.six.tables),
        last=last if tables else RoutingState().last,
    )


def _both(made: RoutingState, left: RoutingState) -> RoutingState:
    """What may be there in between."""
    return RoutingState(
        made.tables | left.tables,
        made.rules | left.rules,
        made.addresses | left.addresses,
        dict(made.settings),
        made.marked,
        sorted({*made.arp_entries, *left.arp_entries}),
        made.rules_v6 | left.rules_v6,
        sorted({*made.tables_v6, *left.tables_v6}),
        left.last,
    )
