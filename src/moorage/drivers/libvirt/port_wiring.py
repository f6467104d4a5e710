"""Ports that are described are filtered and kept at their rates on this host: what must be in the kernel is made of what is known, again and again.

The same call serves a plug, a change of a rule and the start of an agent, so after any of them all of it is right; and what is right already is
not touched, or replaced by its equal in one transaction.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from moorage.drivers.libvirt.bandwidth import Bandwidth, ShapedTap
from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.far_networks import own_bridge_of, routes_into_tunnels
from moorage.drivers.libvirt.port_filter import FilteredBridge, FilteredTap, RoutedZone, Ruleset, ruleset
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData
from moorage.model.port_description import PortBandwidth, PortDescription
from moorage.model.route_description import RouterDescription

DESCRIBED = "described"
"""In the details of a binding (moorage_embedded.network.binding)."""
TABLE = "moorage_filter_"
NFT_S = 60.0
TROUBLES_MAX, TROUBLE_CHARACTERS_MAX = 20, 200
CLOSED = "port {}: nftables does not take its rules, and it is closed: {}"

_log = logging.getLogger(__name__)


class Device(Protocol):
    """A network device of this machine."""

    @property
    def index(self) -> int: ...

    @property
    def alias(self) -> str: ...

    @property
    def mac(self) -> str: ...


def is_described(vif: VifData) -> bool:
    """Whether it is closed until it is described."""
    return bool(vif.vif_details.get(DESCRIBED))


class PortWiring:
    """Of one host. `troubles`: what of the descriptions is not in effect."""

    def __init__(self, owner: str, described: DescribedPorts, capacity_kbps: int, alias: str) -> None:
        self.described = described
        self.table = f"{TABLE}{owner[:8]}"
        self.troubles: tuple[str, ...] = ()
        self._bandwidth = Bandwidth(owner, capacity_kbps, alias)
        self._written: str | None = None
        self._shaped = True
        """Whether the last attempt to keep rates succeeded."""

    async def keep(self, vifs: Mapping[str, tuple[VifData, str]], devices: Mapping[str, Device]) -> None:
        """`vifs`: tap → the interface and its bridge, of all guests here. Raises HostFailed, and then the taps are as they were before."""
        taps = [
            FilteredTap(tap, bridge, vif.mac, self.described.ports.get(vif.port))
            for tap, (vif, bridge) in sorted(vifs.items())
            if {tap, bridge} <= devices.keys() and (is_described(vif) or vif.port in self.described.ports)
        ]
        routers = _routers(taps)
        numbers = self.described.numbers(
            [*(vif.port for vif, _ in vifs.values()), *(each.bridge for each in taps), *routers]
        )
        bridges = {
            each.bridge: FilteredBridge(devices[each.bridge].mac, numbers[each.bridge])
            for each in taps
            if each.bridge in devices and each.bridge in numbers
        }
        for bridge in bridges:
            await _hand_over(bridge)
        zones = {
            name: _zone(numbers[name], router, taps) for name, router in sorted(routers.items()) if name in numbers
        }
        troubles = await self._filter(taps, bridges, tuple(zones.values()))
        shaped = [
            _shaped(tap, numbers[vif.port], self.described.ports.get(vif.port))
            for tap, (vif, _) in sorted(vifs.items())
            if tap in devices and vif.port in numbers
        ]
        self._note([*troubles, *await self._shape(shaped, devices)])

    async def _shape(self, shaped: Sequence[ShapedTap], devices: Mapping[str, Device]) -> list[str]:
        """Rates that cannot be kept keep nobody from being plugged in; it is tried again soon."""
        try:
            troubles = await self._bandwidth.keep(shaped, devices)
        except HostFailed as failure:
            self._shaped = False
            return [f"rates of ports are not kept: {failure.private}"]
        self._shaped = True
        return troubles

    def _note(self, troubles: Sequence[str]) -> None:
        cut = tuple(each[:TROUBLE_CHARACTERS_MAX] for each in dict.fromkeys(troubles))[:TROUBLES_MAX]
        for each in cut:
            if each not in self.troubles:
                _log.error("%s", each)
        self.troubles = cut

    # ---- filters ---------------------------------------------------------------------------------------------------

    async def _filter(
        self, taps: Sequence[FilteredTap], bridges: Mapping[str, FilteredBridge], zones: Sequence[RoutedZone]
    ) -> list[str]:
        """One transaction; a port that nftables refuses is closed, and stops no other one."""
        made = await self._compiled(taps, bridges, zones)
        if made.text == self._written:
            return made.troubles
        try:
            await _nft(made.text)
        except HostFailed as refused:
            if not taps:
                raise
            made = await self._without_refused(taps, bridges, zones, refused)
            await _nft(made.text)
        self._written = made.text
        return made.troubles

    async def _without_refused(
        self,
        taps: Sequence[FilteredTap],
        bridges: Mapping[str, FilteredBridge],
        zones: Sequence[RoutedZone],
        whole: HostFailed,
    ) -> Ruleset:
        """Each port alone: nothing is changed by asking."""
        kept: list[FilteredTap] = []
        troubles: list[str] = []
        for tap in taps:
            alone = await self._compiled([tap], {name: each for name, each in bridges.items() if name == tap.bridge})
            try:
                await _nft(alone.text, "--check")
                kept.append(tap)
            except HostFailed as refused:
                kept.append(replace(tap, description=None))
                troubles.append(CLOSED.format(tap.tap, refused.private[-100:]))
        if not troubles:
            raise whole
        made = await self._compiled(kept, bridges, zones)
        made.troubles += troubles
        return made

    async def _compiled(
        self, taps: Sequence[FilteredTap], bridges: Mapping[str, FilteredBridge], zones: Sequence[RoutedZone] = ()
    ) -> Ruleset:
        """Beside the event loop: there may be tens of thousands of addresses."""
        sets = dict(self.described.sets)
        return await asyncio.to_thread(ruleset, self.table, taps, bridges, sets, zones)

    async def is_intact(self) -> bool:
        """Whether all is in effect: who loads other rules may flush these, too."""
        if self._written is None or "vmap" not in self._written:
            return self._shaped
        tables = (await run("nft", "list", "tables", code="vif_not_plugged")).splitlines()
        if all(f"table {family} {self.table}" in tables for family in ("bridge", "inet")):
            return self._shaped
        _log.error("the filters of this host were removed by another program, and are written again")
        self._written = None
        return False


def _routers(taps: Sequence[FilteredTap]) -> dict[str, RouterDescription]:
    """Of these ports, those whose packets may come through tunnels."""
    descriptions = (each.description for each in taps if each.description is not None)
    return {router.router: router for each in descriptions for router in each.routers if routes_into_tunnels(router)}


def _zone(number: int, router: RouterDescription, taps: Sequence[FilteredTap]) -> RoutedZone:
    inner = {own_bridge_of(each.network) for each in router.all_subnets}
    return RoutedZone(
        number,
        tuple(sorted(inner & {each.bridge for each in taps})),
        tuple(sorted({each.cidr for each in router.all_subnets})),
        tuple(sorted({each.destination for each in router.routes})),
        router.is_open,
    )


def _shaped(tap: str, number: int, description: PortDescription | None) -> ShapedTap:
    shaping = None if description is None else description.bandwidth
    bandwidth = shaping or PortBandwidth()
    return ShapedTap(tap, number, bandwidth.egress, bandwidth.ingress)


async def _nft(text: str, *words: str) -> None:
    await run("nft", *words, "-f", "-", given=text, code="vif_not_plugged", limit_s=NFT_S)


async def _hand_over(bridge: str) -> None:
    """IP packets of this bridge pass the family `inet`, those of others only if somebody else wants it."""
    bridge_settings = Path("/sys/class/net") / bridge / "bridge"
    if all(_read(bridge_settings / name) == "1" for name in ("nf_call_iptables", "nf_call_ip6tables")):
        return
    words = ("type", "bridge", "nf_call_iptables", "1", "nf_call_ip6tables", "1")
    await run("ip", "link", "set", "dev", bridge, *words, code="vif_not_plugged")


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
