"""A server as its readers see it: today's full shape, kept ready as JSON per (id, generation, version, rights).

`full` has every field of every version; two of its fields are of the past alone (`past_flavor`), and the changes of
api/past leave out, rename and reshape the rest.  What a reader may see by policy is decided here, not there.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.api.call import AnyCall
from moorage.api.cross_cell import ServerPage
from moorage.api.rendered_rows import RowKey
from moorage.api.schema import write_json
from moorage.api.timestamps import seconds
from moorage.api.version_changes import v2_090_servers
from moorage.model.json_types import JsonObject
from moorage.model.server import Nic, Server, VmState
from moorage.model.server_status import status_of

FAULT_STATUSES = frozenset({"ERROR", "DELETED"})
PROGRESS_STATUSES = frozenset({"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"})


class Rights(msgspec.Struct, frozen=True):
    """What policy lets this reader see."""

    extended: bool
    """OS-EXT-SRV-ATTR."""
    extra_specs: bool
    host_status: str
    """`all`, `unknown` (only when it is UNKNOWN) or `none`."""
    admin: bool


def rights_of(call: AnyCall, project: str | None = None) -> Rights:
    target = None if project is None else {"project_id": project, "user_id": call.principal.user}
    host_status = "none"
    if call.allows("os_compute_api:servers:show:host_status", target):
        host_status = "all"
    elif call.allows("os_compute_api:servers:show:host_status:unknown-only", target):
        host_status = "unknown"
    return Rights(
        extended=call.allows("os_compute_api:os-extended-server-attributes", target),
        extra_specs=call.allows("os_compute_api:servers:show:flavor-extra-specs", target),
        host_status=host_status,
        admin=call.is_admin,
    )


def status(server: Server) -> str:
    return "DELETED" if server.deleted else status_of(server.vm_state, server.task_state)


def host_id(server: Server) -> str:
    """Nova's: tells one host from another without naming it, differently for every project."""
    if not server.host:
        return ""
    return hashlib.sha224((server.project + server.host).encode()).hexdigest()


def addresses_of(server: Server) -> dict[str, list[JsonObject]]:
    """By name of network, fixed ones first; empty while the server is building, and of a NIC that never got a port."""
    by_network: dict[str, list[JsonObject]] = {}
    if server.vm_state is VmState.BUILDING:
        return by_network
    ported = [nic for nic in server.nics if nic.port is not None]
    for nic in ported:
        shown = by_network.setdefault(nic.network_name, [])
        shown.extend(_address(nic, each.version, each.address, "fixed") for each in nic.addresses)
    for nic in ported:
        shown = by_network[nic.network_name]
        shown.extend(_address(nic, 6 if ":" in each.address else 4, each.address, "floating") for each in nic.floating)
    return by_network


def _address(nic: Nic, version: int, address: str, kind: str) -> JsonObject:
    return {"version": version, "addr": address, "OS-EXT-IPS:type": kind, "OS-EXT-IPS-MAC:mac_addr": nic.mac}


def basic(call: AnyCall, server_id: str, name: str) -> JsonObject:
    return {"id": server_id, "name": name, "links": call.links(f"servers/{server_id}")}


def _srv_time(at_us: int | None) -> str | None:
    written = seconds(at_us)
    if written is None or at_us is None:
        return None
    return f"{written[:-1]}.{at_us % 1_000_000:06d}"


def full(call: AnyCall, server: Server, rights: Rights, host_status: str = "") -> JsonObject:
    """Everything any version shows of a server, as far as the reader may see it."""
    shown = status(server)
    flavor = server.flavor
    body: JsonObject = {
        "id": server.id,
        "name": server.name,
        "status": shown,
        "tenant_id": server.project,
        "user_id": server.user,
        "metadata": server.metadata,
        "hostId": host_id(server),
        "image": _image(call, server),
        "flavor": {
            "vcpus": flavor.vcpus,
            "ram": flavor.ram_mib,
            "disk": flavor.disk_gib,
            "ephemeral": flavor.ephemeral_gib,
            "swap": flavor.swap_mib,
            "original_name": flavor.name,
        },
        "past_flavor": {
            "id": flavor.id,
            "links": [{"rel": "bookmark", "href": call.bookmark_link(f"flavors/{flavor.id}")}],
        },
        "created": seconds(server.created_at),
        "updated": seconds(server.updated_at or server.created_at),
        "addresses": addresses_of(server),
        "accessIPv4": server.access_ip_v4 or "",
        "accessIPv6": server.access_ip_v6 or "",
        "links": call.links(f"servers/{server.id}"),
        "OS-DCF:diskConfig": server.disk_config,
        "OS-EXT-AZ:availability_zone": server.availability_zone or "",
        "config_drive": "True" if server.config_drive else "",
        "key_name": server.key_name,
        "OS-SRV-USG:launched_at": _srv_time(server.launched_at),
        "OS-SRV-USG:terminated_at": _srv_time(server.terminated_at),
        "OS-EXT-STS:task_state": server.task_state,
        "OS-EXT-STS:vm_state": server.vm_state,
        "OS-EXT-STS:power_state": server.power_state,
        "os-extended-volumes:volumes_attached": [
            {"id": each.volume, "delete_on_termination": each.delete_on_termination} for each in server.volumes
        ],
        "locked": server.locked,
        "locked_reason": server.locked_reason,
        "description": server.description,
        "tags": list(server.tags),
        "trusted_image_certificates": list(server.trusted_certs) or None,
        "server_groups": [server.group] if server.group else [],
        "pinned_availability_zone": server.pinned_az,
        "scheduler_hints": server.hints,
    }
    if rights.extra_specs:
        body["flavor"]["extra_specs"] = flavor.extra_specs
    if server.security_groups:
        body["security_groups"] = [{"name": name} for name in server.security_groups]
    if shown in PROGRESS_STATUSES:
        body["progress"] = server.progress
    if shown in FAULT_STATUSES and server.fault is not None:
        body["fault"] = _fault(server, rights)
    if rights.extended:
        body.update(_extended(server), **{"OS-EXT-SRV-ATTR:user_data": call.context.user_data(server.user_data)})
    elif call.version >= v2_090_servers.HOSTNAME_FOR_ALL:
        body["OS-EXT-SRV-ATTR:hostname"] = server.hostname
    if rights.host_status == "all" or (rights.host_status == "unknown" and host_status == "UNKNOWN"):
        body["host_status"] = host_status
    return body


def _fault(server: Server, rights: Rights) -> JsonObject:
    fault = server.fault
    assert fault is not None
    shown: JsonObject = {"code": fault.code, "created": seconds(fault.created_at), "message": fault.message}
    if fault.details and (rights.admin or fault.code != 500):
        shown["details"] = fault.details
    return shown


def _extended(server: Server) -> JsonObject:
    return {
        "OS-EXT-SRV-ATTR:host": server.host,
        "OS-EXT-SRV-ATTR:instance_name": f"guest-{server.id}",
        "OS-EXT-SRV-ATTR:hypervisor_hostname": server.node,
        "OS-EXT-SRV-ATTR:hostname": server.hostname,
        "OS-EXT-SRV-ATTR:kernel_id": server.kernel_id,
        "OS-EXT-SRV-ATTR:launch_index": server.launch_index,
        "OS-EXT-SRV-ATTR:ramdisk_id": server.ramdisk_id,
        "OS-EXT-SRV-ATTR:reservation_id": server.reservation_id,
        "OS-EXT-SRV-ATTR:root_device_name": server.root_device,
    }


def _image(call: AnyCall, server: Server) -> Any:
    if not server.image:
        return ""
    return {
        "id": server.image,
        "links": [{"rel": "bookmark", "href": call.bookmark_link(f"images/{server.image}")}],
        "properties": server.image_properties,
    }


def rendered_rows(call: AnyCall, page: ServerPage, rights: Rights, statuses: Mapping[str, str]) -> list[bytes]:
    """Rows of `/servers/detail`, as JSON; a row is rendered once per state, version and rights.

    Missing rows are carried down together: one walk of the version changes for the whole page.
    """
    cache, seen_by = call.context.rendered_rows, (call.url_project, call.legacy, call.version, rights)
    keys: list[RowKey] = []
    for row in page.rows:
        host_status = statuses.get(row.host or "", "")
        keys.append((row.id, row.mark, page.tasks.get(row.id), host_status, seen_by))
    shown = cache.find(keys)
    missing = [(key, row) for key, row in zip(keys, page.rows, strict=True) if key not in shown]
    if missing:
        anywhere = dataclasses.replace(call, base_url=cache.placeholder)
        rows = [full(anywhere, page.shown(row), rights, statuses.get(row.host or "", "")) for _, row in missing]
        older = call.bridge.carry_down({"servers": rows})["servers"]
        made = {key: write_json(each) for (key, _), each in zip(missing, older, strict=True)}
        cache.add(made)
        shown.update(made)
    placeholder, base_url = cache.placeholder.encode(), write_json(call.base_url)[1:-1]
    return [shown[key].replace(placeholder, base_url) for key in keys]
