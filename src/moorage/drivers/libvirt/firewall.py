"""Filters frames on our own bridges: one nftables table, which is written again completely whenever it changes.

moorage_<8 characters of the host's owner>    in the family `bridge`
"""

import ipaddress
from collections.abc import Sequence

from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.tunnels import ROUTED, ROUTED_MACS, TUNNEL_PREFIX, gateway_mac, routed_mac, tunnel_of
from moorage.model.guest import VifData


class Firewall:
    """The firewall of one host."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.table = f"moorage_{owner[:8]}"
        self._written: str | None = None

    async def keep(self, tunnelled: Sequence[VifData]) -> None:
        """`tunnelled`: interfaces on networks that go to other hosts. Nothing to keep: no table."""
        rules = _rules(tunnelled, routed_mac(self._owner))
        if rules == self._written:
            return
        whole = f"table bridge {self.table}\ndelete table bridge {self.table}\n"
        if rules:
            whole += f"table bridge {self.table} {{\n{rules}}}\n"
        await run("nft", "-f", "-", given=whole, code="vif_not_plugged")
        self._written = rules


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
    own = [f"{routed} ether saddr set {own_mac} accept", f'oifname "{TUNNEL_PREFIX}*" drop']
    return _chain("output", own) + _chain("forward", forward)


def _chain(hook: str, rules: Sequence[str]) -> str:
    lines = "".join(f"    {each}\n" for each in rules)
    return f"  chain {hook} {{\n    type filter hook {hook} priority 0; policy accept;\n{lines}  }}\n"
