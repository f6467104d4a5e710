"""Vendor data of a region: the file that every guest gets, and the services that are asked about each guest."""

import msgspec

from moorage.clients.http import ServiceClient
from moorage.clients.service_tokens import ServiceTokens
from moorage.clients.vendor_data import VendorData
from moorage.main.config import Config
from moorage.model.errors import Invalid
from moorage.model.instance_metadata import VENDOR_DATA_MAX_BYTES
from moorage.model.json_types import JsonObject


def static_vendor_data(config: Config) -> JsonObject:
    """Read the configured file. Raises Invalid when it cannot be read, is not a JSON object, or is too large."""
    name = config.metadata.vendor_data_file
    if not name:
        return {}
    path = config.data / name
    try:
        content = path.read_bytes()
    except OSError as unreadable:
        raise Invalid(f"[metadata] vendor_data_file {path} cannot be read: {unreadable.strerror}") from unreadable
    if len(content) > VENDOR_DATA_MAX_BYTES:
        raise Invalid(
            f"[metadata] vendor_data_file {path} has {len(content)} bytes: {VENDOR_DATA_MAX_BYTES} are possible"
        )
    try:
        return msgspec.json.decode(content, type=JsonObject)
    except (msgspec.DecodeError, msgspec.ValidationError) as wrong:
        raise Invalid(f"[metadata] vendor_data_file {path} is no JSON object: {wrong}") from wrong


def vendor_services(config: Config, tokens: ServiceTokens) -> VendorData | None:
    """Build the client of the configured services, which uses our own token; None: no service is configured."""
    mine = config.metadata
    if not mine.vendor_data_targets:
        return None
    services = [
        (
            each.name,
            ServiceClient(
                f"vendor data {each.name}",
                each.url,
                tokens=tokens,
                ca_file=str(config.data / each.ca_file) if each.ca_file else "",
            ),
        )
        for each in mine.vendor_data_targets
    ]
    return VendorData(services, timeout_s=mine.vendor_data_timeout_s, fatal=mine.vendor_data_failure_fatal)
