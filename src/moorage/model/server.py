"""A server, as its owner sees it, and its states.

The same record is in the region while a server has no cell (`order_doc`, RULES §1), and in its cell afterwards.
Times are whole microseconds since 1970 UTC (`…_at`), or None; sizes carry their unit.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from moorage.model.ids import CellId, FlavorId, HostId, ImageId, NetworkId, OperationId, PortId, ServerId
from moorage.model.rescue import RescueSpec


class VmState(StrEnum):
    """The stable state, with Nova's names, because clients read `OS-EXT-STS:vm_state`."""

    BUILDING = "building"
    ACTIVE = "active"
    STOPPED = "stopped"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    RESCUED = "rescued"
    RESIZED = "resized"
    SHELVED = "shelved"
    SHELVED_OFFLOADED = "shelved_offloaded"
    SOFT_DELETED = "soft-delete"
    DELETED = "deleted"
    ERROR = "error"


class TaskState(StrEnum):
    """What is being done to the server at present, with Nova's names."""

    SCHEDULING = "scheduling"
    NETWORKING = "networking"
    BLOCK_DEVICE_MAPPING = "block_device_mapping"
    SPAWNING = "spawning"
    POWERING_OFF = "powering-off"
    POWERING_ON = "powering-on"
    REBOOTING = "rebooting"
    REBOOTING_HARD = "rebooting_hard"
    PAUSING = "pausing"
    UNPAUSING = "unpausing"
    SUSPENDING = "suspending"
    RESUMING = "resuming"
    DELETING = "deleting"
    SOFT_DELETING = "soft-deleting"
    RESTORING = "restoring"
    REBUILDING = "rebuilding"
    REBUILD_BLOCK_DEVICE_MAPPING = "rebuild_block_device_mapping"
    REBUILD_SPAWNING = "rebuild_spawning"
    RESCUING = "rescuing"
    UNRESCUING = "unrescuing"
    IMAGE_SNAPSHOT_PENDING = "image_snapshot_pending"
    IMAGE_SNAPSHOT = "image_snapshot"
    IMAGE_BACKUP = "image_backup"
    IMAGE_PENDING_UPLOAD = "image_pending_upload"
    IMAGE_UPLOADING = "image_uploading"
    SHELVING = "shelving"
    SHELVING_IMAGE_PENDING_UPLOAD = "shelving_image_pending_upload"
    SHELVING_IMAGE_UPLOADING = "shelving_image_uploading"
    SHELVING_OFFLOADING = "shelving_offloading"
    UNSHELVING = "unshelving"
    RESIZE_PREP = "resize_prep"
    MIGRATING = "migrating"
    RESIZE_MIGRATING = "resize_migrating"
    RESIZE_MIGRATED = "resize_migrated"
    RESIZE_FINISH = "resize_finish"
    RESIZE_REVERTING = "resize_reverting"


STAGES: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.REBUILDING: frozenset({TaskState.REBUILD_BLOCK_DEVICE_MAPPING, TaskState.REBUILD_SPAWNING}),
    TaskState.SHELVING_IMAGE_UPLOADING: frozenset({TaskState.SHELVING_OFFLOADING}),
    TaskState.UNSHELVING: frozenset({TaskState.SPAWNING}),
    TaskState.RESIZE_PREP: frozenset({TaskState.RESIZE_MIGRATING, TaskState.RESIZE_MIGRATED, TaskState.RESIZE_FINISH}),
}
"""Task state of an accepted operation → the further task states that its steps show."""


class ApiPowerState:
    """The power state that the hypervisor reports, with Nova's numbers."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


class FlavorCopy(msgspec.Struct, frozen=True):
    """The flavor as it was when the server was made; later changes of the flavor do not touch the server."""

    id: FlavorId
    """The flavor's id in the API (`flavorid`)."""
    name: str
    vcpus: int
    ram_mib: int
    disk_gib: int
    ephemeral_gib: int = 0
    swap_mib: int = 0
    rxtx_factor: float = 1.0
    description: str | None = None
    extra_specs: dict[str, str] = {}
    number: int = 0
    """The region's own key of the flavor; 0 in records of the first release, which did not keep it."""
    is_public: bool = True


class Fault(msgspec.Struct, frozen=True):
    """Why a server is in ERROR. `details` is for administrators."""

    code: int
    message: str
    created_at: int
    details: str = ""


class Address(msgspec.Struct, frozen=True):
    """One fixed address of a NIC."""

    subnet: str
    address: str
    version: int = 4


class Floating(msgspec.Struct, frozen=True):
    """A floating address, and the fixed one that it stands for."""

    address: str
    fixed: str


class Nic(msgspec.Struct, frozen=True):
    """One network card of a server: its port, and what an owner sees of it."""

    index: int
    network: NetworkId
    network_name: str
    port: PortId | None = None
    mac: str = ""
    ours: bool = True
    """Whether we made its port and delete it with the server; a user's port is only released (RULES §7)."""
    addresses: tuple[Address, ...] = ()
    tag: str | None = None
    vnic_type: str = "normal"
    vif_type: str = ""
    segment: str | None = None
    guarantees: tuple[tuple[str, str, int], ...] = ()
    """(provider, resource class, amount) of each guarantee of its port; known even if the port is gone (C13)."""
    floating: tuple[Floating, ...] = ()
    """Floating addresses as the network service last showed them; shown beside the fixed addresses."""
    vlan: int | None = None
    """Of a direct port: the VLAN tag that its guest must use."""
    trusted: bool | None = None
    """Of a direct port: whether its virtual function is trusted; None: the port does not say."""
    chosen: bool = False
    """Whether its address was asked for, or is that of the user's port: then no move changes it."""


class BaseImage(msgspec.Struct, frozen=True):
    """Further facts about the image from which a server was booted: its snapshots inherit them."""

    min_disk_gib: int = 0
    min_ram_mib: int = 0
    disk_format: str | None = None
    container_format: str | None = None
    owner_user_name: str = ""
    owner_project_name: str = ""
    boot_roles: str = ""
    """Roles of the user who ordered the server, separated by commas."""


class Shelved(msgspec.Struct, frozen=True):
    """What is needed to make a shelved server again."""

    at: int
    """When it was shelved."""
    image: ImageId | None = None
    """The snapshot of its disk; None: it boots from a volume."""
    host: str | None = None
    """Its host at that time."""


class Readdressed(msgspec.Struct, frozen=True):
    """A NIC that got addresses of another segment in a move. Its port keeps the old ones until the move is confirmed or reverted."""

    port: PortId
    old: tuple[Address, ...]
    new: tuple[Address, ...]
    old_segment: str | None = None
    new_segment: str | None = None


class Moved(msgspec.Struct, frozen=True):
    """What a moved server returns to on a revert, and what is kept for that on the host that it left."""

    at: int
    migration: str
    """The UUID of the move: its record, and the consumer of the claim on the host that was left."""
    vm_state: VmState
    """The state before the move: a server that was off stays off."""
    flavor: FlavorCopy
    host: str
    node: str | None = None
    provider: HostId | None = None
    availability_zone: str | None = None
    disk_config: str = "MANUAL"
    second_bindings: bool = True
    """Whether its ports have inactive bindings on that host; False: they have only one binding, which a revert changes back."""
    profiles: dict[int, dict[str, Any]] = {}
    """Without second bindings: NIC index → providers and devices in the binding profile on that host."""
    readdressed: tuple[Readdressed, ...] = ()
    """The addresses of that host's segments, which are held for a revert."""
    live: bool = False
    """Whether it was live migrated and its new host has lost it: the source host still has its disk of that time."""
    cell: CellId | None = None
    """Cell of the host that was left (`host`); None: the cell of the record."""


class BlockDevice(msgspec.Struct, frozen=True):
    """One entry of `block_device_mapping_v2`."""

    source: str
    """image, volume, snapshot or blank."""
    destination: str
    """local or volume."""
    boot_index: int | None = None
    uuid: str | None = None
    size_gib: int | None = None
    device: str | None = None
    device_type: str | None = None
    disk_bus: str | None = None
    guest_format: str | None = None
    delete_on_termination: bool = False
    volume_type: str | None = None
    tag: str | None = None
    bdm: str = ""
    """The id of the mapping itself (`bdm_uuid`)."""
    volume: str | None = None
    """Its volume, once that is known; `uuid` is the source from which it was made."""
    attachment: str | None = None
    """Id of the attachment at the volume service."""
    multiattach: bool = False
    created: bool = False
    """The volume was made for this server by its boot."""


class Server(msgspec.Struct, frozen=True):
    """The record of one server."""

    id: ServerId
    project: str
    user: str
    name: str
    hostname: str
    created_at: int
    flavor: FlavorCopy
    vm_state: VmState = VmState.BUILDING
    task_state: TaskState | None = TaskState.SCHEDULING
    power_state: int = ApiPowerState.NOSTATE
    description: str | None = None
    updated_at: int | None = None
    launched_at: int | None = None
    terminated_at: int | None = None
    deleted_at: int | None = None
    progress: int = 0
    fault: Fault | None = None
    image: ImageId | None = None
    """None for a server booted from a volume."""
    image_name: str = ""
    image_properties: dict[str, str] = {}
    base_image: BaseImage | None = None
    """None: booted from a volume, or by a release that did not record it."""
    shelved: Shelved | None = None
    """Set while the server is shelved."""
    moved: Moved | None = None
    """Set from the end of a move until it is confirmed or reverted."""
    key_name: str | None = None
    public_key: str | None = None
    metadata: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    user_data: str | None = None
    config_drive: bool = False
    security_groups: tuple[str, ...] = ()
    """Names, as shown to the owner."""
    nics: tuple[Nic, ...] = ()
    next_nic: int = 0
    """The index of the next attached NIC: higher than all so far; 0: none was attached since the boot."""
    block_devices: tuple[BlockDevice, ...] = ()
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    disk_config: str = "MANUAL"
    locked: bool = False
    locked_by: str | None = None
    """`owner` or `admin`."""
    locked_reason: str | None = None
    cell: CellId | None = None
    host: str | None = None
    node: str | None = None
    provider: HostId | None = None
    availability_zone: str | None = None
    """The server's zone; before it has a host, the zone that was asked for."""
    pinned_az: str | None = None
    """The zone the owner asked for; moves stay in it (2.96)."""
    hints: dict[str, str | list[str]] = {}
    group: str | None = None
    trusted_certs: tuple[str, ...] = ()
    reservation_id: str = ""
    launch_index: int = 0
    root_device: str = "/dev/vda"
    soft_deleted_at: int | None = None
    """When it was soft-deleted; until it is reclaimed, it can be restored."""
    rescue: RescueSpec | None = None
    """Set while the server is in rescue."""
    kernel_id: str = ""
    ramdisk_id: str = ""
    kernel_checked: bool = False
    """Whether the user sees these two images, so that hosts read them. Of servers of earlier releases nobody looked: they boot from
    their disk, as before."""
    generation: int = 0
    operation: OperationId | None = None
    op_epoch: int = 0
    op_line: int = 0
    ended: OperationId | None = None
    """The operation that wrote its end into this record: its task shows no longer, though it holds the server for a moment yet."""
    boot_roles: tuple[str, ...] = ()
    """Roles of the user who ordered it: vendor data services get them."""
    guest_password: str = ""
    """The password that the guest stored for its owner, encrypted with the owner's public key."""

    @property
    def deleted(self) -> bool:
        return self.deleted_at is not None

    @property
    def volumes(self) -> tuple[BlockDevice, ...]:
        """Its volumes, attached or being attached."""
        return tuple(each for each in self.block_devices if each.volume is not None)

    @property
    def charged(self) -> dict[str, int]:
        """The amounts that count for its project's quota: while a move can be reverted, those of the larger flavor."""
        both = (self.flavor,) if self.moved is None else (self.flavor, self.moved.flavor)
        return {"instances": 1, "cores": max(each.vcpus for each in both), "ram": max(each.ram_mib for each in both)}

    @property
    def volume_backed(self) -> bool:
        """Whether its root disk is a volume."""
        return any(each.boot_index == 0 and each.destination == "volume" for each in self.block_devices)
