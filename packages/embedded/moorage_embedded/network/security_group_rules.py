"""What a rule of a security group may say, in the form in which it is kept, and when two rules say the same."""

from collections.abc import Hashable
from ipaddress import ip_interface
from typing import Any

from moorage_embedded.network import validators
from moorage_embedded.network.attributes import REQUIRED, Attr, read_only
from moorage_embedded.network.faults import NeutronFault
from moorage_embedded.network.networks import COMMON

PROTOCOLS = {
    "ah": 51, "dccp": 33, "egp": 8, "esp": 50, "gre": 47, "hopopt": 0, "icmp": 1, "icmpv6": 58, "igmp": 2, "ip": 0,
    "ipip": 4, "ipv6-encap": 41, "ipv6-frag": 44, "ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "ipv6-route": 43,
    "ospf": 89, "pgm": 113, "rsvp": 46, "sctp": 132, "tcp": 6, "udp": 17, "udplite": 136, "vrrp": 112,
}  # fmt: skip
PORTED = {"dccp": 33, "sctp": 132, "tcp": 6, "udp": 17, "udplite": 136}
ICMP = (1, 58)
ONLY_IPV6 = (41, 43, 44, 58, 59, 60)
ALL_PORTS = (1, 65535)
DIGITS_MAX = 20
ANYWHERE = ("0.0.0.0/0", "::/0", None)

ATTRS: dict[str, Attr] = {
    **{name: attr for name, attr in COMMON.items() if name != "tags"},
    "security_group_id": Attr(validators.is_uuid, REQUIRED, put=False),
    "direction": Attr(validators.one_of("ingress", "egress"), REQUIRED, put=False),
    "ethertype": Attr(
        validators.one_of("IPv4", "IPv6"), "IPv4",
        lambda value: {"ipv4": "IPv4", "ipv6": "IPv6"}.get(str(value).lower(), value), put=False,
    ),
    "protocol": Attr(None, None, lambda value: str(value).lower() if value is not None else None, put=False),
    "port_range_min": Attr(None, None, validators.to_int, put=False),
    "port_range_max": Attr(None, None, validators.to_int, put=False),
    "remote_ip_prefix": Attr(validators.optional(validators.text(64)), None, put=False),
    "remote_group_id": Attr(validators.optional(validators.text(64)), None, put=False),
    "remote_address_group_id": Attr(validators.optional(validators.text(64)), None, put=False),
    "normalized_cidr": read_only(),
    "belongs_to_default_sg": read_only(),
}  # fmt: skip
REMOTES = ("remote_ip_prefix", "remote_group_id", "remote_address_group_id")


def _refused(type: str, text: str) -> NeutronFault:
    return NeutronFault(400, type, text)


def settle(said: dict[str, Any]) -> None:
    """Bring what was said into the form in which it is kept. Raises 400 for what no rule can be."""
    for port in (said["port_range_min"], said["port_range_max"]):
        if port is not None and validators.within(0, 65535)(port):
            raise _refused("SecurityGroupInvalidPortValue", f"Invalid value for port {port}")
    said["protocol"] = _protocol(said["protocol"], said["ethertype"])
    if (said["port_range_min"], said["port_range_max"]) == ALL_PORTS:
        said["port_range_min"] = said["port_range_max"] = None
    _check_ports(said["protocol"], said["port_range_min"], said["port_range_max"])
    said["remote_ip_prefix"] = _prefix(said["remote_ip_prefix"], said["ethertype"])
    if said["ethertype"] == "IPv4" and said["protocol"] is not None and protocol_number(said["protocol"]) in ONLY_IPV6:
        raise _refused(
            "SecurityGroupEthertypeConflictWithProtocol",
            f"Invalid ethertype {said['ethertype']} for protocol {said['protocol']}.",
        )
    if sum(1 for name in REMOTES if said[name]) > 1:
        raise _refused(
            "SecurityGroupMultipleRemoteEntites",
            "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided.",
        )


def sameness(rule: dict[str, Any]) -> Hashable:
    """Equal for rules that let the same through: all addresses are no prefix, a protocol is its number."""
    named = ("direction", "ethertype", "port_range_min", "port_range_max", "remote_group_id", "remote_address_group_id")
    prefix = rule["remote_ip_prefix"]
    protocol = None if rule["protocol"] is None else protocol_number(rule["protocol"])
    return *(rule[name] for name in named), protocol, None if prefix in ANYWHERE else prefix


def protocol_number(protocol: str) -> int:
    """Of a protocol in the form in which it is kept."""
    return PROTOCOLS[protocol] if protocol in PROTOCOLS else int(protocol)


def _protocol(said: str | None, ethertype: str) -> str | None:
    if said is None or said == "any":
        return None
    number = said.isascii() and said.isdigit() and len(said) <= DIGITS_MAX and int(said) <= 255
    if said not in PROTOCOLS and not number:
        raise _refused(
            "SecurityGroupRuleInvalidProtocol",
            f"Security group rule protocol {said} not supported."
            f" Only protocol values {sorted(PROTOCOLS)} and integer representations [0 to 255] are supported.",
        )
    if ethertype == "IPv6":  # the older words for ICMP of IPv6
        return {"icmp": "ipv6-icmp", "icmpv6": "ipv6-icmp", "1": "58"}.get(said, said)
    return said


def _prefix(said: str | None, ethertype: str) -> str | None:
    """An address alone is a prefix of its own length."""
    if not said:
        return None
    try:
        found = ip_interface(_without_zone(said))
    except ValueError:
        raise _refused("InvalidCIDR", f"Invalid CIDR {said} given as IP prefix.") from None
    if ethertype != f"IPv{found.version}":
        raise _refused(
            "SecurityGroupRuleParameterConflict", f"Conflicting value ethertype {ethertype} for CIDR {found}"
        )
    return str(found)


def _without_zone(said: str) -> str:
    """`fe80::1%eth0` means an interface of the machine that says it, and nothing on another one."""
    if "%" in said:
        raise ValueError(said)
    return said


def _check_ports(protocol: str | None, low: int | None, high: int | None) -> None:
    if low is None and high is None:
        return
    if protocol is None:
        raise _refused("SecurityGroupProtocolRequiredWithPorts", "Must also specify protocol if port range is given.")
    number = protocol_number(protocol)
    if number in PORTED.values():
        if 0 in (low, high):
            raise _refused("SecurityGroupInvalidPortValue", "Invalid value for port 0")
        if low is None or high is None or low > high:
            raise _refused(
                "SecurityGroupInvalidPortRange", "For TCP/UDP protocols, port_range_min must be <= port_range_max"
            )
    elif number in ICMP:
        for attr, field, value in (("port_range_min", "type", low), ("port_range_max", "code", high)):
            if value is not None and not 0 <= value <= 255:
                text = f"Invalid value for ICMP {field} ({attr}) {value}. It must be 0 to 255."
                raise _refused("SecurityGroupInvalidIcmpValue", text)
        if low is None:
            text = f"ICMP code (port-range-max) {high} is provided but ICMP type (port-range-min) is missing."
            raise _refused("SecurityGroupMissingIcmpType", text)
    else:
        ported = ", ".join(name.upper() for name in PORTED)
        text = f"Ports cannot be specified for protocol {number}. Ports are only supported for {ported}."
        raise _refused("SecurityGroupInvalidProtocolForPort", text)
