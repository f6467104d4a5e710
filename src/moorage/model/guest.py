"""A guest: what runs on a host for a server.  `GuestSpec` is everything a host needs to make one, and it needs nothing more:
addresses are given, ports are bound and volumes are attached before it is sent (S0.20: a host asks no network service).

These structs travel in messages and stay in journals: fields are only ever added, with defaults (RULES §19).
"""

import hashlib
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, Literal

import msgspec

from moorage.model.ids import ImageId, NetworkId, PortId, ProjectId, ServerId, SubnetId, UserId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.network import DhcpOption


class PowerState(IntEnum):
    """The power state of a guest, in the numbers of the Compute API (`OS-EXT-STS:power_state`)."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


OFF = (PowerState.SHUTDOWN, PowerState.CRASHED, PowerState.NOSTATE)
"""Power states of a guest that is not running."""


def digest(states: Mapping[ServerId, int]) -> str:
    """Return a digest of the power states of a host's guests; it does not depend on their order."""
    whole = hashlib.blake2b(digest_size=8)
    for server in sorted(states):
        whole.update(f"{server}={int(states[server])};".encode())
    return whole.hexdigest()


class Quiesce(StrEnum):
    """Whether a guest is quiesced before its disk is copied."""

    NO = "no"
    """No: the guest has no agent for it."""
    TRY = "try"
    MUST = "must"
    """Yes, or the copy fails (`os_require_quiesce`)."""


class VifAddress(msgspec.Struct, frozen=True):
    """One fixed address of a VIF, with the facts about its subnet that the guest gets by config drive or metadata service."""

    address: str
    subnet: SubnetId = SubnetId("")
    cidr: str = ""
    gateway: str = ""
    dns: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    """Of the subnet: destination and next hop."""
    dhcp: bool = True
    """Whether the guest is to be told of this address by DHCP, or by router advertisements."""
    address_mode: str = ""
    """IPv6: `slaac`, `dhcpv6-stateless` or `dhcpv6-stateful`; empty: nobody said."""
    ra_mode: str = ""
    """IPv6: what the network's own router advertises, in the same words; empty: it advertises nothing."""


class VifData(msgspec.Struct, frozen=True):
    """One network interface. Its port is bound, and the binding says how to plug it."""

    port: PortId
    network: NetworkId
    mac: str
    vif_type: str = "unbound"
    vif_details: dict[str, Any] = {}
    vnic_type: str = "normal"
    profile: dict[str, Any] = {}
    """The binding profile: PCI slot, allocation, and other values of the mechanism driver."""
    mtu: int = 1500
    network_name: str = ""
    physical_network: str | None = None
    segmentation_id: int | None = None
    addresses: tuple[VifAddress, ...] = ()
    tag: str | None = None
    preserve_on_delete: bool = False
    """True if the port is the user's: hosts of level 1 and 2, which delete ports themselves, leave it (RULES §7)."""
    dns_name: str = ""
    """Under which the network's own name server knows it."""
    dns_domain: str = ""
    """Of the network."""
    dhcp_options: tuple[DhcpOption, ...] = ()


class VolumeDisk(msgspec.Struct, frozen=True):
    """One attached volume, with the volume service's complete connection."""

    volume: str
    connection: dict[str, Any] = {}
    boot_index: int | None = None
    device: str = ""
    size_gib: int = 0
    tag: str | None = None
    attachment: str = ""
    bus: str | None = None
    device_type: str | None = None
    bdm: str = ""

    @property
    def is_encrypted(self) -> bool:
        """Whether a host must decrypt it: as a plain disk, its guest would write over the header of the encryption."""
        data = self.connection.get("data")
        places = (self.connection, data) if isinstance(data, dict) else (self.connection,)
        return any(bool(each.get("encrypted")) for each in places)


class InjectedFile(msgspec.Struct, frozen=True):
    """A file that is put into a guest when it is made (`personality`, below 2.57)."""

    path: str
    contents: str
    """Base64."""


class EphemeralDisk(msgspec.Struct, frozen=True):
    """One empty disk on the host, which is not in images of the server."""

    size_gib: int
    format: str = ""
    """The file system on it; empty: ext4, or none for a guest that says that it is Windows."""


class GuestSpec(msgspec.Struct, frozen=True):
    """Everything about one guest.  Two equal specs make the same guest, so a repeat is safe."""

    server: ServerId
    name: str
    vcpus: int
    ram_mib: int
    root_gib: int = 0
    ephemeral_gib: int = 0
    """Of all its ephemeral disks together."""
    swap_mib: int = 0
    project: ProjectId = ProjectId("")
    user: UserId = UserId("")
    hostname: str = ""
    image: ImageId | None = None
    image_properties: dict[str, str] = {}
    kernel: ImageId | None = None
    ramdisk: ImageId | None = None
    extra_specs: dict[str, str] = {}
    vifs: tuple[VifData, ...] = ()
    volumes: tuple[VolumeDisk, ...] = ()
    metadata: dict[str, str] = {}
    user_data: str | None = None
    """Base64, as the user sent it."""
    key_name: str | None = None
    public_key: str | None = None
    config_drive: bool = False
    availability_zone: str = ""
    power_on: bool = True
    drive: InstanceMetadata | None = None
    """The contents of its config drive; None: it has none.  The host makes the image from this, and keeps the image."""
    files: tuple[InjectedFile, ...] = ()
    existed: bool = False
    """Whether the server had a guest before: it is not refused for what its flavor or image asked, and its guest never had."""
    ephemerals: tuple[EphemeralDisk, ...] = ()
    """Its ephemeral disks, when there are several or one has a format."""

    @property
    def ephemeral_disks(self) -> tuple[EphemeralDisk, ...]:
        """Its ephemeral disks, in their order: `ephemerals`, or the one of `ephemeral_gib`."""
        if self.ephemerals or not self.ephemeral_gib:
            return self.ephemerals
        return (EphemeralDisk(self.ephemeral_gib),)

    def shrinks(self, now: "GuestSpec") -> str:
        """Name the disk that would be smaller, or missing, in `now`, with both sizes in GiB; empty: none. On it data would be lost.

        A root that is a volume has no size here.
        """
        before, after = self.ephemeral_disks, now.ephemeral_disks
        pairs = [("root", self.root_gib, now.root_gib)]
        for at, disk in enumerate(before):
            pairs.append((f"ephemeral{at}", disk.size_gib, after[at].size_gib if at < len(after) else 0))
        return next((f"{name}: {old} to {new} GiB" for name, old, new in pairs if new < old), "")


class MoveTarget(msgspec.Struct, frozen=True):
    """The place at which a host accepts a guest's data from another host, in a form for the sender's driver."""

    address: str = ""
    where: str = ""
    """A directory, or whatever the two drivers agree on."""
    shared_disks: bool = False
    """Whether the guest's local disks are there already, because both hosts have them on one storage."""


class ResourceInventory(msgspec.Struct, frozen=True):
    """How much of one resource class a host has, in Placement's words and with Placement's limits."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = 2_147_483_647
    step_size: int = 1
    initial: tuple[Literal["reserved", "allocation_ratio"], ...] = ()
    """Those of its values that no setting of the host names: they count until somebody sets others through Placement."""


class PhysicalFunction(msgspec.Struct, frozen=True):
    """An SR-IOV interface of a host, and the virtual functions that guests may be given."""

    interface: str
    address: str
    """Its address on the host's PCI bus."""
    physical_network: str
    functions: tuple[str, ...] = ()
    """Addresses of its virtual functions, in the order of their numbers; none: a guest may have the interface whole."""
    vendor_id: str = ""
    product_id: str = ""
    """Of the virtual functions."""
    mac: str = ""
    card_serial_number: str = ""


class HostDescription(msgspec.Struct, frozen=True):
    """A driver's description of its host: size, abilities and physical networks."""

    inventory: dict[str, ResourceInventory]
    traits: tuple[str, ...] = ()
    physical_networks: tuple[str, ...] = ()
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    hypervisor_hostname: str = ""
    cpu_info: dict[str, Any] = {}
    address: str = ""
    """The host's own address, for migration and consoles."""
    physical_functions: tuple[PhysicalFunction, ...] = ()
    set_aside: tuple[str, ...] = ()
    """Records of guests that could not be read and were moved aside, for an operator to examine."""
    up_since: int = 0
    """Since when the machine runs, µs by its own clock; 0: the driver cannot tell."""
    takes_descriptions: bool = False
    not_wired: tuple[str, ...] = ()
    """As in `HostReport`."""
