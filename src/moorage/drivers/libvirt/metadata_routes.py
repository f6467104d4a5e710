"""The metadata service's address is this host's for those who come from a bridge of ours, and for nobody else.

The machine may be somebody's guest itself, with a metadata service of its own at the same address.  So the address is on no device: a
table of routes has it as a local one, and a rule for each bridge says that what comes from there is looked up in it.
"""

from collections.abc import Collection

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.dhcp import METADATA

TABLE, PRIORITY = 43_518, 1_043
"""The number is 169.254 as one."""


class _Rule(msgspec.Struct):
    priority: int = 0
    table: str = ""
    device: str = msgspec.field(default="", name="iif")


async def keep_local(bridges: Collection[str]) -> None:
    """For these, and not for those of ours that are no more. Raises HostFailed."""
    output = await run("ip", "-json", "rule", "show", code="vif_not_plugged")
    mine = [each for each in msgspec.json.decode(output or "[]", type=list[_Rule]) if each.table == str(TABLE)]
    routed = {each.device for each in mine}
    if routed == set(bridges):
        return
    devices = await run("ip", "-json", "link", "show", code="vif_not_plugged")
    names = {each["ifname"] for each in msgspec.json.decode(devices or "[]")}
    if bridges:
        await _ip("route", "replace", "local", f"{METADATA}/32", "dev", "lo", "table", str(TABLE))
    for bridge in bridges:
        if bridge not in routed:
            await _ip("rule", "add", "iif", bridge, "lookup", str(TABLE), "priority", str(PRIORITY))
    for device in routed - set(bridges):
        if device not in names:
            await _ip("rule", "delete", "iif", device, "lookup", str(TABLE), "priority", str(PRIORITY))
            routed.remove(device)
    if not bridges and not routed and mine:
        await _ip("route", "flush", "table", str(TABLE))


async def _ip(*words: str) -> None:
    await run("ip", *words, code="vif_not_plugged")
