"""What an operator may say of a host with real guests: the table `[libvirt]` of the configuration."""

from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class Libvirt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uri: str = "qemu:///system"
    """Of the libvirt daemon on this machine."""
    virt_type: Literal["auto", "kvm", "qemu"] = "auto"
    """`qemu`: guests are emulated, which works everywhere and is slow. `auto`: KVM where the processor has it."""
    cpu_mode: Literal["auto", "host-model", "host-passthrough", "custom"] = "auto"
    """`auto`: host-model with KVM, and `qemu64` of QEMU's without."""
    cpu_model: str = ""
    """Of `custom`, in libvirt's names."""
    instances_path: str = ""
    """Where guests' disks are; empty: the host's directory in the data directory."""
    reserved_vcpus: Count | None = None
    reserved_ram_mib: Count | None = None
    reserved_disk_gib: Count | None = None
    """What the machine keeps for itself; None: 512 MiB and nothing else, until somebody sets it through Placement."""
    vcpu_ratio: Positive | None = None
    ram_ratio: Positive | None = None
    disk_ratio: Positive | None = None
    """How often it is given out; None: processors four times and all else once, until somebody sets it through Placement."""
    address: str = "127.0.0.1"
    """Of this machine, where guests' consoles listen: the console proxy must reach it, and nobody else should."""
    serial_ports: tuple[int, int] = (10_000, 20_000)
    """Of serial consoles: the first, and the one after the last."""
    bridges: dict[str, str] = {}
    """Physical network → the bridge of this machine that its guests are plugged into; others get a bridge of ours, which leads nowhere else."""
    ovs_db: str = "unix:/run/openvswitch/db.sock"
    """The database of this machine's Open vSwitch, as `ovs-vsctl --db` takes it; for ports of Neutron's that are plugged there."""
    dhcp: bool = False
    """Whether this host answers DHCP for its guests on bridges of ours, and is their gateway's address: for the embedded network service."""
    dhcp_user: str = "dnsmasq"
    """Under whom dnsmasq runs, where `dhcp` is on: dnsmasq's packages make this user."""
    routers: bool = False
    """Whether this host routes for its guests, between networks of one router and to the outside, and translates floating addresses: for the
    embedded network service."""
    external_devices: dict[str, str] = {}
    """Physical network, or the id of an external network → the device of this machine that leads there; without one nothing goes out."""
    guest_tcp_ports: tuple[Port, ...] = ()
    """TCP ports of this machine that its guests on bridges of ours reach at all of its addresses, for an API on the same machine say; without
    them guests reach their gateway's DHCP, DNS and ICMP, and the metadata service."""
    dns_forwarders: tuple[str, ...] = ()
    """Name servers that this host asks for its guests, where `dhcp` is on; none: guests are told the names of their network and no others."""
    metadata_url: str = ""
    """Of the metadata service: this host asks it for its guests, who reach it at 169.254.169.254. Empty: they do not."""
    metadata_ca_file: str = ""
    """PEM file of the CA of its certificate; empty: those that this machine trusts."""
    metadata_user: str = "nobody"
    """Under whom the process runs that asks it."""
    soft_reboot_s: Positive = 20.0
    """How long a guest may take to switch itself off for a soft reboot; then it is reset."""
    image_unused_s: Positive = 86_400.0
    """How long an image is kept that no guest's disk is made over."""
    migration_address: str = ""
    """Of this machine, where guests of other machines arrive: other hosts must reach it, and nobody else. Empty: none can come."""
    migration_port: Port = 16_510
    """There, for their disks."""
    live_uri: str = "qemu+tls://{address}/system"
    """How the libvirt daemons of other hosts reach this one's; `{address}` is the address above. Empty: no guest arrives while it runs."""
    live_pki: str = ""
    """Directory of this host's certificates for TLS, under libvirt's names (`pkipath` of its addresses) and QEMU's. Empty: they are in
    libvirt's usual places, in `/etc/pki`."""
    live_post_copy: bool = False
    """Whether guests that are sent from here may be switched before all of their memory is there: QEMU's user must be
    allowed to use userfaultfd(2)."""
    live_mib_per_s: Count = 0
    """How fast a guest that runs is sent at the most; 0: as fast as it goes."""
    vxlan_address: str = ""
    """Of this machine, for tunnels to other hosts of the embedded network service's networks. Empty: each host has its networks for itself."""
    vxlan_group: str = "239.77.0.1"
    """Multicast, in which hosts find one another."""
    port_filter: bool = True
    """Whether ports of the embedded network service are filtered by their security groups, and kept at their rates."""
    bandwidth_kbps: Count = 0
    """What guests may send, and receive, at once; guarantees are shares of it. 0: as much as goes, and nothing is guaranteed."""
