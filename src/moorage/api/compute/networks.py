"""Below 2.36: networks as the old network showed them, of which only the id and the label are left; and the pools.

`/os-networks` and `/os-tenant-networks` show what the user may see at the network service.  All other fields of the first
are null, and the address range of the second is the word None: so Nova answers since the old network is gone.
"""

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.service_proxy import network_of
from moorage.api.routes import Params, Route
from moorage.clients.http import Json
from moorage.model.errors import NotFound
from moorage.model.json_types import JsonObject

NULLS = ("cidr", "netmask", "gateway", "broadcast", "dns1", "dns2", "cidr_v6", "gateway_v6", "netmask_v6")
NULLS_FOR_ADMINISTRATORS = (
    "created_at", "updated_at", "deleted_at", "deleted", "injected", "bridge", "vlan", "vpn_public_address",
    "vpn_public_port", "vpn_private_address", "dhcp_start", "project_id", "host", "bridge_interface", "multi_host",
    "priority", "rxtx_base", "mtu", "dhcp_server", "enable_dhcp", "share_address",
)  # fmt: skip
EXTERNAL = {"router:external": "True"}
POOLS = "os_compute_api:os-floating-ip-pools"


def _network(call: AnyCall, network: Json) -> JsonObject:
    nulls = NULLS + NULLS_FOR_ADMINISTRATORS if call.is_admin else NULLS
    return {"id": network["id"], "label": network["name"], **dict.fromkeys(nulls)}


def _tenant_network(call: AnyCall, network: Json) -> JsonObject:
    return {"id": network["id"], "cidr": "None", "label": network["name"]}


async def _network_row(call: AnyCall) -> Json:
    try:
        return await network_of(call).show_as(call.token, "networks", call.path["id"])
    except NotFound as missing:
        raise NotFound("Network not found") from missing


async def index(call: Call[None]) -> Response:
    call.require("os_compute_api:os-networks:list")
    rows = await network_of(call).list_as(call.token, "networks")
    return Response(200, {"networks": [_network(call, row) for row in rows]})


async def show(call: Call[None]) -> Response:
    call.require("os_compute_api:os-networks:show")
    return Response(200, {"network": _network(call, await _network_row(call))})


async def tenant_index(call: Call[None]) -> Response:
    call.require("os_compute_api:os-tenant-networks:list")
    rows = await network_of(call).list_as(call.token, "networks")
    return Response(200, {"networks": [_tenant_network(call, row) for row in rows]})


async def tenant_show(call: Call[None]) -> Response:
    call.require("os_compute_api:os-tenant-networks:show")
    return Response(200, {"network": _tenant_network(call, await _network_row(call))})


async def pools(call: Call[None]) -> Response:
    call.require(POOLS, {})
    rows = await network_of(call).list_as(call.token, "networks", EXTERNAL)
    return Response(200, {"floating_ip_pools": [{"name": row["name"] or row["id"]} for row in rows]})


AS_ASKED = Params(strict=None)

ROUTES = (
    Route("GET", "/os-networks", index, params=AS_ASKED),
    Route("GET", "/os-networks/{id}", show, params=AS_ASKED),
    Route("GET", "/os-tenant-networks", tenant_index, params=AS_ASKED),
    Route("GET", "/os-tenant-networks/{id}", tenant_show, params=AS_ASKED),
    Route("GET", "/os-floating-ip-pools", pools, params=AS_ASKED),
)
