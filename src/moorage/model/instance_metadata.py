"""The metadata of a guest: one model, from which its config drive and the metadata service's answers are made.

If the server has a config drive, the conductor builds the model and sends it with the guest's spec; the metadata service builds it
from the server's record.  `metadata_tree.py` writes the trees of OpenStack and EC2 from it, and `network_data.py` the interfaces.

It is sent in messages: fields are only ever added, with defaults (RULES §19).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.model.errors import TooLarge
from moorage.model.network import NetworkFacts, Port, SubnetFacts
from moorage.model.server import BlockDevice, Nic, Server

DOCUMENT_MAX_BYTES = 512 * 1024
"""Limit of the whole encoded model: it is sent to the host in one message, which may have a megabyte."""
VENDOR_DATA_MAX_BYTES = 64 * 1024
"""Limit of the answer of one vendor data service."""
X509 = "-----BEGIN CERTIFICATE"


class GuestAddress(msgspec.Struct, frozen=True):
    """One fixed address of an interface, with its subnet."""

    address: str
    version: int = 4
    cidr: str = ""
    """Empty: the subnet is not known."""
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    """Destination and next hop."""
    dhcp: bool = False
    mode: str | None = None
    """IPv6: `slaac`, `dhcpv6-stateful` or `dhcpv6-stateless`."""


class Interface(msgspec.Struct, frozen=True):
    """One network card, as the guest sees it."""

    port: str
    mac: str
    network: str
    mtu: int | None = None
    vif_type: str = ""
    addresses: tuple[GuestAddress, ...] = ()
    tag: str | None = None
    vlan: int | None = None
    """The tag of a direct port, if the guest must know it."""
    trusted: bool | None = None
    """Whether the virtual function is trusted; None: its port does not say."""
    floating: tuple[str, ...] = ()


class Disk(msgspec.Struct, frozen=True):
    """A tagged disk."""

    tag: str
    serial: str = ""
    """The volume's id."""
    path: str = ""
    bus: str = ""


class File(msgspec.Struct, frozen=True):
    """A file that the user puts into the guest (below 2.57)."""

    path: str
    contents: str
    """Base64."""


class InstanceMetadata(msgspec.Struct, frozen=True):
    """All values that the two trees contain about one server."""

    server: str
    project: str = ""
    name: str = ""
    hostname: str = ""
    """With the domain, where one is configured."""
    availability_zone: str | None = None
    launch_index: int = 0
    reservation: str = ""
    image: str = ""
    kernel: str = ""
    ramdisk: str = ""
    flavor: str = ""
    metadata: dict[str, str] = {}
    key_name: str | None = None
    public_key: str | None = None
    user_data: str | None = None
    """Base64, as the user sent it."""
    security_groups: tuple[str, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    disks: tuple[Disk, ...] = ()
    mappings: dict[str, str] = {}
    """EC2's block device mapping."""
    dedicated_cpus: tuple[int, ...] = ()
    files: tuple[File, ...] = ()
    admin_password: str | None = None
    """Only on a config drive; the metadata service never returns it."""
    static_vendor_data: dict[str, Any] = {}
    vendor_data: dict[str, Any] = {}
    """The name of the service → its data."""

    @property
    def key_type(self) -> str:
        return "x509" if (self.public_key or "").startswith(X509) else "ssh"


# ------------------------------------------------------------------------------------------------ of what we know


def interface_of_port(port: Port, facts: NetworkFacts | None) -> Interface:
    """Build the interface of a bound port."""
    return Interface(
        port=port.id,
        mac=port.mac,
        network=port.network,
        mtu=None if facts is None else facts.mtu,
        vif_type=port.vif_type,
        addresses=tuple(_address(ip.address, _subnet(ip.subnet, facts)) for ip in port.fixed_ips),
        tag=port.tag,
        vlan=vlan_of(port),
        trusted=trusted_of(port),
    )


def interface_of_nic(nic: Nic, facts: NetworkFacts | None) -> Interface:
    """Build the interface of a NIC in the server's record, with the network service's present facts about its network."""
    return Interface(
        port=nic.port or "",
        mac=nic.mac,
        network=nic.network,
        mtu=None if facts is None else facts.mtu,
        vif_type=nic.vif_type,
        addresses=tuple(_address(each.address, _subnet(each.subnet, facts)) for each in nic.addresses),
        tag=nic.tag,
        vlan=nic.vlan,
        trusted=nic.trusted,
        floating=tuple(each.address for each in nic.floating),
    )


def _subnet(subnet: str, facts: NetworkFacts | None) -> SubnetFacts | None:
    return None if facts is None else next((each for each in facts.subnets if each.id == subnet), None)


def _address(address: str, subnet: SubnetFacts | None) -> GuestAddress:
    version = 6 if ":" in address else 4
    if subnet is None:
        return GuestAddress(address, version)
    return GuestAddress(
        address, version, subnet.cidr, subnet.gateway, subnet.dns, subnet.routes, subnet.dhcp, subnet.ipv6_address_mode
    )


def vlan_of(port: Port) -> int | None:
    """Return the tag that the guest of a direct port must know."""
    value = port.vif_details.get("vlan")
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else None


def trusted_of(port: Port) -> bool | None:
    """Tell whether a direct port's virtual function is trusted; None: the port does not say."""
    value = port.profile.get("trusted")
    return None if value is None else str(value).lower() in {"true", "1", "yes", "on"}


def full_hostname(hostname: str, domain: str) -> str:
    """Return the host name with the domain, unless it has one already (2.94)."""
    return hostname if not domain or "." in hostname else f"{hostname}.{domain}"


def metadata_of(
    server: Server,
    interfaces: Iterable[Interface],
    *,
    domain: str = "",
    zone: str | None = None,
    admin_password: str | None = None,
    static_vendor_data: Mapping[str, Any] | None = None,
    vendor_data: Mapping[str, Any] | None = None,
) -> InstanceMetadata:
    """Build the model of a server.  `zone`: its zone, if its record does not have it yet."""
    return InstanceMetadata(
        server=server.id,
        project=server.project,
        name=server.name,
        hostname=full_hostname(server.hostname, domain),
        availability_zone=zone or server.availability_zone,
        launch_index=server.launch_index,
        reservation=server.reservation_id,
        image=server.image or "",
        kernel=server.kernel_id,
        ramdisk=server.ramdisk_id,
        flavor=server.flavor.name,
        metadata=dict(server.metadata),
        key_name=server.key_name,
        public_key=server.public_key,
        user_data=server.user_data,
        security_groups=server.security_groups,
        interfaces=tuple(interfaces),
        disks=tuple(_disks(server.block_devices)),
        mappings=_mappings(server),
        admin_password=admin_password,
        static_vendor_data=dict(static_vendor_data or {}),
        vendor_data=dict(vendor_data or {}),
    )


def _disks(devices: Iterable[BlockDevice]) -> Iterable[Disk]:
    for device in devices:
        if device.tag:
            serial = device.volume or (device.uuid if device.source == "volume" else None)
            yield Disk(device.tag, serial or "", device.device or "", device.disk_bus or "")


def _mappings(server: Server) -> dict[str, str]:
    """EC2's names of the disks: the root twice, ephemeral disks, swap, and volumes as `ebs`."""
    mappings = {"ami": _bare(server.root_device), "root": server.root_device}
    ephemerals = volumes = 0
    for device in server.block_devices:
        if not device.device or device.device == server.root_device:
            continue
        if device.destination == "volume":
            mappings[f"ebs{volumes}"] = device.device
            volumes += 1
        elif device.guest_format == "swap":
            mappings["swap"] = _bare(device.device)
        elif device.source == "blank":
            mappings[f"ephemeral{ephemerals}"] = _bare(device.device)
            ephemerals += 1
    return mappings


def _bare(device: str) -> str:
    return device.removeprefix("/dev/")


def refuse_too_large(document: InstanceMetadata) -> None:
    """Check the size of the metadata. Raises TooLarge when they do not fit into a message to a host."""
    size = len(msgspec.json.encode(document))
    if size > DOCUMENT_MAX_BYTES:
        raise TooLarge(
            f"the config drive of this server would carry {size} bytes, and {DOCUMENT_MAX_BYTES} are possible: "
            "use less user data, metadata or vendor data",
            code="config_drive_too_large",
        )
