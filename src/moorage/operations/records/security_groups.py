"""Security groups of the project and of a server's ports, changed at the network service with the user's own token.

Names and messages are those of Nova's proxies, which ended with 2.36; the two actions on servers still exist.
"""

from collections.abc import Mapping
from typing import Any

from moorage.clients.http import Json
from moorage.clients.network import NetworkBackend
from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound, Refusal

GROUPS = "security-groups"
RULES = "security-group-rules"
CANNOT = "Network requires port_security_enabled and subnet associated in order to apply security groups."


async def find(network: NetworkBackend, token: str, project: str, name: str) -> str:
    """The id of the group with this id or, among the project's, with this name. Raises NotFound, Conflict when several
    have the name.
    """
    if await network.list_as(token, GROUPS, {"id": name, "fields": ["id"]}):
        return name
    rows = await network.list_as(token, GROUPS, {"name": name, "project_id": project, "fields": ["id"]})
    if not rows:
        raise NotFound(f"Security group {name} is not found for project {project}")
    if len(rows) > 1:
        raise Conflict(
            f"Multiple security_group matches found for name '{name}', use an ID to be more specific.",
            code="security_group_ambiguous",
        )
    return str(rows[0]["id"])


async def add_to_server(network: NetworkBackend, token: str, project: str, server: str, name: str) -> None:
    """Add the group to every port of the server. Raises Invalid when a port can have no groups, NotFound for an unknown
    group or server.
    """
    group = await find(network, token, project, name)
    ports = await _ports(network, token, server)
    if not all(_may_have_groups(port) for port in ports):
        raise Invalid(CANNOT, code="security_group_cannot_be_applied")
    for port in ports:
        if group in port["security_groups"]:
            continue
        try:
            await _put(network, token, port, [*port["security_groups"], group])
        except Invalid as refused:
            raise Invalid(refused.public, private=refused.private, code="security_group_cannot_be_applied") from refused


async def remove_from_server(network: NetworkBackend, token: str, project: str, server: str, name: str) -> None:
    """Remove the group from every port of the server. Raises NotFound when none had it."""
    group = await find(network, token, project, name)
    having = [port for port in await _ports(network, token, server) if group in port["security_groups"]]
    if not having:
        raise NotFound(f"Security group {name} not associated with the instance {server}")
    for port in having:
        await _put(network, token, port, [each for each in port["security_groups"] if each != group])


async def _ports(network: NetworkBackend, token: str, server: str) -> list[Json]:
    ports = await network.list_as(token, "ports", {"device_id": server})
    if not ports:
        raise NotFound(f"instance_id {server} could not be found as device id on any ports")
    return ports


async def _put(network: NetworkBackend, token: str, port: Json, groups: list[str]) -> None:
    await network.change_as(token, "ports", port["id"], {"security_groups": groups})


def _may_have_groups(port: Mapping[str, Any]) -> bool:
    addressed = bool(port.get("fixed_ips")) or port.get("ip_allocation") == "deferred"
    return addressed and bool(port.get("port_security_enabled", True))


async def names_on(network: NetworkBackend, token: str, server: str) -> tuple[str, ...]:
    """The security groups that the server shows: names (or ids) of the groups on its ports, in their order."""
    groups = await network.security_groups_of(server, token)
    return tuple(dict.fromkeys(str(each.get("name") or each["id"]) for each in groups))


# ------------------------------------------------------------------------------------------------ groups and rules


async def create(network: NetworkBackend, token: str, name: str, description: str) -> Json:
    """Create a group. Raises Forbidden when the project may have no more."""
    try:
        return await network.make_as(token, GROUPS, {"name": name, "description": description})
    except Conflict as full:
        raise over(full) from full


async def update(network: NetworkBackend, token: str, group: str, name: str, description: str) -> Json:
    return await network.change_as(token, GROUPS, group, {"name": name, "description": description})


async def delete(network: NetworkBackend, token: str, group: str) -> None:
    """Delete a group. Raises Invalid for a group that is in use."""
    await network.show_as(token, GROUPS, group)
    try:
        await network.remove_as(token, GROUPS, group)
    except Conflict as used:
        raise Invalid(used.public, private=used.private, code="security_group_in_use") from used


async def create_rule(network: NetworkBackend, token: str, fields: Json) -> Json:
    try:
        return await network.make_as(token, RULES, fields)
    except Conflict as full:
        raise over(full) from full


async def delete_rule(network: NetworkBackend, token: str, rule: str) -> None:
    await network.show_as(token, RULES, rule)
    await network.remove_as(token, RULES, rule)


def over(refused: Refusal) -> Forbidden:
    """The Forbidden with which the old API reports a conflict at the network service, usually an exceeded quota."""
    return Forbidden(refused.public, private=refused.private, code="security_group_limit")
