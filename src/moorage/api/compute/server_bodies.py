"""What `POST /servers` and `PUT /servers/{id}` are sent, in today's shape, and the BootRequest made of it."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from moorage.api.call import Call
from moorage.api.compute.server_hints import hints_of
from moorage.api.microversions import unexpected
from moorage.api.schema import Body, Name, NovaBool, NovaInt, Positive, Positive32
from moorage.api.version_changes import (
    v2_019_servers,
    v2_033_servers,
    v2_037_servers,
    v2_042_servers,
    v2_060_volumes_servers,
    v2_072_servers,
)
from moorage.model.boot_request import BootRequest, NicWish, NicWishes
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.model.server import BlockDevice

UUID = r"^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"
UUID_FORM = re.compile(UUID)
Uuid: TypeAlias = Annotated[str, Meta(pattern=UUID)]
Text255: TypeAlias = Annotated[str, Meta(max_length=255)]
Tag: TypeAlias = Annotated[str, Meta(pattern="^[^,/]*$", min_length=1, max_length=60)]
MetaKey: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9\-_:. ]{1,255}$")]
Metadata: TypeAlias = dict[MetaKey, Text255]
Fqdn: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9\-._]*$", min_length=1, max_length=255)]
Description: TypeAlias = Annotated[str, Meta(max_length=255)]
DeviceName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[a-zA-Z0-9._/-]*$")]
TAGS_MAX = 50
USER_DATA_CHARACTERS_MAX = 65_535
CERTIFICATES_MAX = 50
FILES_MAX = 100
"""Whatever a project's quota says."""
NO = NovaBool(False)


TEXT = "'string'"
NUMBER = "'integer', 'string'"


class WantedNetwork(Body):
    never_null: ClassVar[Mapping[str, str]] = dict.fromkeys(("uuid", "fixed_ip", "tag"), TEXT)

    uuid: str | None = None
    port: Uuid | None = None
    fixed_ip: str | None = None
    tag: Tag | None = None


class WantedDevice(Body):
    """`block_device_mapping_v2`, and the names of the older form."""

    never_null: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("virtual_name", "volume_id", "snapshot_id", "image_id", "device_name", "connection_info"), TEXT
        ),
        **dict.fromkeys(("source_type", "uuid", "destination_type", "guest_format", "device_type", "disk_bus"), TEXT),
        "volume_size": NUMBER,
        "tag": TEXT,
    }

    virtual_name: Text255 | None = None
    volume_id: Uuid | None = None
    snapshot_id: Uuid | None = None
    image_id: Uuid | None = None
    volume_size: Positive32 | None = None
    device_name: DeviceName | None = None
    delete_on_termination: NovaBool = NO
    no_device: Any = None
    connection_info: str | None = None
    source_type: Literal["volume", "image", "snapshot", "blank"] | None = None
    uuid: Annotated[str, Meta(min_length=1, max_length=255, pattern="^[a-zA-Z0-9._-]*$")] | None = None
    destination_type: Literal["local", "volume"] | None = None
    guest_format: Text255 | None = None
    device_type: Text255 | None = None
    disk_bus: Text255 | None = None
    boot_index: NovaInt | None = None
    tag: Tag | None = None
    volume_type: Text255 | None = None


class WantedGroup(Body):
    name: Name


class WantedFile(Body):
    """One of `personality`."""

    path: Text255
    contents: str


class NewServer(Body):
    never_null: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("imageRef", "adminPass", "OS-DCF:diskConfig", "accessIPv4", "accessIPv6"), TEXT),
        **dict.fromkeys(
            ("availability_zone", "key_name", "user_data", "host", "hypervisor_hostname", "hostname"), TEXT
        ),
        **dict.fromkeys(("min_count", "max_count"), NUMBER),
    }

    name: Name
    flavor_ref: str | int = msgspec.field(name="flavorRef")
    image_ref: str | None = msgspec.field(name="imageRef", default=None)
    admin_pass: str | None = msgspec.field(name="adminPass", default=None)
    metadata: Metadata = msgspec.field(default_factory=dict)
    networks: list[WantedNetwork] | Literal["auto", "none"] | UnsetType = UNSET
    disk_config: Literal["AUTO", "MANUAL"] | None = msgspec.field(name="OS-DCF:diskConfig", default=None)
    access_ip_v4: str | None = msgspec.field(name="accessIPv4", default=None)
    access_ip_v6: str | None = msgspec.field(name="accessIPv6", default=None)
    personality: Annotated[list[WantedFile], Meta(max_length=FILES_MAX)] = msgspec.field(default_factory=list)
    availability_zone: Name | None = None
    block_device_mapping: list[WantedDevice] = msgspec.field(default_factory=list)
    block_device_mapping_v2: list[WantedDevice] = msgspec.field(default_factory=list)
    config_drive: NovaBool = NO
    key_name: Name | None = None
    min_count: Positive | None = None
    max_count: Positive | None = None
    return_reservation_id: NovaBool = NO
    security_groups: list[WantedGroup] = msgspec.field(default_factory=list)
    user_data: Annotated[str, Meta(max_length=USER_DATA_CHARACTERS_MAX)] | None = None
    description: Description | None = None
    tags: Annotated[list[Tag], Meta(max_length=TAGS_MAX)] = msgspec.field(default_factory=list)
    trusted_image_certificates: (
        Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=CERTIFICATES_MAX)] | None
    ) = None
    host: Fqdn | None = None
    hypervisor_hostname: Fqdn | None = None
    hostname: Fqdn | None = None


class CreateServerBody(Body):
    never_null: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"), "'object'"
    )

    server: NewServer
    hints: JsonObject | None = msgspec.field(name="os:scheduler_hints", default=None)
    older_hints: JsonObject | None = msgspec.field(name="OS-SCH-HNT:scheduler_hints", default=None)


class ChangedServer(Body):
    never_null: ClassVar[Mapping[str, str]] = dict.fromkeys(("accessIPv4", "accessIPv6"), TEXT)

    name: Name | UnsetType = UNSET
    disk_config: Literal["AUTO", "MANUAL"] | UnsetType = msgspec.field(name="OS-DCF:diskConfig", default=UNSET)
    access_ip_v4: str | UnsetType | None = msgspec.field(name="accessIPv4", default=UNSET)
    access_ip_v6: str | UnsetType | None = msgspec.field(name="accessIPv6", default=UNSET)
    description: Description | UnsetType | None = UNSET
    hostname: Fqdn | UnsetType = UNSET
    pinned_availability_zone: Name | UnsetType | None = UNSET


class UpdateServerBody(Body):
    server: ChangedServer


def boot_request(call: Call[CreateServerBody]) -> BootRequest:
    """The order, before anything is looked up. Raises Invalid."""
    new = call.body.server
    _refuse_what_then_was_unknown(call, new)
    low = int(new.min_count or 1)
    high = int(new.max_count or low)
    if low > high:
        raise Invalid("min_count must be <= max_count")
    if new.hostname and high > 1:
        raise Invalid("One hostname cannot be given to several servers.")
    if new.user_data is not None:
        checked_base64(new.user_data)
    return BootRequest(
        name=str(new.name),
        flavor_ref=str(new.flavor_ref).rsplit("/", 1)[-1],
        image_ref=new.image_ref or None,
        nics=_nics(new),
        min_count=low,
        max_count=high,
        availability_zone=None if new.availability_zone is None else str(new.availability_zone),
        host=new.host,
        hypervisor_hostname=new.hypervisor_hostname,
        key_name=None if new.key_name is None else str(new.key_name),
        user_data=new.user_data,
        metadata=dict(new.metadata),
        tags=tuple(dict.fromkeys(new.tags)),
        description=new.description if call.version >= v2_019_servers.CHANGE.at else str(new.name),
        hostname=new.hostname,
        config_drive=bool(new.config_drive),
        security_groups=tuple(dict.fromkeys(str(group.name) for group in new.security_groups)),
        hints=hints_of(call.body.hints if call.body.hints is not None else call.body.older_hints),
        block_devices=_devices(new),
        no_devices=tuple(
            each.device_name for each in new.block_device_mapping_v2 if each.no_device and each.device_name
        ),
        access_ip_v4=checked_address(new.access_ip_v4, 4, "accessIPv4"),
        access_ip_v6=checked_address(new.access_ip_v6, 6, "accessIPv6"),
        disk_config=new.disk_config,
        trusted_certs=tuple(new.trusted_image_certificates or ()),
        multiattach_allowed=call.version >= v2_060_volumes_servers.MULTIATTACH,
        qos_ports_allowed=call.version >= v2_072_servers.QOS_PORTS,
    )


def checked_address(address: str | None, version: int, field: str) -> str | None:
    """Return the address in its shortest form. Raises Invalid when it is not one, or is empty."""
    if address is None:
        return None
    try:
        read = ipaddress.ip_address(address)
        if read.version == version:
            return str(read)
    except ValueError:
        pass
    raise Invalid(f"Invalid input for field/attribute {field}. Value: {address}. '{address}' is not a 'ipv{version}'")


def _refuse_what_then_was_unknown(call: Call[CreateServerBody], new: NewServer) -> None:
    if new.networks is UNSET and call.version >= v2_037_servers.NETWORKS_REQUIRED:
        raise Invalid("Invalid input for field/attribute server. 'networks' is a required property")
    if call.version >= v2_042_servers.TAGS_AGAIN:
        return
    if call.version >= v2_033_servers.DEVICE_TAGS_GONE and any(each.tag for each in new.block_device_mapping_v2):
        unexpected(["tag"])
    if (
        call.version >= v2_037_servers.NIC_TAGS_GONE
        and isinstance(new.networks, list)
        and any(each.tag for each in new.networks)
    ):
        unexpected(["tag"])


def _nics(new: NewServer) -> NicWishes:
    if isinstance(new.networks, UnsetType):
        return "unspecified"
    if not isinstance(new.networks, list):
        return new.networks
    if not new.networks:  # an empty list says no more than none at all does, at any version
        return "unspecified"
    return tuple(map(_nic, new.networks))


def _nic(each: WantedNetwork) -> NicWish:
    if each.port is not None and each.fixed_ip is not None:
        raise Invalid(
            f"Specified Fixed IP '{each.fixed_ip}' cannot be used with port '{each.port}': the two are exclusive"
        )
    if each.port is None and each.uuid is None:
        raise Invalid("Bad network format: missing 'uuid'")
    if each.uuid is not None and each.port is None:
        try:
            msgspec.convert(each.uuid, Uuid)
        except msgspec.ValidationError:
            raise Invalid(f"Bad networks format: network uuid is not in proper format ({each.uuid})") from None
    if each.fixed_ip is not None:
        try:
            ipaddress.ip_address(each.fixed_ip)
        except ValueError:
            raise Invalid(f"Invalid fixed IP address ({each.fixed_ip})") from None
    network = None if each.port is not None else each.uuid
    return NicWish(network=network, port=each.port, address=each.fixed_ip, tag=each.tag)


def _devices(new: NewServer) -> tuple[BlockDevice, ...]:
    if new.block_device_mapping and new.block_device_mapping_v2:
        raise Invalid("Using different block_device_mapping syntaxes is not allowed in the same request.")
    if new.block_device_mapping:
        older = tuple(_older_device(each) for each in new.block_device_mapping if not each.no_device)
        if new.image_ref and not any(each.boot_index == 0 for each in older):  # the older form leaves the image out
            older = (BlockDevice("image", "local", 0, new.image_ref, delete_on_termination=True), *older)
        return older
    return tuple(_device(each) for each in new.block_device_mapping_v2 if not each.no_device)


def _older_device(each: WantedDevice) -> BlockDevice:
    source = "volume" if each.volume_id else "snapshot" if each.snapshot_id else "blank"
    kind = each.virtual_name or ""
    if source == "blank" and kind != "swap" and not kind.startswith("ephemeral"):
        raise Invalid("Block Device Mapping is Invalid: Unrecognized legacy format.")
    return BlockDevice(
        source=source,
        destination="volume" if source != "blank" else "local",
        boot_index=0 if (each.device_name or "").rstrip("0123456789").endswith(("vda", "sda")) else None,
        uuid=each.volume_id or each.snapshot_id,
        size_gib=None if each.volume_size is None else int(each.volume_size),
        device=each.device_name,
        delete_on_termination=bool(each.delete_on_termination) or source == "blank",
        guest_format="swap" if kind == "swap" else None,
    )


def _device(each: WantedDevice) -> BlockDevice:
    source, uuid = each.source_type, each.uuid
    for kind, named in (("volume", each.volume_id), ("snapshot", each.snapshot_id), ("image", each.image_id)):
        if named is not None and source is None:
            source, uuid = kind, named  # type: ignore[assignment]
    if source is None:
        raise Invalid("Block Device Mapping is Invalid: Unrecognized legacy format.")
    if source != "blank" and uuid is None:
        raise Invalid("Block Device Mapping is Invalid: Missing device UUID.")
    destination = each.destination_type or ("local" if source in {"image", "blank"} else "volume")
    if destination == "local" and source in {"volume", "snapshot"}:
        raise Invalid(f"Block Device Mapping is Invalid: {source} to local is not supported.")
    if source == "blank" and uuid is not None:
        raise Invalid("Block Device Mapping is Invalid: a blank device has no uuid.")
    return BlockDevice(
        source=source,
        destination=destination,
        boot_index=None if each.boot_index is None else int(each.boot_index),
        uuid=uuid,
        size_gib=None if each.volume_size is None else int(each.volume_size),
        device=each.device_name,
        device_type=each.device_type,
        disk_bus=each.disk_bus,
        guest_format=each.guest_format,
        delete_on_termination=bool(each.delete_on_termination),
        volume_type=each.volume_type,
        tag=each.tag,
    )


def checked_base64(text: str, field: str = "user_data") -> None:
    """Check base64. Characters outside its alphabet are ignored, as in Nova and in later decoders. Raises Invalid when it is not base64."""
    try:
        base64.b64decode(text.encode())
    except (binascii.Error, ValueError):
        raise Invalid(f"Invalid input for field/attribute {field}. The value is not a 'base64'") from None
