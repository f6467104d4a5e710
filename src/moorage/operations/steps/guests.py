"""The specification from which a host makes a guest: complete, so that the host calls no service (S0.20)."""

from collections.abc import Mapping

from moorage.model import local_disks
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
    ephemerals = local_disks.ephemerals_of(flavor, server.block_devices)
    plain = len(ephemerals) < 2 and not any(each.format for each in ephemerals)
    return GuestSpec(
        server=server.id,
        name=server.name,
        vcpus=flavor.vcpus,
        ram_mib=flavor.ram_mib,
        root_gib=flavor.disk_gib,
        ephemeral_gib=sum(each.size_gib for each in ephemerals),
        swap_mib=local_disks.swap_mib_of(flavor, server.block_devices),
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
        ephemerals=() if plain else ephemerals,
    )


def _image(server: Server, named: str) -> ImageId | None:
    return ImageId(named) if named and server.kernel_checked else None
