"""Config drives in a whole cloud: the simulated guest's image is read as a guest would read it."""

import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pycdlib
import pytest
import pytest_asyncio
from sqlalchemy import text
from tests.cloud.conftest import Running, Shared, Start

from moorage.main.config import Hosts, Listen
from moorage.main.config_guests import MetadataConfig, VendorTarget
from moorage.main.http_servers import HttpServer
from moorage.main.local_cluster.ports import free_ports
from moorage.model.ids import ServerId
from moorage_testing.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBPvpyYTIKHhKDGDB8G1DPrYZ4mNf0pYNLtkuSJUsUsv somebody"
SCRIPT = base64.b64encode(b"#!/bin/sh\n").decode()


def files_on(running: Running, server: dict[str, Any]) -> dict[str, bytes] | None:
    """What the guest reads on its config drive; None: it has none."""
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    image = driver.config_drive(ServerId(server["id"]))
    if image is None:
        return None
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(image))
    found: dict[str, bytes] = {}
    for folder, _, names in iso.get_rock_ridge_facade().walk("/"):
        for name in names:
            content = io.BytesIO()
            iso.get_file_from_iso_fp(content, rr_path=f"{folder.rstrip('/')}/{name}")
            found[f"{folder.strip('/')}/{name}"] = content.getvalue()
    iso.close()
    return found


def latest(tree: dict[str, bytes] | None, name: str = "meta_data.json") -> Any:
    assert tree is not None
    return json.loads(tree[f"openstack/latest/{name}"])


async def test_a_guest_reads_its_metadata_from_the_drive(running: Running) -> None:
    key = await running.admin.compute(
        "POST", "/os-keypairs", {"keypair": {"name": "mine", "public_key": PUBLIC, "type": "ssh"}}
    )
    assert key.status_code == 201, key.text
    server = await running.admin.active(
        "Web One",
        config_drive=True,
        user_data=SCRIPT,
        key_name="mine",
        metadata={"role": "web"},
        adminPass="very secret",
    )
    assert server["config_drive"] == "True"
    tree = files_on(running, server)
    told = latest(tree)
    assert told["uuid"] == server["id"]
    assert told["hostname"] == "web-one.novalocal"
    assert told["meta"] == {"role": "web"}
    assert told["project_id"] == server["tenant_id"]
    assert told["availability_zone"] == "nova"
    assert told["keys"][0]["name"] == "mine"
    assert told["admin_pass"] == "very secret"
    assert tree is not None
    assert tree["openstack/latest/user_data"] == b"#!/bin/sh\n"
    network = latest(tree, "network_data.json")
    assert network["links"][0]["ethernet_mac_address"] == server["addresses"]["private"][0]["OS-EXT-IPS-MAC:mac_addr"]
    assert network["networks"][0]["type"] == "ipv4_dhcp"
    host = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    assert host.spec_of(ServerId(server["id"])).drive is None
    await running.admin.gone(server["id"])
    assert host.config_drive(ServerId(server["id"])) is None


async def test_a_server_without_a_drive_has_none(running: Running) -> None:
    server = await running.admin.active("a")
    assert (server["config_drive"], files_on(running, server)) == ("", None)


async def test_a_password_waits_sealed(running: Running) -> None:
    """Between the order and the host it is in a journal, which people may copy."""
    await running.admin.active("a", config_drive=True, adminPass="very secret")
    region = running.cloud.region.databases.region
    rows = await region.read(lambda tx: [str(tuple(row)) for row in tx.rows(text("SELECT * FROM operations"))])
    assert any("sealed_password" in row for row in rows)
    assert not any("very secret" in row for row in rows)


async def test_force_config_drive_gives_every_server_a_drive(start: Start, tmp_path: Path) -> None:
    (tmp_path / "vendor.json").write_text('{"region": "here"}')
    metadata = MetadataConfig(force_config_drive=True, dhcp_domain="", vendor_data_file=str(tmp_path / "vendor.json"))
    async with start(metadata=metadata, hosts=Hosts(count=1)) as running:
        server = await running.admin.active("a")
        assert server["config_drive"] == "True"
        tree = files_on(running, server)
        assert latest(tree)["hostname"] == "a"
        assert latest(tree, "vendor_data.json") == {"region": "here"}
        assert latest(tree, "vendor_data2.json") == {"static": {"region": "here"}}


async def test_an_old_host_adds_the_ports_that_it_made(start: Start) -> None:
    async with start(hosts=Hosts(count=2, levels=(1,))) as running:
        server = await running.admin.active("a", config_drive=True)
        network = latest(files_on(running, server), "network_data.json")
        assert (
            network["links"][0]["ethernet_mac_address"] == server["addresses"]["private"][0]["OS-EXT-IPS-MAC:mac_addr"]
        )


class Vendor:
    """A vendor data service that says what it is told to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.fails = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.asked.append(json.loads(body))
        self.tokens += [value.decode() for name, value in scope["headers"] if name == b"x-auth-token"]
        status, said = (500, b"broken") if self.fails else (200, b'{"rack": 7}')
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": said})


@pytest.mark.parametrize("fatal", [False, True])
async def test_vendor_data_services(start: Start, fatal: bool) -> None:
    vendor, listen = Vendor(), Listen(port=free_ports(1)[0])
    door = HttpServer("vendor", listen)
    await door.open(vendor)
    target = VendorTarget("inventory", f"{listen.url}/say")
    metadata = MetadataConfig(vendor_data_targets=(target,), vendor_data_failure_fatal=fatal)
    try:
        async with start(metadata=metadata, hosts=Hosts(count=1)) as running:
            server = await running.admin.active("a", config_drive=True, metadata={"role": "web"})
            assert latest(files_on(running, server), "vendor_data2.json")["inventory"] == {"rack": 7}
            (asked,) = vendor.asked
            assert (asked["instance-id"], asked["metadata"]) == (server["id"], {"role": "web"})
            assert "admin" in asked["boot-roles"].split(",")
            assert vendor.tokens
            vendor.fails = True
            if fatal:
                waiting = await running.admin.boot("b", config_drive=True)
                await until(lambda: len(vendor.asked) >= 3)
                shown = await running.admin.server(waiting)
                assert shown is not None
                assert shown["status"] == "BUILD"
                vendor.fails = False
                assert (await running.admin.settled(waiting))["status"] == "ACTIVE"
            server = await running.admin.active("c", config_drive=True)
            said = latest(files_on(running, server), "vendor_data2.json")
            assert said["inventory"] == ({"rack": 7} if fatal else {})
    finally:
        await door.close()


async def test_tagged_disks_are_listed_with_their_volumes(running: Running) -> None:
    image = await running.admin.id_of("image", "tiny")
    root = {
        "source_type": "image", "destination_type": "volume", "uuid": image, "volume_size": 1, "boot_index": 0,
        "delete_on_termination": True, "tag": "root",
    }  # fmt: skip
    server = await running.admin.active("a", config_drive=True, imageRef="", block_device_mapping_v2=[root])
    (disk,) = latest(files_on(running, server))["devices"]
    (volume,) = server["os-extended-volumes:volumes_attached"]
    assert (disk["type"], disk["tags"], disk["serial"]) == ("disk", ["root"], volume["id"])
    await running.admin.gone(server["id"])
