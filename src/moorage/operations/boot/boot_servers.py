"""Makes the servers of a boot request: their first records, and the inputs of their sagas."""

import secrets
import time
from collections.abc import Mapping

import msgspec

from moorage.model import guest_requests
from moorage.model.boot_request import BootRequest
from moorage.model.errors import Invalid
from moorage.model.flavor import Flavor
from moorage.model.ids import HostId, ImageId, NetworkId, ServerId, new_uuid
from moorage.model.network import CheckedNics, NicAsk, mint_mac
from moorage.model.principal import Principal
from moorage.model.resources import Needs, needs_of
from moorage.model.server import FlavorCopy, Nic, Server
from moorage.model.task_context import global_request_id
from moorage.model.world import GroupAsk
from moorage.operations.boot import boot_volumes
from moorage.operations.boot.boot import Boot
from moorage.operations.boot.boot_checks import (
    References,
    RequestedPlace,
)
from moorage.operations.boot.boot_devices import BootDevices
from moorage.operations.boot.hostnames import HOSTNAME_CHARACTERS_MAX, sanitized_hostname
from moorage.operations.context import SagaContext
from moorage.operations.disk_config import disk_config_of
from moorage.operations.gates import Gates
from moorage.operations.image_checks import base_of
from moorage.operations.named_images import kernel_of
from moorage.operations.steps import config_drives

NAME_CHARACTERS_MAX = 255
MIB_PER_GIB = 1024


class JudgedRequest(msgspec.Struct, frozen=True):
    """A checked request, with everything from which its servers are made."""

    principal: Principal
    project: str
    request: BootRequest
    request_id: str
    known: References
    devices: BootDevices
    place: RequestedPlace
    nics: CheckedNics
    gates: Gates
    same_host: tuple[HostId, ...] | None
    different_host: tuple[HostId, ...]


def boots_of(context: SagaContext, judged: JudgedRequest) -> list[Boot]:
    principal, request, known, gates = judged.principal, judged.request, judged.known, judged.gates
    devices, place, checked = judged.devices, judged.place, judged.nics
    properties = devices.properties
    needs = needs_of_flavor(known.flavor, properties, local_root=devices.local_root)
    reservation = request.reservation_id or f"r-{secrets.token_hex(4)}"
    drive = config_drives.wanted(context, request.config_drive, properties)
    sealed = context.seals.seal(request.admin_password) if drive and context.seals and request.admin_password else ""
    if not context.vendor_data:  # only vendor data needs the roles
        principal = msgspec.structs.replace(principal, roles=())
    judged = msgspec.structs.replace(
        judged, principal=principal, request=msgspec.structs.replace(request, config_drive=drive)
    )
    group = None if known.group is None else GroupAsk(known.group.id, known.group.policy, known.group.max_per_host or 1)
    made: list[Boot] = []
    for launch_index in range(request.max_count):
        server = _server(judged, reservation, launch_index)
        boot = Boot(
            server=server,
            request_id=judged.request_id,
            global_request_id=global_request_id.get(),
            nics=tuple(_minted(nic, server.id) for nic in checked.nics),
            networks=dict(checked.networks),
            security_groups=checked.security_groups,
            auto=checked.auto,
            needs=needs,
            group=group,
            forced_host=place.host,
            forced_node=place.node,
            same_host=judged.same_host,
            different_host=judged.different_host,
            min_level=gates.min_level,
            gates=gates,
            sealed_password=sealed,
            files=request.files,
        )
        made.append(boot_volumes.given(boot, devices))
    return made


def _minted(nic: NicAsk, server: ServerId) -> NicAsk:
    return msgspec.structs.replace(nic, mac=mint_mac(server, nic.index)) if nic.ours else nic


def refuse_devices(flavor: Flavor | FlavorCopy) -> None:
    """Raises Invalid for a flavor with PCI aliases or accelerators: this cloud has neither, and a Nova without them
    refuses the same.
    """
    if alias := flavor.extra_specs.get("pci_passthrough:alias"):
        raise Invalid(f"PCI alias {alias.partition(':')[0].strip()} is not defined")
    if profile := flavor.extra_specs.get("accel:device_profile"):
        raise Invalid(f"Device profile name {profile}: there is no accelerator service.")


def needs_of_flavor(
    flavor: Flavor | FlavorCopy, properties: Mapping[str, str], *, local_root: bool = True, settled: bool = False
) -> Needs:
    """The needs of a flavor and an image's properties. `local_root`: the root disk is on the host. `settled`: the guest exists, and is not
    refused for what no driver makes.
    """
    extra_specs: Mapping[str, str] = flavor.extra_specs
    if settled:
        extra_specs, properties = guest_requests.settled(extra_specs), guest_requests.settled(properties)
    swap_gib = -(-flavor.swap_mib // MIB_PER_GIB)
    return needs_of(
        vcpus=flavor.vcpus,
        memory_mb=flavor.ram_mib,
        disk_gb=(flavor.disk_gib if local_root else 0) + flavor.ephemeral_gib + swap_gib,
        extra_specs=extra_specs,
        image_properties=properties,
    )


def _server(judged: JudgedRequest, reservation: str, launch_index: int) -> Server:
    principal, request, known = judged.principal, judged.request, judged.known
    image, place, checked = judged.devices.image, judged.place, judged.nics
    kernel, ramdisk = kernel_of({} if image is None else image.properties)
    server = ServerId(new_uuid())
    several = request.max_count > 1
    name = f"{request.name}-{launch_index + 1}" if several else request.name
    hostname = request.hostname or sanitized_hostname(request.name, server)
    return Server(
        id=server,
        project=judged.project,
        user=principal.user,
        name=name[:NAME_CHARACTERS_MAX],
        hostname=(f"{hostname[: HOSTNAME_CHARACTERS_MAX - 5]}-{launch_index + 1}" if several else hostname),
        created_at=time.time_ns() // 1000,
        flavor=known.flavor.copy(),
        description=request.description,
        image=None if image is None else ImageId(image.id),
        image_name="" if image is None else image.name,
        image_properties={} if image is None else image.properties,
        base_image=None if image is None else base_of(image, principal),
        key_name=request.key_name,
        public_key=None if known.key is None else known.key.public_key,
        metadata=dict(request.metadata),
        tags=tuple(sorted(set(request.tags))),
        user_data=request.user_data,
        config_drive=request.config_drive,
        security_groups=_groups_shown(request, checked),
        nics=tuple(_first_nic(nic, checked) for nic in checked.nics),
        access_ip_v4=request.access_ip_v4,
        access_ip_v6=request.access_ip_v6,
        disk_config=disk_config_of(request.disk_config, image),
        availability_zone=place.zone,
        pinned_az=place.zone,
        hints=dict(request.hints),
        boot_roles=principal.roles,
        group=None if known.group is None else known.group.id,
        trusted_certs=request.trusted_certs,
        reservation_id=reservation,
        launch_index=launch_index,
        kernel_id=kernel,
        ramdisk_id=ramdisk,
        kernel_checked=True,
    )


def _groups_shown(request: BootRequest, checked: CheckedNics) -> tuple[str, ...]:
    """A server without ports has no security groups, whatever the request says."""
    if not checked.nics:
        return ()
    return checked.group_names if checked.group_names is not None else tuple(request.security_groups) or ("default",)


def _first_nic(nic: NicAsk, checked: CheckedNics) -> Nic:
    network = checked.networks.get(nic.network)
    return Nic(
        index=nic.index,
        network=NetworkId(nic.network or ""),
        network_name="" if network is None else network.name,
        ours=nic.ours,
        tag=nic.tag,
    )
