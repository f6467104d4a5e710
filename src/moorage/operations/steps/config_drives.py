"""Completes the specification of a guest: decrypts it, and adds the content of its config drive, of which the host
makes the image.

Every operation that has a host make a guest calls `with_drive` before it sends the specification.
"""

from collections.abc import Mapping, Sequence

import msgspec

from moorage.model.guest import GuestSpec
from moorage.model.instance_metadata import Disk, File, interface_of_port, metadata_of, refuse_too_large
from moorage.model.network import NetworkFacts, Port
from moorage.model.server import Server
from moorage.operations.context import SagaContext

MANDATORY = "mandatory"
IMAGE_WANTS = "img_config_drive"


def wanted(context: SagaContext, input: bool, image_properties: Mapping[str, str]) -> bool:
    """Whether a new server has a config drive: its owner wants one, the configuration does, or its image requires it."""
    return input or context.settings.force_config_drive or image_properties.get(IMAGE_WANTS) == MANDATORY


async def with_drive(
    context: SagaContext,
    server: Server,
    guest: GuestSpec,
    networks: Mapping[str, NetworkFacts],
    ports: Sequence[Port],
    *,
    sealed_password: str = "",
) -> GuestSpec:
    """The specification in clear, with the content of its config drive if the server has one.

    Raises Unavailable when required vendor data cannot be read or a key is missing, TooLarge when it exceeds what a
    host can be sent.
    """
    if context.seals is not None:
        guest, server = context.seals.guest(guest), context.seals.server(server)
    if not guest.config_drive:
        return guest
    settings = context.settings
    password = context.seals.open(sealed_password) if context.seals is not None and sealed_password else None
    document = metadata_of(
        server,
        (interface_of_port(port, networks.get(port.network)) for port in ports if port.id),
        domain=settings.dhcp_domain,
        zone=guest.availability_zone or None,
        admin_password=password,
        static_vendor_data=settings.static_vendor_data,
        vendor_data={} if context.vendor_data is None else await context.vendor_data.of(server),
    )
    files = tuple(File(each.path, each.contents) for each in guest.files)
    document = msgspec.structs.replace(document, files=files)
    attached = {each.tag: Disk(each.tag, each.volume, each.device) for each in guest.volumes if each.tag}
    disks = {
        each.tag: each for each in document.disks
    } | attached  # the current attachments replace what the document lists
    document = msgspec.structs.replace(document, disks=tuple(disks.values()))
    refuse_too_large(document)
    return msgspec.structs.replace(guest, drive=document)
