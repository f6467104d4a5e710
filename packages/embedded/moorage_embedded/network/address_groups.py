"""Address groups: lists of prefixes that rules of security groups name in place of one."""

from ipaddress import ip_interface
from typing import Any

from moorage_embedded.network import validators
from moorage_embedded.network.attributes import UNSET, Attr, for_create, for_update
from moorage_embedded.network.faults import NeutronFault, bad, conflict, not_found
from moorage_embedded.network.networks import COMMON, NAME
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

ADDRESSES_MAX = 1_000
"""Of one group."""


def _is_prefix(value: Any) -> str | None:
    reason = validators.is_subnet(value)
    if reason is None and str(ip_interface(value)) != value and ip_interface(value).version == 4:
        return f"'{value}' is not a valid IP subnet"
    return reason


def _is_address(value: Any) -> str | None:
    """Of what is added and removed, an address alone is a prefix of its own length."""
    return validators.is_subnet(value) if isinstance(value, str) and "/" in value else validators.is_address(value)


_ADDRESSES = validators.listed(_is_address, ADDRESSES_MAX)
_PREFIXES = validators.listed(_is_prefix, ADDRESSES_MAX, unique=True)
ATTRS: dict[str, Attr] = {
    **{name: attr for name, attr in COMMON.items() if name != "tags"},
    "name": NAME,
    "addresses": Attr(_PREFIXES, UNSET, validators.none_to_list, put=False),
}


def view(call: NetworkCall, group: Doc) -> Doc:
    return {name: value for name, value in group.items() if not name.startswith("_")}


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    made = []
    for body in bodies:
        said = for_create("address_group", body, ATTRS, call.who)
        call.require(call.who.writes(said["project_id"]), "create_address_group")
        group = call.born(said["project_id"])
        del group["tags"]
        group |= {"name": said["name"], "description": said["description"], "addresses": [], "_open": []}
        if said["addresses"] is not UNSET:
            group["addresses"] = _normal(said["addresses"])
        call.store.add("address_group", group)
        made.append(group)
    return made


def _normal(said: list[str]) -> list[str]:
    return sorted({str(ip_interface(each).network) for each in said})


def _check_mine(call: NetworkCall, group: Doc, rule: str) -> None:
    """Whoever only shares a group does not find it when it is to be changed."""
    if not call.who.reads(group["project_id"]):
        raise not_found("address_group", group["id"])
    call.require(call.who.writes(group["project_id"]), rule)


def update(call: NetworkCall, group: Doc, body: Any) -> Doc:
    _check_mine(call, group, "update_address_group")
    return group | for_update("address_group", body, ATTRS, call.who)


def change(call: NetworkCall, group: Doc, body: Doc, *, add: bool) -> Doc:
    """Add new addresses, or remove existing ones. Raises NeutronFault: 400 for wrong or existing ones, 404 for missing ones."""
    _check_mine(call, group, "add_addresses" if add else "remove_addresses")
    if reason := _ADDRESSES(body.get("addresses")):
        raise bad(f"Invalid input for addresses. Reason: {reason}.")
    said = _normal(body["addresses"])
    odd = [each for each in said if (each in group["addresses"]) is add]
    if odd and add:
        text = f"Addresses {odd} already exist in the address group {group['id']}."
        raise NeutronFault(400, "AddressesAlreadyExist", text)
    if odd:
        raise NeutronFault(404, "AddressesNotFound", f"Addresses {odd} not found in the address group {group['id']}.")
    kept = [each for each in group["addresses"] if each not in said]
    group["addresses"] = sorted(kept + said) if add else kept
    if len(group["addresses"]) > ADDRESSES_MAX:
        raise bad(f"An address group has at most {ADDRESSES_MAX} addresses.")
    call.store.put("address_group", touched(group))
    return {"address_group": view(call, group)}


def delete(call: NetworkCall, group: Doc) -> None:
    _check_mine(call, group, "delete_address_group")
    for rule in call.store.all_mentioning("security_group_rule", group["id"]):
        if rule["remote_address_group_id"] == group["id"]:
            text = f"Address group {group['id']} is in use on one or more security group rules."
            raise conflict("AddressGroupInUse", text)
    call.unshare(group["id"])
    call.store.remove("address_group", group["id"])
