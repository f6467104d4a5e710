"""A real Neutron reports to a separate `moorage placement`, which a proxy serves below `/placement`.

Its hosts' providers are made as any compute service makes them; host aggregates are those of a Moorage beside it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.types import Receive, Scope, Send
from tests.helpers.real_services_cloud import ServicesClient, moorage_with_real_services
from tests.real.test_reporting import AGENT, Routed, assert_reported, report, state, tree

from moorage.main.config import ApiConfig, Hosts, Listen
from moorage.main.http_servers import HttpServer
from moorage.main.local_cluster.ports import free_port
from moorage.model.private_files import private_file
from moorage_testing.process import moorage_process
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real

HOSTS = ("host1", "host2", "host3", "host4")
"""All that agents of tests before this one may have reported a wire of: Neutron ties each of them that has this wire."""
PASSED_ON = {"x-auth-token", "openstack-api-version", "content-type", "accept", "x-openstack-request-id"}
FOLDED = {"transfer-encoding", "content-length", "date"}


class Below:
    """`/placement/…` here is `/…` there."""

    def __init__(self, url: str) -> None:
        self._there = httpx.AsyncClient(base_url=url, timeout=120)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["raw_path"].decode().removeprefix("/placement") or "/"
        target = path + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name.decode() in PASSED_ON}
        reply = await self._there.request(scope["method"], target, content=body, headers=headers)
        listed = [(name.lower(), value) for name, value in reply.headers.raw if name.lower().decode() not in FOLDED]
        await send({"type": "http.response.start", "status": reply.status_code, "headers": listed})
        await send({"type": "http.response.body", "body": reply.content})

    async def close(self) -> None:
        await self._there.aclose()


@pytest.fixture
async def admin(real_stack: Stack, tmp_path: Path) -> AsyncIterator[ServicesClient]:
    """The way to all services; `placement` is the one alone, where the catalog says it is."""
    site, login = real_stack.site, real_stack.logins["moorage"]
    file = tmp_path / "placement.toml"
    private_file(file).write_text(
        f'data_dir = "{tmp_path}/alone"\n[identity]\nurl = "{real_stack.identity_url}"\n'
        f'[service_user]\nuser = "{login.user}"\npassword = "{login.password}"\nproject = "{login.project}"\n'
    )
    with moorage_process("placement", "--config", str(file)) as url:
        below = Below(url)
        listen = Listen(port=site.our_placement_port)
        door = HttpServer("placement", listen)
        await door.open(below)
        compute = moorage_with_real_services(
            real_stack, tmp_path / "compute", Hosts(count=len(HOSTS)), compute_port=site.our_compute_port,
            placement_port=free_port(), reported=True,
        )  # fmt: skip
        async with compute as config:
            api: ApiConfig = msgspec.structs.replace(config.api, placement=listen)
            context = ServicesClient(real_stack, msgspec.structs.replace(config, api=api), "admin")
            yield context
            await context.close()
        await door.close()
        await below.close()


async def test_neutron_reports_segments_and_bandwidth(admin: ServicesClient) -> None:
    assert (await admin.ask("placement", "GET", "/")).json()["versions"][0]["max_version"] == "1.39"
    for host in HOSTS:
        await admin("placement", "POST", "/resource_providers", {"name": host})
    await assert_reported(admin, state("host1", "physnet1", "physnet4", kbps=10_000_000, kpps=2_000))
    bridge = (await tree(admin, "host1"))[f"host1:{AGENT}:br-physnet4"]
    assert bridge["parent"] == f"host1:{AGENT}"
    assert {"CUSTOM_PHYSNET_PHYSNET4", "CUSTOM_VNIC_TYPE_NORMAL"} <= bridge["traits"]
    assert bridge["inventories"]["NET_BW_IGR_KILOBIT_PER_SEC"]["total"] == 5_000_000

    for host, wire in (("host2", "physnet2"), ("host3", "physnet1"), ("host4", "physnet2")):
        await report(admin, state(host, wire))
    provider = {"provider:network_type": "vlan", "provider:physical_network": "physnet4"}
    made = await admin("network", "POST", "/networks", {"network": {"name": "alone", "shared": True, **provider}})
    network = made["network"]["id"]
    segment = (await admin("network", "GET", f"/segments?network_id={network}"))["segments"][0]["id"]
    routed = Routed(admin, network, segment)
    try:
        subnet = await routed.subnet("10.50.0.0/28", dhcp=False)
        await routed.until_addresses((14, 1))
        shown = await admin("placement", "GET", f"/resource_providers/{segment}")
        assert shown["name"] == f"Neutron segment id {segment}"
        aggregate = await routed.aggregate()
        assert aggregate["hosts"] == ["host1"]
        assert (await admin("placement", "GET", f"/resource_providers/{segment}/aggregates"))["aggregates"] == [
            aggregate["uuid"]
        ]
        await admin("network", "DELETE", f"/subnets/{subnet}")
        await routed.until_addresses(404)
    finally:
        await admin("network", "DELETE", f"/networks/{network}")
