"""Networks of several hosts, for the embedded network service: a VXLAN device in the network's bridge on each host.

Hosts find one another by multicast, and learn from the frames that come where each guest is.  Each host is the gateway of its own guests,
everywhere with the same address and MAC, so that a guest that changes hosts notices nothing; what hosts say to their own guests, and what
guests say to their gateway, stays on the host (firewall.py).

    mvx<network>    11 characters of the network's id
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData
from moorage.model.ids import NetworkId

TUNNEL_PREFIX = "mvx"
PORT = 4789
ID_CHARACTERS = 11
OVERHEAD_BYTES = 50
ROUTED_MACS = "fa:16:40"
ROUTED = 0x10000000
"""The bit of the mark of packets that this host forwards from one bridge of ours to another."""


class _Address(msgspec.Struct):
    local: str = ""


class _Device(msgspec.Struct):
    name: str = msgspec.field(default="", name="ifname")
    mtu: int = 0
    addresses: list[_Address] = msgspec.field(default_factory=list, name="addr_info")


def tunnel_of(network: str) -> str:
    return f"{TUNNEL_PREFIX}{network[:ID_CHARACTERS]}"


def gateway_mac(network: str) -> str:
    """Of the network's bridge, on every host."""
    digest = hashlib.sha256(network.encode()).hexdigest()
    return f"fa:16:3f:{digest[0:2]}:{digest[2:4]}:{digest[4:6]}"


def routed_mac(owner: str) -> str:
    """Of a host, in frames that it routes into tunnels: bridges elsewhere, which have the gateway's MAC themselves, can learn where it is."""
    digest = hashlib.sha256(owner.encode()).hexdigest()
    return f"{ROUTED_MACS}:{digest[0:2]}:{digest[2:4]}:{digest[4:6]}"


class Tunnelled(Protocol):
    """A network in tunnels."""

    @property
    def network(self) -> NetworkId: ...

    @property
    def segmentation_id(self) -> int | None: ...

    @property
    def mtu(self) -> int: ...


@dataclass(frozen=True)
class Tunnels:
    """Of one host; `address` empty: it has none."""

    address: str
    group: str
    alias: str
    """What each device of ours says of itself."""

    def has(self, vif: VifData) -> bool:
        """Whether this network goes to other hosts in a tunnel."""
        return bool(self.address) and vif.physical_network is None and vif.segmentation_id is not None

    async def join(self, network: Tunnelled, bridge: str, links_now: Collection[str]) -> None:
        """Raises HostFailed (`vif_not_plugged`)."""
        name = tunnel_of(network.network)
        if name not in links_now:
            device = await self._device(network.mtu)
            words = ("type", "vxlan", "id", str(network.segmentation_id), "local", self.address, "group", self.group)
            await _ip("link", "add", "name", name, *words, "dev", device, "dstport", str(PORT), "ttl", "8")
        await _ip("link", "set", "dev", name, "alias", self.alias, "mtu", str(network.mtu), "master", bridge, "up")

    async def leave(self, links_now: Mapping[str, str], needed: Collection[str]) -> None:
        """`links_now`: devices with their aliases; tunnels of ours that no network needs go."""
        for name, alias in links_now.items():
            if name.startswith(TUNNEL_PREFIX) and alias == self.alias and name not in needed:
                await _ip("link", "delete", "dev", name)

    async def _device(self, mtu: int) -> str:
        """The one that has our address."""
        output = await run("ip", "-json", "-4", "address", "show", code="vif_not_plugged")
        for device in msgspec.json.decode(output or "[]", type=list[_Device]):
            if any(each.local == self.address for each in device.addresses):
                if device.mtu < mtu + OVERHEAD_BYTES:
                    why = f"{device.name} has an MTU of {device.mtu}, and {mtu + OVERHEAD_BYTES} are needed"
                    raise HostFailed("the network's MTU is too large for a tunnel", private=why, code="vif_not_plugged")
                return device.name
        why = f"no device has the address {self.address}"
        raise HostFailed("the host has no way to other hosts", private=why, code="vif_not_plugged")


async def _ip(*words: str) -> None:
    await run("ip", *words, code="vif_not_plugged")
