"""What handlers share that forward a call to another service with the user's token."""

import ipaddress
from typing import NoReturn

from moorage.api.call import AnyCall
from moorage.clients.image import ImageClient
from moorage.clients.network import NetworkBackend
from moorage.clients.volume import VolumeClient
from moorage.model.errors import Invalid, NotBuilt


def network_of(call: AnyCall) -> NetworkBackend:
    """The network service. Raises NotBuilt when this API process has none."""
    network = call.context.network
    if network is None:
        raise NotBuilt("This API has no network service to ask.")
    return network


def images_of(call: AnyCall) -> ImageClient:
    """The image service. Raises NotBuilt when this API process has none."""
    images = call.context.image
    if images is None:
        raise NotBuilt("This API has no image service to ask.")
    return images


def volumes_of(call: AnyCall) -> VolumeClient:
    """The volume service. Raises NotBuilt when this API process has none."""
    volumes = call.context.volume
    if volumes is None:
        raise NotBuilt("This API has no volume service to ask.")
    return volumes


def checked_address(name: str, value: str) -> str:
    """An address of either version, as it was given."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        wrong(name, value, "is not valid under any of the given schemas")
    return value


def wrong(name: str, value: object, why: str) -> NoReturn:
    """Refuse a field of a body with the sentence of Nova's schema validation. Raises Invalid."""
    raise Invalid(f"Invalid input for field/attribute {name}. Value: {value}. {value!r} {why}")
