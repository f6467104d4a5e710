"""Subnet pools: prefixes out of which subnets are carved."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any

from moorage_embedded.network import address_scopes, validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, admin, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, bad
from moorage_embedded.network.networks import COMMON, NAME
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.store import Doc

CANDIDATES_MAX = 100_000
ATTRS: dict[str, Attr] = COMMON | {
    "name": NAME,
    "prefixes": Attr(validators.listed(validators.is_subnet, 100), REQUIRED),
    "default_prefixlen": Attr(validators.within(0, 128), UNSET, validators.to_int),
    "min_prefixlen": Attr(validators.within(0, 128), UNSET, validators.to_int),
    "max_prefixlen": Attr(validators.within(0, 128), UNSET, validators.to_int),
    "default_quota": Attr(validators.optional(validators.within(0, 2**62)), None, validators.to_int),
    "is_default": Attr(validators.is_bool, False, validators.to_bool, may_post=admin, may_put=admin),
    "shared": Attr(validators.is_bool, False, validators.to_bool, put=False, may_post=admin),
    "address_scope_id": Attr(validators.optional(validators.is_uuid), None),
    "ip_version": read_only(),
}


LENGTHS = ("default_prefixlen", "min_prefixlen", "max_prefixlen")


def view(call: NetworkCall, pool: Doc) -> Doc:
    """Lengths of prefixes are shown as text, as Neutron does."""
    return {name: str(value) if name in LENGTHS else value for name, value in pool.items() if not name.startswith("_")}


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    """Create a subnet pool. Raises NeutronFault: 403, or 400 for wrong prefix lengths or a second default pool."""
    made = []
    for body in bodies:
        said = for_create("subnetpool", body, ATTRS, call.who)
        call.require(call.who.writes(said["project_id"]), "create_subnetpool")
        prefixes, version = _prefixes(said["prefixes"])
        call.charge(said["project_id"], "subnetpool")
        longest = 32 if version == 4 else 128
        low = 8 if version == 4 else 64
        lengths = {
            "min_prefixlen": low if said["min_prefixlen"] is UNSET else said["min_prefixlen"],
            "max_prefixlen": longest if said["max_prefixlen"] is UNSET else said["max_prefixlen"],
        }
        default = said["default_prefixlen"]
        lengths["default_prefixlen"] = lengths["min_prefixlen"] if default is UNSET else default
        if not lengths["min_prefixlen"] <= lengths["default_prefixlen"] <= lengths["max_prefixlen"] <= longest:
            raise NeutronFault(400, "IllegalSubnetPoolPrefixBounds", f"Illegal prefix bounds: {lengths}.")
        pool = call.born(said["project_id"]) | {
            name: said[name]
            for name in ("name", "description", "tags", "is_default", "shared", "default_quota", "address_scope_id")
        }
        pool |= lengths | {"prefixes": prefixes, "ip_version": version, "revision_number": 1}
        if pool["is_default"] and not call.store.hold("default-pool", str(version), pool["id"]):
            text = f"Invalid input for operation: A default subnetpool for IPv{version} already exists."
            raise NeutronFault(400, "InvalidInput", text)
        address_scopes.check_pool(call, pool)
        if pool["shared"]:
            call.store.share("subnetpool", pool["id"], "access_as_shared", "*")
        call.store.add("subnetpool", pool)
        made.append(pool)
    return made


def _prefixes(said: list[str]) -> tuple[list[str], int]:
    if not said:
        raise NeutronFault(400, "EmptySubnetPoolPrefixList", "Empty subnet pool prefix list.")
    nets = [ip_network(each, strict=False) for each in said]
    if len({net.version for net in nets}) > 1:
        raise NeutronFault(400, "PrefixVersionMismatch", "Cannot mix IPv4 and IPv6 prefixes in a subnet pool.")
    four = collapse_addresses([net for net in nets if isinstance(net, IPv4Network)])
    six = collapse_addresses([net for net in nets if isinstance(net, IPv6Network)])
    return [*map(str, four), *map(str, six)], nets[0].version


def update(call: NetworkCall, pool: Doc, body: Any) -> Doc:
    """Change a subnet pool. Raises NeutronFault: 403, or 400 for removed prefixes or a second default pool."""
    changes = for_update("subnetpool", body, ATTRS, call.who)
    call.require(call.who.writes(pool["project_id"]), "update_subnetpool")
    address_scopes.check_change(call, pool)
    if "prefixes" in changes:
        wanted, version = _prefixes(changes["prefixes"])
        both, _ = _prefixes([*pool["prefixes"], *wanted])
        if version != pool["ip_version"] or both != wanted:
            text = "Illegal update to prefixes: Existing prefixes must be a subset of the new prefixes."
            raise NeutronFault(400, "IllegalSubnetPoolPrefixUpdate", text)
        changes["prefixes"] = wanted
    if "is_default" in changes and changes["is_default"] != pool["is_default"]:
        if not changes["is_default"]:
            call.store.drop_holds(pool["id"])
        elif not call.store.hold("default-pool", str(pool["ip_version"]), pool["id"]):
            text = f"Invalid input for operation: A default subnetpool for IPv{pool['ip_version']} already exists."
            raise NeutronFault(400, "InvalidInput", text)
    changed = pool | changes
    if changes.keys() & {"prefixes", "address_scope_id"}:
        address_scopes.check_pool(call, changed)
    if changed["address_scope_id"] != pool["address_scope_id"]:
        call.store.put("subnetpool", changed)
        address_scopes.scope_networks(call, changed)
    return changed


def delete(call: NetworkCall, pool: Doc) -> None:
    """Delete a subnet pool. Raises NeutronFault: 403, or 400 while it has allocations."""
    call.require(call.who.writes(pool["project_id"]), "delete_subnetpool")
    if call.store.mentioned("subnet", pool["id"]) is not None:
        text = "Unable to delete subnet pool: Subnet pool has existing allocations."
        raise NeutronFault(400, "SubnetPoolDeleteError", text)
    call.store.drop_holds(pool["id"])
    call.store.unshare(pool["id"])
    call.store.remove("subnetpool", pool["id"])
    call.charge(pool["project_id"], "subnetpool", -1)


def default_pool(call: NetworkCall, version: int) -> Doc | None:
    id = call.store.holder("default-pool", str(version))
    return None if id is None else call.store.get("subnetpool", id)


def carve(call: NetworkCall, id: Any, version: int, cidr: str | None, prefixlen: int | None) -> tuple[str, str]:
    """A free prefix of the pool: (pool, cidr). The pool's row is locked, so two carvers never get the same."""
    if id in (UNSET, None):
        chosen = default_pool(call, version)
        if chosen is None:
            raise bad("Bad subnets request: No default subnetpool found.")
        id = chosen["id"]
    pool = needed(call, "subnetpool", id, lock=True)
    if pool["ip_version"] != version:
        text = f"Cannot allocate requested IPv{version} subnet from an IPv{pool['ip_version']} pool."
        raise bad(f"Bad subnets request: {text}")
    used = [ip_network(each["cidr"]) for each in call.store.all_mentioning("subnet", id) if each["subnetpool_id"] == id]
    if cidr is not None:
        wanted = ip_network(cidr, strict=False)
        inside = any(_within(wanted, ip_network(each)) for each in pool["prefixes"])
        if not inside or any(wanted.overlaps(each) for each in used):
            raise _cannot("Cannot allocate requested subnet from the available set of prefixes")
        return id, str(wanted)
    return id, _any_prefix(pool, used, pool["default_prefixlen"] if prefixlen is None else prefixlen)


def _within(one: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    return one.version == other.version and one.prefixlen >= other.prefixlen and one.overlaps(other)


def _any_prefix(pool: Doc, used: list[IPv4Network | IPv6Network], length: int) -> str:
    if not pool["min_prefixlen"] <= length <= pool["max_prefixlen"]:
        kind = "MinPrefixSubnetAllocationError" if length < pool["min_prefixlen"] else "MaxPrefixSubnetAllocationError"
        raise NeutronFault(400, kind, f"Unable to allocate subnet with prefix length {length}.")
    for tried, net in enumerate(_cuts(pool, length)):
        if not any(net.overlaps(each) for each in used):
            return str(net)
        if tried >= CANDIDATES_MAX:
            break
    raise _cannot(f"Insufficient prefix space to allocate subnet size /{length}")


def _cuts(pool: Doc, length: int) -> Iterator[IPv4Network | IPv6Network]:
    for prefix in pool["prefixes"]:
        net = ip_network(prefix)
        if net.prefixlen <= length:
            yield from net.subnets(new_prefix=length)


def _cannot(reason: str) -> NeutronFault:
    return NeutronFault(500, "SubnetAllocationError", f"Failed to allocate subnet: {reason}.")
