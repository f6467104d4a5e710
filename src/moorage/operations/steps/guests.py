"""The specification from which a host makes a guest: complete, so that the host calls no service (S0.20)."""

from collections.abc import Mapping

from moorage.model.guest import GuestSpec, InjectedFile
from moorage.model.ids import ImageId
from moorage.model.network import NetworkFacts, Port
from moorage.model.server import Server
from moorage.operations.steps.ports import vif_of


def guest_of(
    server: Server,
    networks: Mapping[str, NetworkFacts],
    ports: tuple[Port, ...],
    zone: str,
    files: tuple[InjectedFile, ...] = (),
) -> GuestSpec:
    """The specification with everything that the host needs."""
    flavor = server.flavor
    ephemeral_gib, swap_mib = _local_disks(server)
    return GuestSpec(
        server=server.id,
        name=server.name,
        vcpus=flavor.vcpus,
        ram_mib=flavor.ram_mib,
        root_gib=flavor.disk_gib,
        ephemeral_gib=ephemeral_gib,
        swap_mib=swap_mib,
        project=server.project,  # type: ignore[arg-type]
        user=server.user,  # type: ignore[arg-type]
        hostname=server.hostname,
        image=server.image,
        image_properties=dict(server.image_properties),
        kernel=_image(server, server.kernel_id),
        ramdisk=_image(server, server.ramdisk_id),
        extra_specs=dict(flavor.extra_specs),
        vifs=tuple(vif_of(port, networks.get(port.network)) for port in ports),
        metadata=dict(server.metadata),
        user_data=server.user_data,
        key_name=server.key_name,
        public_key=server.public_key,
        config_drive=server.config_drive,
        availability_zone=zone,
        files=files,
        existed=server.launched_at is not None,
    )


def _image(server: Server, named: str) -> ImageId | None:
    return ImageId(named) if named and server.kernel_checked else None


def _local_disks(server: Server) -> tuple[int, int]:
    """GiB of the ephemeral disk and MiB of the swap disk: the flavor's sizes, or smaller ones of the request."""
    ephemeral_gib, swap_mib = server.flavor.ephemeral_gib, server.flavor.swap_mib
    for each in server.block_devices:
        if each.source == "blank" and each.destination == "local" and each.size_gib:
            if each.guest_format == "swap":
                swap_mib = each.size_gib  # this size is in MiB, as in Nova
            else:
                ephemeral_gib = each.size_gib
    return ephemeral_gib, swap_mib
