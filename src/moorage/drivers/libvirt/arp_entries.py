"""Neighbours of bridges of ours, by ARP and NDP, that were told to this host: nobody answers for them here, since questions stay on their host (firewall.py)."""

from collections.abc import Collection, Mapping

import msgspec

from moorage.drivers.libvirt.commands import run

APPLY_S = 60.0


class _ArpEntry(msgspec.Struct):
    address: str = msgspec.field(default="", name="dst")
    mac: str = msgspec.field(default="", name="lladdr")
    device: str = msgspec.field(default="", name="dev")


async def keep_arp_entries(wanted: Mapping[str, Mapping[str, str]], others: Collection[str]) -> None:
    """`wanted`: bridge → address → MAC, all that it shall have. `others`: bridges that have none any more. Raises HostFailed."""
    if not wanted and not others:
        return
    for family, six in (("-4", False), ("-6", True)):
        then = {
            bridge: {address: mac for address, mac in each.items() if (":" in address) is six}
            for bridge, each in wanted.items()
        }
        await _keep(family, then, others)


async def _keep(family: str, wanted: Mapping[str, Mapping[str, str]], others: Collection[str]) -> None:
    output = await run("ip", family, "-json", "neigh", "show", "nud", "permanent", code="vif_not_plugged")
    held: dict[str, dict[str, str]] = {}
    for each in msgspec.json.decode(output or "[]", type=list[_ArpEntry]):
        held.setdefault(each.device, {})[each.address] = each.mac
    commands: list[str] = []
    for bridge in sorted({*wanted, *others}):
        now, then = held.get(bridge, {}), wanted.get(bridge, {})
        commands += [f"neigh del {address} dev {bridge}" for address in now if address not in then]
        commands += [
            f"neigh replace {address} lladdr {mac} dev {bridge} nud permanent"
            for address, mac in then.items()
            if now.get(address) != mac
        ]
    if commands:
        await run("ip", "-batch", "-", given="\n".join(commands) + "\n", limit_s=APPLY_S, code="vif_not_plugged")
