"""Network devices of this machine, and how those of ours are named and marked."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData

ID_CHARACTERS = 11
"""A device's name has 15 at most."""
BRIDGE_PREFIX = "mrg"
TAP_PREFIX = "tap"
IFF_MULTI_QUEUE = 0x100
"""Of the kernel's `if_tun.h`."""
ALIAS = "moorage "
"""What each device of ours says of itself, with its host's owner: nobody else's is touched."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,15}")


class NetworkDevice(msgspec.Struct):
    name: str = msgspec.field(name="ifname")
    alias: str = msgspec.field(default="", name="ifalias")
    master: str = ""
    index: int = msgspec.field(default=0, name="ifindex")
    mac: str = msgspec.field(default="", name="address")


async def links() -> dict[str, NetworkDevice]:
    """The machine's network devices, by name."""
    output = await run("ip", "-json", "link", "show")
    return {each.name: each for each in msgspec.json.decode(output or "[]", type=list[NetworkDevice])}


def tap_of(vif: VifData) -> str:
    return f"{TAP_PREFIX}{vif.port[:ID_CHARACTERS]}"


async def make_tap(
    vif: VifData, owner: str, links_now: Mapping[str, NetworkDevice], master: str = "", *, many_queues: bool = False
) -> str:
    """A tap that libvirt leaves as it is, switched on, in this bridge. Raises HostFailed where it is somebody else's.

    One that was made for one queue cannot have more, and the other way round: it is made again.
    """
    tap = await _owned_tap(tap_of(vif), owner, links_now, many_queues=many_queues)
    into = ("master", master) if master else ()
    await ip("link", "set", "dev", tap, "alias", f"{ALIAS}{owner}", "mtu", str(vif.mtu), *into, "up")
    return tap


async def make_loose_tap(tap: str, owner: str, *, many_queues: bool) -> None:
    """A tap on no network, for a guest that has an interface which is nobody's port any more. Raises HostFailed as `make_tap` does."""
    await _owned_tap(tap, owner, await links(), many_queues=many_queues)
    await ip("link", "set", "dev", tap, "alias", f"{ALIAS}{owner}", "nomaster")


async def loosen_tap(tap: str, owner: str) -> None:
    """Off its network; the guest that has it open keeps it."""
    link = (await links()).get(tap)
    if link is not None and link.alias == f"{ALIAS}{owner}":
        await ip("link", "set", "dev", tap, "nomaster", "down")


async def _owned_tap(tap: str, owner: str, links_now: Mapping[str, NetworkDevice], *, many_queues: bool) -> str:
    if tap in links_now and links_now[tap].alias not in {"", f"{ALIAS}{owner}"}:
        raise HostFailed("the host has another device of this port's name", private=tap, code="vif_not_plugged")
    missing = tap not in links_now
    if not missing and _has_many_queues(tap) is (not many_queues):
        await ip("link", "delete", "dev", tap)
        missing = True
    if missing:
        await ip("tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr", *(("multi_queue",) if many_queues else ()))
    return tap


def _has_many_queues(tap: str) -> bool | None:
    """None: it is gone, or no tap."""
    try:
        return bool(int(Path(f"/sys/class/net/{tap}/tun_flags").read_text(), 16) & IFF_MULTI_QUEUE)
    except OSError:
        return None


async def remove_tap(name: str, owner: str) -> None:
    link = (await links()).get(name)
    if link is not None and link.alias == f"{ALIAS}{owner}":
        await ip("link", "delete", "dev", name)


async def ip(*words: str) -> None:
    """Raises HostFailed (`vif_not_plugged`)."""
    await run("ip", *words, code="vif_not_plugged")
