"""Filters frames on our own bridges, and what guests say to this machine: two nftables tables, which are written again completely whenever
they change.

moorage_<8 characters of the host's owner>    in the family `bridge`: tunnels; in the family `inet`: the machine itself (host_input.py)
"""

import ipaddress
import logging
from collections.abc import Sequence

from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.route_chains import OTHERS
from moorage.drivers.libvirt.tunnels import ROUTED, ROUTED_MACS, TUNNEL_PREFIX, gateway_mac, routed_mac, tunnel_of
from moorage.model.guest import VifData

FAMILIES = ("bridge", "inet")

_log = logging.getLogger(__name__)


class Firewall:
    """The firewall of one host."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.table = f"moorage_{owner[:8]}"
        self._written: tuple[str, str] | None = None

    async def keep(self, tunnelled: Sequence[VifData], input_rules: str = "") -> None:
        """`tunnelled`: interfaces on networks that go to other hosts; `input_rules`: of host_input.py. Nothing to keep: no table."""
        wanted = _rules(tunnelled, routed_mac(self._owner)), input_rules
        if wanted == self._written:
            return
        whole = ""
        for family, rules in zip(FAMILIES, wanted, strict=True):
            whole += f"table {family} {self.table}\ndelete table {family} {self.table}\n"
            if rules:
                whole += f"table {family} {self.table} {{\n{rules}}}\n"
        await run("nft", "-f", "-", given=whole, code="vif_not_plugged")
        self._written = wanted

    def tables(self) -> list[str]:
        """Those that are there, in nft's words, as long as no other program takes them away."""
        written = self._written or ("", "")
        return [f"table {family} {self.table}" for family, rules in zip(FAMILIES, written, strict=True) if rules]

    def forget(self) -> None:
        """Write them again the next time."""
        self._written = None


async def has_tables(tables: Sequence[str]) -> bool:
    """Whether nftables has all of these: who loads other rules may flush ours, too. Raises HostFailed."""
    if not tables:
        return True
    found = (await run("nft", "list", "tables", code="vif_not_plugged")).splitlines()
    gone = [each for each in tables if each not in found]
    if gone:
        _log.error("another program removed rules of this host, and they are written again: %s", ", ".join(gone))
    return not gone


def _rules(tunnelled: Sequence[VifData], own_mac: str) -> str:
    if not tunnelled:
        return ""
    forward = [f'oifname "{TUNNEL_PREFIX}*" udp dport 67 drop', f'oifname "{TUNNEL_PREFIX}*" udp sport 67 drop']
    gateways = {
        (tunnel_of(vif.network), each.gateway)
        for vif in tunnelled
        for each in vif.addresses
        if each.gateway and ipaddress.ip_address(each.gateway).version == 4
    }
    forward += [f'oifname "{name}" arp daddr ip {gateway} drop' for name, gateway in sorted(gateways)]
    # who is routed to has its gateway's MAC to answer, and is shown no other one
    forward += [
        f'iifname "{tunnel_of(network)}" ether saddr & ff:ff:ff:00:00:00 == {ROUTED_MACS}:00:00:00 '
        f"ether saddr set {gateway_mac(network)}"
        for network in sorted({vif.network for vif in tunnelled})
    ]
    routed = f'oifname "{TUNNEL_PREFIX}*" meta mark & {ROUTED:#010x} != 0'
    unmarked = f'oifname "{TUNNEL_PREFIX}*" meta mark set meta mark and {OTHERS:#010x}'
    own = [unmarked, f"{routed} ether saddr set {own_mac} accept", f'oifname "{TUNNEL_PREFIX}*" drop']
    return _chain("output", own) + _chain("forward", [unmarked, *forward])


def _chain(hook: str, rules: Sequence[str]) -> str:
    lines = "".join(f"    {each}\n" for each in rules)
    return f"  chain {hook} {{\n    type filter hook {hook} priority 0; policy accept;\n{lines}  }}\n"
