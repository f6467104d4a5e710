"""The metadata service in a whole cloud: behind Neutron's proxy and by address; the password; what it costs."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from tests.cloud.conftest import Running, Start, a_config

from moorage.main.config import FlatPoolConfig, Hosts, Listen, NetworkConfig
from moorage.main.config_guests import MetadataConfig
from moorage.main.local_cluster.ports import free_ports
from moorage.main.metadata import make_metadata
from moorage.main.up import configured, parser
from moorage.model.errors import Unavailable
from moorage.model.flat_network import flat_id

SECRET = "between the proxy and us"
SCRIPT = base64.b64encode(b"#!/bin/sh\n").decode()
OFFICE = NetworkConfig(
    backend="flat",
    pools=(
        FlatPoolConfig("office", "cell1", "10.1.0.0/29", dns=("10.9.9.9",)),
        FlatPoolConfig("office", "cell2", "10.2.0.0/29", dns=("10.9.9.9",)),
    ),
)


def signed(server: str, project: str, secret: str = SECRET) -> dict[str, str]:
    """As Neutron's metadata agent signs."""
    signature = hmac.new(secret.encode(), server.encode(), hashlib.sha256).hexdigest()
    return {
        "X-Instance-ID": server,
        "X-Tenant-ID": project,
        "X-Instance-ID-Signature": signature,
        "X-Forwarded-For": "10.0.0.9",
    }


@asynccontextmanager
async def service(running: Running, client: tuple[str, int] = ("127.0.0.1", 40000)) -> AsyncIterator[httpx.AsyncClient]:
    """The service over this cloud's databases, asked from an address of the test's choice."""
    region = running.cloud.region
    app = make_metadata(
        running.config, region.databases, region.clients.network, region.clients.vendor_data, region.seals
    )
    way = httpx.ASGITransport(app, client=client)
    async with httpx.AsyncClient(transport=way, base_url="http://169.254.169.254") as guest:
        yield guest


@pytest.fixture
async def proxied(start: Start) -> AsyncIterator[Running]:
    async with start(metadata=MetadataConfig(shared_secret=SECRET), hosts=Hosts(count=2)) as running:
        yield running


async def test_a_guest_reads_both_trees(proxied: Running) -> None:
    server = await proxied.admin.active("Web One", user_data=SCRIPT, metadata={"role": "web"})
    who = signed(server["id"], server["tenant_id"])
    async with service(proxied) as guest:
        assert (await guest.get("/")).text.splitlines()[-2:] == ["2009-04-04", "latest"]

        async def read(path: str) -> str:
            reply = await guest.get(path, headers=who)
            assert reply.status_code == 200, (path, reply.text)
            return reply.text

        assert (await read("/openstack")).splitlines()[-1] == "latest"
        assert "network_data.json" in await read("/openstack/latest/")
        assert await read("/openstack/2012-08-10") == "meta_data.json\nuser_data"
        reply = await guest.get("/openstack/latest/meta_data.json", headers=who)
        assert reply.headers["content-type"] == "application/json"
        answer = reply.json()
        assert (answer["uuid"], answer["meta"], answer["hostname"]) == (
            server["id"],
            {"role": "web"},
            "web-one.novalocal",
        )
        assert "admin_pass" not in answer
        network = (await guest.get("/openstack/latest/network_data.json", headers=who)).json()
        (address,) = server["addresses"]["private"]
        assert network["links"][0]["ethernet_mac_address"] == address["OS-EXT-IPS-MAC:mac_addr"]
        assert network["networks"][0]["type"] == "ipv4_dhcp"
        assert (await guest.get("/openstack/latest/vendor_data2.json", headers=who)).json() == {"static": {}}
        assert await read("/openstack/latest/user_data") == "#!/bin/sh\n"
        assert await read("/latest/user-data") == await read("/ec2/latest/user-data") == "#!/bin/sh\n"
        assert "public-keys" not in await read("/latest/meta-data/")
        assert await read("/latest/meta-data/local-ipv4") == address["addr"]
        assert await read("/latest//meta-data/placement/availability-zone/") == "nova"
        assert await read("/latest/meta-data/local-hostname") == "web-one.novalocal"
        for path in (
            "/nothing",
            "/openstack/2031-01-01",
            "/openstack/latest/nothing",
            "/openstack/content/0000",
            "/latest/meta-data/x/y",
        ):
            assert (await guest.get(path, headers=who)).status_code == 404, path
        assert (await guest.head("/openstack/latest/user_data", headers=who)).status_code == 200
        assert (await guest.put("/openstack/latest/user_data", headers=who)).status_code == 400


async def test_metadata_requests_must_be_signed(proxied: Running) -> None:
    server = await proxied.admin.active("a")
    other = "11111111-2222-3333-4444-555555555555"
    path = "/openstack/latest/meta_data.json"
    async with service(proxied) as guest:
        for name in ("X-Instance-ID", "X-Tenant-ID", "X-Instance-ID-Signature"):
            who = signed(server["id"], server["tenant_id"])
            del who[name]
            reply = await guest.get(path, headers=who)
            assert (reply.status_code, name in reply.text) == (400, True)
        twice = [*signed(server["id"], server["tenant_id"]).items(), ("X-Instance-ID", other)]
        assert (await guest.get(path, headers=twice)).status_code == 400
        for wrong in (
            signed(server["id"], server["tenant_id"], "another secret"),
            signed(server["id"], server["tenant_id"], ""),
            {**signed(other, server["tenant_id"]), "X-Instance-ID": server["id"]},
            {**signed(server["id"], server["tenant_id"]), "X-Instance-ID-Signature": "é"},
        ):
            reply = await guest.get(path, headers={name: value.encode() for name, value in wrong.items()})
            assert reply.status_code == 403, reply.text
        assert (await guest.get(path, headers=signed(other, server["tenant_id"]))).status_code == 404
        assert (await guest.get(path, headers=signed(server["id"], "another project"))).status_code == 404
        assert (await guest.get(path, headers=signed(server["id"], server["tenant_id"]))).status_code == 200
    await proxied.admin.gone(server["id"])
    async with service(proxied) as guest:
        assert (await guest.get(path, headers=signed(server["id"], server["tenant_id"]))).status_code == 404


async def test_twenty_requests_cost_one_lookup(proxied: Running) -> None:
    server = await proxied.admin.active("a")
    who = signed(server["id"], server["tenant_id"])
    meter = proxied.cloud.region.meter

    def asked() -> int:
        return sum(count for (_, label), count in meter.statements.items() if label == "metadata")

    async with service(proxied) as guest:
        await guest.get("/latest/meta-data/hostname", headers=who)
        first = asked()
        assert first == 2  # where it is, and its record
        paths = [f"/latest/meta-data/{name}" for name in ("hostname", "local-ipv4", "instance-id", "placement/")] * 5
        await asyncio.gather(*(guest.get(path, headers=who) for path in paths))
        assert asked() == first


async def test_an_outage_of_the_network_service_is_shown_and_ends(proxied: Running) -> None:
    server = await proxied.admin.active("a")
    who = signed(server["id"], server["tenant_id"])
    region, now = proxied.cloud.region, [0.0]
    network = region.clients.network
    out = [True]

    class Out(type(network)):  # type: ignore[misc]
        def __init__(self) -> None: ...

        async def network(self, name: str) -> Any:
            if out[0]:
                raise Unavailable("the network service is out")
            return await network.network(name)

    app = make_metadata(proxied.config, region.databases, Out(), None, region.seals)
    app._guests._networks._clock = lambda: now[0]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://guest") as guest:
        reply = await guest.get("/openstack/latest/network_data.json", headers=who)
        assert (reply.status_code, "retry-after" in reply.headers) == (503, True)
        assert (await guest.get("/openstack/latest/meta_data.json", headers=who)).status_code == 200
        out[0] = False
        answer = await guest.get("/openstack/latest/network_data.json", headers=who)
        assert answer.status_code == 200
        out[0], now[0] = True, 3600.0
        assert (await guest.get("/openstack/latest/network_data.json", headers=who)).json() == answer.json()


async def test_a_guest_stores_its_password_once(proxied: Running) -> None:
    server = await proxied.admin.active("a")
    who, path = signed(server["id"], server["tenant_id"]), "/openstack/latest/password"
    async with service(proxied) as guest:
        assert (await guest.get(path, headers=who)).text == ""
        assert (await guest.post(path, headers=who, content=b"x" * 4097)).status_code == 400
        assert (await guest.post(path, headers=who, content=b"\xff\xfe")).status_code == 400
        assert (await guest.delete(path, headers=who)).status_code == 400
        assert (await guest.post("/openstack/2012-08-10/password", headers=who, content=b"x")).status_code == 400
        password = base64.b64encode(b"p" * 512).decode()
        many = await asyncio.gather(*(guest.post(path, headers=who, content=password) for _ in range(5)))
        assert sorted(each.status_code for each in many) == [200, 409, 409, 409, 409]
        async with service(proxied) as elsewhere:
            assert (await elsewhere.post(path, headers=who, content="another")).status_code == 409
        assert (await guest.get(path, headers=who)).text == password
    route = f"/servers/{server['id']}/os-server-password"
    assert (await proxied.admin.compute("GET", route)).json() == {"password": password}
    assert (await proxied.admin.compute("DELETE", route)).status_code == 204
    assert (await proxied.admin.compute("GET", route)).json() == {"password": ""}
    async with service(proxied) as guest:
        assert (await guest.post(path, headers=who, content="another")).status_code == 200


async def test_flat_networks_identify_guests_by_address(start: Start) -> None:
    metadata = MetadataConfig(trusted_proxies=("10.200.0.1",))
    async with start(network=OFFICE, metadata=metadata, hosts=Hosts(count=2)) as running:
        server = await running.admin.active("a", networks=[{"uuid": flat_id("office")}])
        (address,) = (each["addr"] for each in server["addresses"]["office"])
        async with service(running, (address, 40000)) as guest:
            answer = (await guest.get("/openstack/latest/meta_data.json")).json()
            assert answer["uuid"] == server["id"]
            network = (await guest.get("/openstack/latest/network_data.json")).json()
            assert (network["networks"][0]["type"], network["networks"][0]["ip_address"]) == ("ipv4", address)
            assert network["services"] == [{"type": "dns", "address": "10.9.9.9"}]
        async with service(running, (f"::ffff:{address}", 40000)) as guest:
            assert (await guest.get("/latest/meta-data/hostname")).text == "a.novalocal"
        nobodys = next(each for each in ("10.1.0.5", "10.1.0.6") if each != address)
        async with service(running, (nobodys, 40000)) as stranger:
            for headers in ({}, {"X-Forwarded-For": address}, signed(server["id"], server["tenant_id"])):
                assert (await stranger.get("/latest/meta-data/hostname", headers=headers)).status_code == 404
        async with service(running, ("10.200.0.1", 40000)) as proxy:
            told_by = {"X-Forwarded-For": f"1.2.3.4, {address}"}
            assert (await proxy.get("/latest/meta-data/hostname", headers=told_by)).text == "a.novalocal"
            assert (await proxy.get("/latest/meta-data/hostname")).status_code == 404


async def test_the_whole_cloud_serves_metadata_on_its_own_port(start: Start, tmp_path: Any) -> None:
    api = msgspec.structs.replace(a_config(tmp_path).api, metadata=Listen(port=free_ports(1)[0]))
    async with start(metadata=MetadataConfig(shared_secret=SECRET), hosts=Hosts(count=1), api=api) as running:
        server = await running.admin.active("a")
        url = f"{running.config.api.metadata.url}/latest/meta-data/hostname"
        reply = await running.admin.http.get(url, headers=signed(server["id"], server["tenant_id"]))
        assert (reply.status_code, reply.text) == (200, "a.novalocal")


def test_ports_of_optional_services() -> None:
    assert configured(parser().parse_args([])).api.metadata.port == 8775
    assert configured(parser().parse_args(["--port-shift", "100"])).api.metadata.port == 8875
    assert configured(parser().parse_args(["--metadata-port", "0"])).api.metadata.port == 0
