"""What may be said of a port."""

import re
from typing import Any

from moorage_embedded.network import validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, admin, admin_or_service, read_only, service
from moorage_embedded.network.binding import VNIC_TYPES
from moorage_embedded.network.networks import ADMIN_STATE, COMMON, NAME

_DNS_LABEL = re.compile(r"^(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*\.?$", re.IGNORECASE)


def _is_dns_name(value: Any) -> str | None:
    if value == "" or (isinstance(value, str) and len(value) <= 255 and _DNS_LABEL.fullmatch(value)):
        return None
    return (
        f"'{value}' not a valid PQDN or FQDN. Reason: Name '{value}'"
        " must be 1-63 characters long, each of which can only be alphanumeric or a hyphen"
    )


def _is_pair_address(value: Any) -> str | None:
    return validators.is_subnet(value) if isinstance(value, str) and "/" in value else validators.is_address(value)


_PAIR = validators.keyed({"ip_address": _is_pair_address}, {"mac_address": validators.is_mac})
_OPTION = validators.keyed(
    {"opt_name": lambda value: validators.filled(64)(value) or validators.line()(value)},
    {"opt_value": validators.optional(validators.line()), "ip_version": validators.one_of(4, 6, "4", "6")},
)
_MAY_BE_BLANK = ("router", "classless-static-route")


def dhcp_options(held: list[Any], said: list[Any]) -> list[Any]:
    """Those that a port has, with what is said of some by their names: a value, or by none that they go."""
    found = {(each["opt_name"], int(each.get("ip_version", 4))): each.get("opt_value") for each in held + said}
    return [
        {"opt_name": name, "opt_value": value, "ip_version": version}
        for (name, version), value in found.items()
        if value or (value == "" and name in _MAY_BE_BLANK)
    ]


ATTRS: dict[str, Attr] = COMMON | {
    "name": NAME,
    "network_id": Attr(validators.is_uuid, REQUIRED, put=False),
    "admin_state_up": ADMIN_STATE,
    "status": read_only(),
    "mac_address": Attr(validators.optional(validators.is_mac), UNSET, validators.to_mac),
    "fixed_ips": Attr(validators.optional(validators.is_fixed_ips), UNSET),
    "device_id": Attr(validators.line(), "", lambda value: "" if value is None else value),
    "device_owner": Attr(validators.line(), "", lambda value: "" if value is None else value),
    "security_groups": Attr(validators.optional(validators.listed(validators.is_uuid, 200, unique=True)), UNSET),
    "port_security_enabled": Attr(validators.is_bool, UNSET, validators.to_bool),
    "allowed_address_pairs": Attr(validators.listed(_PAIR, 200), list, validators.none_to_list),
    "extra_dhcp_opts": Attr(validators.listed(_OPTION, 100), list, validators.none_to_list),
    "binding:host_id": Attr(
        validators.optional(validators.text()), UNSET, may_post=admin_or_service, may_put=admin_or_service,
        may_read=admin_or_service,
    ),
    "binding:profile": Attr(
        validators.optional(validators.is_dict), UNSET, may_post=service, may_put=service, may_read=admin_or_service
    ),
    "binding:vnic_type": Attr(validators.one_of(*VNIC_TYPES), "normal"),
    "binding:vif_type": read_only(admin_or_service),
    "binding:vif_details": read_only(admin_or_service),
    "qos_policy_id": Attr(validators.optional(validators.is_uuid), None),
    "qos_network_policy_id": read_only(),
    "dns_name": Attr(_is_dns_name, ""),
    "dns_domain": Attr(validators.optional(validators.line()), None),
    "dns_assignment": read_only(),
    "propagate_uplink_status": Attr(validators.is_bool, True, validators.to_bool),
    "numa_affinity_policy": Attr(validators.one_of(None, "required", "preferred", "legacy", "socket"), None),
    "device_profile": Attr(validators.optional(validators.text()), None, put=False),
    "hardware_offload_type": Attr(validators.optional(validators.one_of("switchdev")), None, put=False),
    "hints": Attr(validators.optional(validators.is_dict), None, may_post=admin, may_put=admin, may_read=admin),
    "trusted": Attr(
        validators.optional(validators.is_bool), None, validators.to_bool, may_post=admin, may_put=admin, may_read=admin
    ),
    "data_plane_status": Attr(validators.one_of(None, "ACTIVE", "DOWN"), UNSET, post=False, may_put=admin),
    "ip_allocation": read_only(),
    "trunk_details": read_only(),
    "resource_request": read_only(admin),
}  # fmt: skip
