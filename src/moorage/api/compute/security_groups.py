"""Security groups: of servers (list, `addSecurityGroup`, `removeSecurityGroup`), and below 2.36 the groups themselves.

The network service has them; what is here is the old network's view of them: incoming rules only, ports as `from_port`
and `to_port`, the group a rule names by its name and project.
"""

import ipaddress
from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import UUID_FORM
from moorage.api.compute.server_lookup import the_server
from moorage.api.compute.service_proxy import network_of, wrong
from moorage.api.routes import LIMIT, TEXT, Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import now_us
from moorage.clients.http import Json
from moorage.model.errors import Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.model.server import Server
from moorage.operations.records import security_groups as groups
from moorage.operations.records import servers as writes

RULE = "os_compute_api:os-security-groups:"
Text255: TypeAlias = Annotated[str, Meta(max_length=255)]
ANYWHERE = "0.0.0.0/0"
WITH_PORTS = ("TCP", "UDP")
PROTOCOLS = (*WITH_PORTS, "ICMP")
PORT_MAX = 65_535
ICMP_MAX = 255


class NamedGroup(Body):
    name: Annotated[str, Meta(min_length=1)]


class AddSecurityGroupBody(Body):
    add: NamedGroup = msgspec.field(name="addSecurityGroup")


class RemoveSecurityGroupBody(Body):
    remove: NamedGroup = msgspec.field(name="removeSecurityGroup")


class NewSecurityGroup(msgspec.Struct):
    """Unknown fields were always taken here."""

    name: Text255
    description: Text255


class GroupBody(msgspec.Struct):
    security_group: NewSecurityGroup


class WantedRule(msgspec.Struct):
    parent_group_id: str
    group_id: str | None = None
    to_port: Any = None
    from_port: Any = None
    ip_protocol: Any = None
    cidr: Any = None


class RuleBody(msgspec.Struct):
    security_group_rule: WantedRule


# ------------------------------------------------------------------------------------------------ the answers


async def shown(call: AnyCall, security_groups: Iterable[Json]) -> list[JsonObject]:
    """Groups as the old network showed them; a rule whose other group is gone is left out."""
    rows = list(security_groups)
    known = {row["id"]: row for row in rows}
    others = {
        rule["remote_group_id"]
        for row in rows
        for rule in _incoming(row)
        if rule.get("remote_group_id") and rule["remote_group_id"] not in known
    }
    if others:
        query = {"id": sorted(others), "fields": ["id", "name", "project_id"]}
        listed = await network_of(call).list_as(call.token, groups.GROUPS, query)
        known.update({row["id"]: row for row in listed})
    return [_group(row, known) for row in rows]


def _incoming(group: Json) -> list[Json]:
    return [rule for rule in group.get("security_group_rules", ()) if rule["direction"] == "ingress"]


def _group(group: Json, known: dict[str, Json]) -> JsonObject:
    return {
        "id": group["id"],
        "name": group["name"],
        "description": group.get("description"),
        "tenant_id": _project(group),
        "rules": [
            _rule(rule, known)
            for rule in _incoming(group)
            if not rule.get("remote_group_id") or rule["remote_group_id"] in known
        ],
    }


def _project(row: Json) -> str:
    return row.get("project_id") or row.get("tenant_id") or ""


def _ports(rule: Json) -> tuple[int | None, int | None]:
    low, high = rule.get("port_range_min"), rule.get("port_range_max")
    if rule.get("protocol") and low is None and high is None:
        return (1, PORT_MAX) if rule["protocol"].upper() in WITH_PORTS else (-1, -1)
    return low, high


def _rule(rule: Json, known: dict[str, Json]) -> JsonObject:
    low, high = _ports(rule)
    other = known.get(rule.get("remote_group_id") or "")
    return {
        "id": rule["id"],
        "parent_group_id": rule["security_group_id"],
        "ip_protocol": rule.get("protocol"),
        "from_port": low,
        "to_port": high,
        "group": {} if other is None else {"name": other["name"], "tenant_id": _project(other)},
        "ip_range": {} if other is not None else {"cidr": rule.get("remote_ip_prefix") or ANYWHERE},
    }


def _in_order(rows: list[JsonObject]) -> list[JsonObject]:
    return sorted(rows, key=lambda row: (row["tenant_id"], row["name"]))


# ------------------------------------------------------------------------------------------------ of servers


async def of_server(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "list")
    rows = await network_of(call).security_groups_of(server.id, call.token)
    return Response(200, {"security_groups": _in_order(await shown(call, rows))})


async def add(call: Call[AddSecurityGroupBody]) -> Response:
    server = await the_server(call, RULE + "add")
    name = _named(call.body.add.name)
    await groups.add_to_server(network_of(call), call.token, call.project, server.id, name)
    await _show_on(call, server)
    return Response(202)


async def remove(call: Call[RemoveSecurityGroupBody]) -> Response:
    server = await the_server(call, RULE + "remove")
    name = _named(call.body.remove.name)
    await groups.remove_from_server(network_of(call), call.token, call.project, server.id, name)
    await _show_on(call, server)
    return Response(202)


def _named(name: str) -> str:
    if not name.strip():
        raise Invalid("Security group name cannot be empty")
    return name


async def _show_on(call: AnyCall, server: Server) -> None:
    """The server's record names the groups that are on its ports now."""
    names = await groups.names_on(network_of(call), call.token, server.id)
    changed = writes.with_fields(security_groups=names)
    await writes.change(call.context.region, call.context.cells, server.id, changed, now_us(call.context.clock))


# ------------------------------------------------------------------------------------------------ groups


def _id(call: AnyCall) -> str:
    if not UUID_FORM.match(call.path["id"]):
        raise Invalid("Security group id should be uuid")
    return call.path["id"]


async def index(call: Call[None]) -> Response:
    call.require(RULE + "get")
    everybodys = call.is_admin and "all_tenants" in call.query
    query = {} if everybodys else {"project_id": call.project}
    rows = await network_of(call).list_as(call.token, groups.GROUPS, query)
    offset, most = call.number("offset"), call.context.config.page_max_rows
    limit = min(most, call.number("limit") or most)
    return Response(200, {"security_groups": _in_order(await shown(call, rows[offset : offset + limit]))})


async def show(call: Call[None]) -> Response:
    call.require(RULE + "show")
    row = await network_of(call).show_as(call.token, groups.GROUPS, _id(call))
    return Response(200, {"security_group": (await shown(call, [row]))[0]})


async def create(call: Call[GroupBody]) -> Response:
    call.require(RULE + "create")
    wanted = call.body.security_group
    made = await groups.create(network_of(call), call.token, wanted.name, wanted.description)
    return Response(200, {"security_group": (await shown(call, [made]))[0]})


async def update(call: Call[GroupBody]) -> Response:
    call.require(RULE + "update")
    wanted, network, group = call.body.security_group, network_of(call), _id(call)
    await network.show_as(call.token, groups.GROUPS, group)
    changed = await groups.update(network, call.token, group, wanted.name, wanted.description)
    return Response(200, {"security_group": (await shown(call, [changed]))[0]})


async def delete(call: Call[None]) -> Response:
    call.require(RULE + "delete")
    await groups.delete(network_of(call), call.token, _id(call))
    return Response(202)


# ------------------------------------------------------------------------------------------------ rules


async def create_rule(call: Call[RuleBody]) -> Response:
    """Make a rule of a security group.

    Raises Invalid when the rule exists already, and NotFound when its remote group does not.
    """
    call.require(RULE + "rule:create")
    wanted, network = call.body.security_group_rule, network_of(call)
    for name in ("parent_group_id", "group_id"):
        value = getattr(wanted, name)
        if value is not None and not UUID_FORM.match(value):
            wrong(name, value, "is not a 'uuid'")
    parent = await network.show_as(call.token, groups.GROUPS, wanted.parent_group_id)
    if wanted.group_id is not None:
        await network.show_as(call.token, groups.GROUPS, wanted.group_id)
    fields = _new_rule(wanted)
    if _is_there(parent, fields):
        raise Invalid(f"This rule already exists in group {wanted.parent_group_id}")
    made = await groups.create_rule(network, call.token, fields)
    (row,) = await shown(call, [{**parent, "security_group_rules": [made]}])
    if not row["rules"]:
        raise NotFound(f"Security group {wanted.group_id} not found.")
    return Response(200, {"security_group_rule": row["rules"][0]})


def _new_rule(wanted: WantedRule) -> Json:
    """The network service's fields. Raises Invalid."""
    fields: Json = {"direction": "ingress", "security_group_id": wanted.parent_group_id, "ethertype": "IPv4"}
    low, high = wanted.from_port, wanted.to_port
    protocol = _protocol(wanted.ip_protocol)
    if wanted.group_id is None:
        cidr = _cidr(wanted.cidr)
        fields["remote_ip_prefix"] = cidr
        fields["ethertype"] = "IPv6" if ":" in cidr else "IPv4"
        if not protocol or low is None or high is None:
            raise Invalid("Not enough parameters to build a valid rule.")
    else:
        fields["remote_group_id"] = wanted.group_id
        if low is None and high is None and protocol.upper() in PROTOCOLS:
            low, high = (-1, -1) if protocol.upper() == "ICMP" else (1, PORT_MAX)
    if protocol and low is not None and high is not None:
        ports = _checked(protocol, low, high)
        fields["protocol"] = protocol
        named = zip(("port_range_min", "port_range_max"), ports, strict=True)
        fields.update({name: port for name, port in named if port != -1})
    return fields


def _protocol(value: Any) -> str:
    if value is None or isinstance(value, str | int):
        return "" if value is None else str(value)
    raise Invalid(f"Invalid IP protocol {value}.")


def _checked(protocol: str, low: Any, high: Any) -> tuple[int, int]:
    kind = protocol.upper()
    try:
        first, last = int(low), int(high)
    except (ValueError, TypeError, OverflowError):
        what = "Type and Code must be integers for ICMP protocol type"
        raise Invalid(
            f"Invalid input received: {what if kind == 'ICMP' else 'To and From ports must be integers'}"
        ) from None
    if kind not in PROTOCOLS:
        raise Invalid(f"Invalid IP protocol {protocol}.")
    why = ""
    if kind in WITH_PORTS and first > last:
        why = "Former value cannot be greater than the later"
    elif kind in WITH_PORTS and (first < 1 or last > PORT_MAX):
        why = f"Valid {kind} ports should be between 1-65535"
    elif kind == "ICMP" and not (-1 <= first <= ICMP_MAX and -1 <= last <= ICMP_MAX):
        why = "For ICMP, the type:code must be valid"
    if why:
        raise Invalid(f"Invalid port range {first}:{last}. {why}")
    return first, last


def _cidr(value: Any) -> str:
    if not value:
        return ANYWHERE
    text = unquote(value) if isinstance(value, str) else str(value)
    address, slash, length = text.partition("/")
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise Invalid(f"{text} is not a valid IP network.") from None
    if not slash or not length:
        raise Invalid(f"{text} is not a valid IP network.")
    if length == "0" and address not in {"0.0.0.0", "::"}:
        raise Invalid(f"Bad prefix for network in cidr {text}")
    return text


def _is_there(group: Json, fields: Json) -> bool:
    """Whether the group has this rule by addresses already; rules by group are left to the network service to refuse."""
    if "remote_group_id" in fields:
        return False
    wanted = (fields["remote_ip_prefix"], fields["protocol"], _ports(fields))
    return any(
        (rule.get("remote_ip_prefix") or ANYWHERE, rule.get("protocol"), _ports(rule)) == wanted
        for rule in _incoming(group)
        if not rule.get("remote_group_id")
    )


async def delete_rule(call: Call[None]) -> Response:
    call.require(RULE + "rule:delete")
    await groups.delete_rule(network_of(call), call.token, _id(call))
    return Response(202)


ACTION = "/servers/{id}/action"
LISTED = Params({"limit": LIMIT, "offset": LIMIT, "all_tenants": TEXT}, strict=None)
AS_ASKED = Params(strict=None)

ROUTES = (
    Route("GET", "/servers/{id}/os-security-groups", of_server),
    Route("POST", ACTION, add, takes=AddSecurityGroupBody, action="addSecurityGroup"),
    Route("POST", ACTION, remove, takes=RemoveSecurityGroupBody, action="removeSecurityGroup"),
    Route("GET", "/os-security-groups", index, params=LISTED),
    Route("POST", "/os-security-groups", create, takes=GroupBody),
    Route("GET", "/os-security-groups/{id}", show, params=AS_ASKED),
    Route("PUT", "/os-security-groups/{id}", update, takes=GroupBody),
    Route("DELETE", "/os-security-groups/{id}", delete),
    Route("POST", "/os-security-group-rules", create_rule, takes=RuleBody),
    Route("DELETE", "/os-security-group-rules/{id}", delete_rule),
)
