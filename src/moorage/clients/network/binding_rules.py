"""Pure functions of the network client: the wanted binding of a port, its result, and the reason for a refusal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.clients.http import Json
from moorage.clients.network.decoding import BINDING_KEYS, port_of
from moorage.clients.network.fixed_ips import exactly, with_subnet
from moorage.clients.replies import CREDENTIALS
from moorage.model.errors import Unavailable
from moorage.model.network import BindRefused, FixedIp, OtherSubnets, Port

UNBOUND = frozenset({"", "unbound"})
BINDING_FAILED = "binding_failed"
NO_ADDRESS_LEFT = "IpAddressGenerationFailure"
"""The network service's type of the error."""
NO_ADDRESS = "no_address"
"""The service reported a bound port that has no address."""
OWNERS_REASONS = {
    BINDING_FAILED: ": no mechanism of the network service can bind it where the server was to be",
    NO_ADDRESS: ": it was given no address",
    NO_ADDRESS_LEFT: ": no more IP addresses are available for it",
    "IpAddressGenerationFailureNoMatchingSubnet": ": its network has no subnet where the server was to be",
    "HostNotConnectedToAnySegment": ": its network does not reach where the server was to be",
}
"""The service's kind of refusal → the sentence for the owner, without names of hosts, segments and physical networks."""


@dataclass(frozen=True)
class WantedBinding:
    """Where a port is to be bound, and how."""

    host: str
    az: str
    subnets: tuple[str, ...]
    """The subnets of one segment; an address of any of them is accepted, and a new one is taken from the first."""
    others: OtherSubnets
    profile: Mapping[str, Any]
    ours: frozenset[str] | None
    """Hosts to which this operation may have bound the port; None: any host."""
    keeps: tuple[FixedIp, ...] | None = None
    """Addresses that the port has and keeps; None: not known."""

    def address_on(self, port: Port) -> bool:
        return any(each.subnet in self.subnets for each in port.fixed_ips)

    def addresses(self, port: Port) -> list[Json] | None:
        """Return the `fixed_ips` to send; None: the request does not change them."""
        if self.keeps is not None:
            if self.subnets:
                return with_subnet(port.fixed_ips, self.subnets, self.others.v6, self.keeps)
            return exactly(port.fixed_ips, self.keeps)
        if not self.subnets or port.address_chosen or self.address_on(port):
            return None
        left = {each.subnet for each in port.fixed_ips} & set(self.others.elsewhere)
        return [
            *({"subnet_id": each} for each in (self.subnets[0], self.others.v6) if each),
            *({"subnet_id": each, "delete_subnet": True} for each in sorted(left)),
        ]

    def has_addresses(self, port: Port) -> bool:
        """Tell whether the port has the addresses that were asked for."""
        if self.keeps is None:
            return self.address_on(port)
        kept = {*self.keeps} <= {*port.fixed_ips}
        return kept and (self.address_on(port) if self.subnets else len(self.keeps) == len(port.fixed_ips))

    def may_have_left(self, now: Port, before: str) -> bool:
        return self.ours is None or now.host == before or now.host in self.ours or now.vif_type == BINDING_FAILED


def binding_body(server: str, port: Port, wanted: WantedBinding) -> Json:
    body: Json = {"device_id": server, "device_owner": f"compute:{wanted.az}", "binding:host_id": wanted.host}
    profile = profile_on_host(port, wanted.profile)
    if profile != port.profile:
        body["binding:profile"] = profile
    if (addresses := wanted.addresses(port)) is not None:
        body["fixed_ips"] = addresses
    return body


def profile_on_host(port: Port, added: Mapping[str, Any]) -> Json:
    """Return a port's binding profile for another host: keys that describe the old host are removed, and `added` is added."""
    return {**without_host(port.profile), **port.original_profile, **added}


def is_bound(now: Port, wanted: WantedBinding, body: Json) -> bool:
    """Tell whether a PUT whose answer was lost has done what this one asks."""
    return (
        now.host == wanted.host
        and now.vif_type not in UNBOUND
        and now.profile == body.get("binding:profile", now.profile)
        and ("fixed_ips" not in body or wanted.has_addresses(now))
    )


def refused(port: Port, host: str, reason: str, kind: str) -> BindRefused:
    """Build the BindRefused. The service's own message is only for the operator, because it names hosts, segments and physical networks."""
    sentence = f"port {port.id} could not be bound{OWNERS_REASONS.get(kind, '')}"
    problem = BindRefused(sentence, code=kind, port=port.id, host=host, reason=reason, index=port.index)
    return problem.naming(f"port {port.id} could not be bound on host {host}: {reason}")


def with_missing_role(out: Unavailable, body: Json) -> Unavailable:
    """Build the error for an account that may not bind ports at all: another host would not help, and the message says what does."""
    if out.code != CREDENTIALS or not out.private.startswith("403"):
        return out
    role = "service" if "binding:profile" in body else "admin or service"
    private = f"the user of [service_user] lacks the role {role}: {out.private}"
    return Unavailable("the network service does not let us bind ports", private=private, code=CREDENTIALS)


def require_bound(port: Port, host: str) -> Port:
    """Check that the port is bound and has an address: the service answers 200 even if the binding failed.

    Raises BindRefused when no mechanism can bind the port on this host, or when it got no address.
    """
    if port.vif_type == BINDING_FAILED or port.vif_type in UNBOUND:
        raise refused(port, host, "no mechanism of the network service can bind it there", BINDING_FAILED)
    if port.wants_address and not port.fixed_ips:
        raise refused(port, host, "it was given no address", NO_ADDRESS)
    return port


def without_host(profile: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in profile.items() if key not in BINDING_KEYS}


def same_nic(known: Port, row: Json) -> Port:
    """Return the port as it is now, with the values that only we know."""
    return msgspec.structs.replace(
        port_of(row),
        ours=known.ours,
        tag=known.tag,
        index=known.index,
        original_profile=known.original_profile,
        original_fixed_ips=known.original_fixed_ips,
        address_chosen=known.address_chosen,
        floating=known.floating,
    )
