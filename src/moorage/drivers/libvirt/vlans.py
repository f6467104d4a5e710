"""Networks that have a VLAN on a physical network: a device that tags (802.1Q) on the operator's bridge, in a bridge of the network's own.

Nothing is served on such a bridge: whoever is the network's gateway is on the wire.

    mrv<network>, mvl<network>    the bridge, and the device that tags; 11 characters of the network's id
"""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.drivers.libvirt.commands import run
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData

VLAN_BRIDGE_PREFIX, VLAN_PREFIX = "mrv", "mvl"
ID_CHARACTERS = 11
SYSTEM_CONTROL = Path("/proc/sys/net/ipv6/conf")
UNKNOWN = ("Unknown device type", "Operation not supported")
"""What `ip` says where the kernel cannot."""


def vlan_of(network: str) -> str:
    return f"{VLAN_PREFIX}{network[:ID_CHARACTERS]}"


def vlan_bridge_of(network: str) -> str:
    return f"{VLAN_BRIDGE_PREFIX}{network[:ID_CHARACTERS]}"


@dataclass(frozen=True)
class Vlans:
    """Of one host."""

    alias: str
    """What each device of ours says of itself."""

    async def join(self, vif: VifData, wire: str, bridge: str, links_now: Collection[str]) -> None:
        """`wire`: the operator's bridge or device. Raises HostFailed (`vif_not_plugged`), with a sentence where the kernel has no VLANs."""
        name = vlan_of(vif.network)
        if wire not in links_now:
            raise HostFailed("the host has no such bridge", private=wire, code="vif_not_plugged")
        if name not in links_now:
            words = ("link", wire, "name", name, "mtu", str(vif.mtu), "type", "vlan", "id", str(vif.segmentation_id))
            try:
                await _ip("link", "add", *words)
            except HostFailed as failure:
                if not any(each in failure.private for each in UNKNOWN):
                    raise
                why = "802.1Q is not in the kernel (modprobe 8021q)"
                raise HostFailed("this host cannot plug into VLANs", private=why, code="vif_not_plugged") from failure
        _be_silent(bridge)
        _be_silent(name)
        await _ip("link", "set", "dev", name, "alias", self.alias, "master", bridge, "up")

    async def leave(self, links_now: Mapping[str, str], needed: Collection[str]) -> None:
        """`links_now`: devices with their aliases; those of ours that no network needs go."""
        for name, alias in links_now.items():
            if name.startswith(VLAN_PREFIX) and alias == self.alias and name not in needed:
                await _ip("link", "delete", "dev", name)


def _be_silent(device: str) -> None:
    """The machine itself says nothing on that wire: it makes no IPv6 address of its own there."""
    with contextlib.suppress(OSError):  # a machine without IPv6
        (SYSTEM_CONTROL / device / "addr_gen_mode").write_text("1")


async def _ip(*words: str) -> None:
    await run("ip", *words, code="vif_not_plugged")
