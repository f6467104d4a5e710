"""Address scopes: the subnet pools of one have no prefix in common, so that routers need no NAT between their networks."""

from ipaddress import ip_network
from typing import Any

from moorage_embedded.network import validators
from moorage_embedded.network.attributes import REQUIRED, Attr, admin, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, conflict
from moorage_embedded.network.networks import NAME, PROJECT
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

ATTRS: dict[str, Attr] = {
    "id": read_only(),
    "project_id": PROJECT,
    "name": NAME,
    "ip_version": Attr(validators.one_of(4, 6), REQUIRED, validators.to_int, put=False),
    "shared": Attr(validators.is_bool, False, validators.to_bool, may_post=admin, may_put=admin),
}


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    made = []
    for body in bodies:
        said = for_create("address_scope", body, ATTRS, call.who)
        call.require(call.who.writes(said["project_id"]), "create_address_scope")
        born = call.born(said["project_id"])
        scope = {name: born[name] for name in ("id", "project_id", "tenant_id")}
        scope |= {name: said[name] for name in ("name", "ip_version", "shared")}
        call.store.add("address_scope", scope)
        made.append(scope)
    return made


def update(call: NetworkCall, scope: Doc, body: Any) -> Doc:
    """Change an address scope. Raises NeutronFault: 403, or 400 when it would no longer be shared."""
    changes = for_update("address_scope", body, ATTRS, call.who)
    call.require(call.who.writes(scope["project_id"]), "update_address_scope")
    if scope["shared"] and not changes.get("shared", True):
        text = f"Unable to update address scope {scope['id']} : Shared address scope can't be unshared."
        raise NeutronFault(400, "AddressScopeUpdateError", text)
    return scope | changes


def delete(call: NetworkCall, scope: Doc) -> None:
    call.require(call.who.writes(scope["project_id"]), "delete_address_scope")
    if _pools(call, scope["id"]):
        text = (
            f"Unable to complete operation on address scope {scope['id']}. "
            "There are one or more subnet pools in use on the address scope."
        )
        raise conflict("AddressScopeInUse", text)
    call.store.remove("address_scope", scope["id"])


def _pools(call: NetworkCall, id: str) -> list[Doc]:
    return [each for each in call.store.all_mentioning("subnetpool", id) if each["address_scope_id"] == id]


def check_pool(call: NetworkCall, pool: Doc) -> None:
    """Check that the pool may be in the scope that it names. The scope's row is locked, so two pools never join with
    one prefix.

    Raises NeutronFault: 404 for the scope, 400 for a wrong IP version, 409 for an overlapping prefix.
    """
    id = pool["address_scope_id"]
    if id is None:
        return
    scope = needed(call, "address_scope", id, lock=True)
    if scope["ip_version"] != pool["ip_version"]:
        text = (
            f"Illegal subnetpool association: subnetpool {pool['id']} cannot associate with address scope {id} "
            f"because subnetpool ip_version is not {scope['ip_version']}."
        )
        raise NeutronFault(400, "IllegalSubnetPoolIpVersionAssociationToAddressScope", text)
    mine = [ip_network(each) for each in pool["prefixes"]]
    for other in _pools(call, id):
        if other["id"] != pool["id"] and any(
            ip_network(each).overlaps(prefix) for each in other["prefixes"] for prefix in mine
        ):
            text = "Failed to associate address scope: subnetpools within an address scope must have unique prefixes."
            raise conflict("AddressScopePrefixConflict", text)


def check_change(call: NetworkCall, pool: Doc) -> None:
    """Who put a pool into somebody else's scope does not change it any more. Raises NeutronFault (400)."""
    id = pool["address_scope_id"]
    scope = call.store.get("address_scope", id) if id else None
    if scope is not None and not (call.who.admin or call.who.owns(scope["project_id"])):
        text = f"subnetpool {pool['id']} cannot be updated when associated with shared address scope {id}"
        raise NeutronFault(400, "IllegalSubnetPoolUpdate", f"Illegal subnetpool update : {text}.")


def scope_network(call: NetworkCall, network: Doc) -> None:
    """Write into the network which scopes it is in: those of the pools that its subnets were carved from."""
    found: dict[int, str | None] = {4: None, 6: None}
    for subnet in call.store.children("subnet", network["id"]):
        if subnet["subnetpool_id"] and (pool := call.store.get("subnetpool", subnet["subnetpool_id"])) is not None:
            found[pool["ip_version"]] = pool["address_scope_id"]
    network["ipv4_address_scope"], network["ipv6_address_scope"] = found[4], found[6]


def scope_networks(call: NetworkCall, pool: Doc) -> None:
    """Put the networks of a pool's subnets into the pool's new scope.

    Raises NeutronFault (400) when a network would be in two scopes.
    """
    subnets = [each for each in call.store.all_mentioning("subnet", pool["id"]) if each["subnetpool_id"] == pool["id"]]
    for id in sorted({each["network_id"] for each in subnets}):
        network = call.store.get("network", id, lock=True)
        assert network is not None  # a subnet goes with its network
        of_others = [
            each
            for each in call.store.children("subnet", id)
            if each["ip_version"] == pool["ip_version"] and each["subnetpool_id"] != pool["id"]
        ]
        if of_others:
            text = "Subnets of the same address family hosted on the same network must all participate in the same address scope."
            raise NeutronFault(400, "NetworkAddressScopeAffinityError", text)
        scope_network(call, network)
        call.store.put("network", touched(network))


__all__ = ["ATTRS", "check_change", "check_pool", "create", "delete", "scope_network", "scope_networks", "update"]
