"""What goes wrong, in Neutron's words: a type clients match on, a sentence people read, and a status."""

from typing import Any

from moorage_embedded.http_kit import answers


class NeutronFault(answers.HttpFault):
    """Answered as `{"NeutronError": {"type", "message", "detail"}}`."""

    def __init__(self, status: int, type: str, message: str) -> None:
        super().__init__(status, message)
        self.type = type


TYPES = {
    400: "HTTPBadRequest",
    401: "HTTPUnauthorized",
    404: "HTTPNotFound",
    413: "HTTPRequestEntityTooLarge",
    429: "HTTPTooManyRequests",
    503: "ServiceUnavailable",
}
"""What the error of a refusal that every service has is called here."""


def error_body(fault: answers.HttpFault) -> dict[str, Any]:
    type = fault.type if isinstance(fault, NeutronFault) else TYPES.get(fault.status, "HTTPInternalServerError")
    return {"NeutronError": {"type": type, "message": fault.message, "detail": ""}}


NAMES = {
    "network": ("NetworkNotFound", "Network {} could not be found."),
    "subnet": ("SubnetNotFound", "Subnet {} could not be found."),
    "port": ("PortNotFound", "Port {} could not be found."),
    "segment": ("SegmentNotFound", "Segment {} could not be found."),
    "security_group": ("SecurityGroupNotFound", "Security group {} does not exist"),
    "security_group_rule": ("SecurityGroupRuleNotFound", "Security group rule {} does not exist"),
    "subnetpool": ("SubnetPoolNotFound", "Subnet pool {} could not be found."),
    "agent": ("AgentNotFound", "Agent {} could not be found."),
    "router": ("RouterNotFound", "Router {} could not be found"),
    "floatingip": ("FloatingIPNotFound", "Floating IP {} could not be found"),
    "policy": ("QosPolicyNotFound", "QoS policy {} could not be found."),
    "rbac_policy": ("RbacPolicyNotFound", "RBAC policy of type None with ID {} not found"),
    "trunk": ("TrunkNotFound", "Trunk {} could not be found."),
    "address_group": ("AddressGroupNotFound", "Address group {} could not be found."),
    "address_scope": ("AddressScopeNotFound", "Address scope {} could not be found."),
}


def not_found(noun: str, id: str) -> NeutronFault:
    type, message = NAMES.get(noun, ("HTTPNotFound", "The resource could not be found."))
    return NeutronFault(404, type, message.format(id))


def bad(message: str) -> NeutronFault:
    return NeutronFault(400, "HTTPBadRequest", message)


def invalid(message: str) -> NeutronFault:
    return NeutronFault(400, "InvalidInput", f"Invalid input for operation: {message}.")


def forbidden(rule: str, *more: str) -> NeutronFault:
    words = f"rule:{rule}" if not more else f"(rule:{rule} and {' and '.join(f'rule:{m}' for m in more)})"
    return NeutronFault(403, "PolicyNotAuthorized", f"{words} is disallowed by policy")


def conflict(type: str, message: str) -> NeutronFault:
    return NeutronFault(409, type, message)


def over_quota(noun: str) -> NeutronFault:
    return NeutronFault(409, "OverQuota", f"Quota exceeded for resources: ['{noun}'].")


def network_in_use(id: str) -> NeutronFault:
    return conflict(
        "NetworkInUse",
        f"Unable to complete operation on network {id}. There are one or more ports still in use on the network.",
    )


def no_address(network: str) -> NeutronFault:
    return conflict("IpAddressGenerationFailure", f"No more IP addresses available on network {network}.")


def address_taken(address: str, subnet: str) -> NeutronFault:
    return conflict("IpAddressAlreadyAllocated", f"IP address {address} already allocated in subnet {subnet}")


def mac_taken(network: str, mac: str) -> NeutronFault:
    return conflict(
        "MacAddressInUse",
        f"Unable to complete operation for network {network}. The mac address {mac} is in use.",
    )
