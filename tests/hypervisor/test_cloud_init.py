"""A cloud image with systemd and cloud-init reads its metadata from a config drive and from the metadata service.

It takes minutes, emulated, so it has a target of its own (`make test-hypervisor-cloud-init`).
"""

import asyncio
import base64
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.hypervisor.test_guest_cloud import made
from tests.hypervisor.test_up import HOST, REAL, log_in

from moorage.main.local_cluster.ports import free_ports
from moorage_testing.api_user import Person
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.up_process import UpProcess

pytestmark = [pytest.mark.hypervisor, pytest.mark.cloud_init]

BOOTS_WITHIN_S = 1_500.0
"""Emulated, on a machine that is busy with other things; idle it is two to three minutes."""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICkaq1923GFxFqdOQAxOcHZsD2eDJIotL3wYFccdPa6A one@test"
USER_DATA = """#cloud-config
write_files:
  - path: /etc/told
    content: by user data
runcmd:
  - echo "TEST key $(cut -d' ' -f2 /home/debian/.ssh/authorized_keys)" >/dev/console
  - echo "TEST file $(cat /etc/told)" >/dev/console
  - echo "TEST host $(hostname)" >/dev/console
  - echo "TEST addresses $(hostname -I)" >/dev/console
  - echo "TEST mtu $(cat /sys/class/net/e*/mtu)" >/dev/console
"""


async def console_of(person: Person, server: str, words: str) -> str:
    ends = time.monotonic() + BOOTS_WITHIN_S
    while True:
        reply = await person.compute("POST", f"/servers/{server}/action", {"os-getConsoleOutput": {}})
        text = str(reply.json()["output"]) if reply.is_success else ""
        if words in text:
            return text
        assert time.monotonic() < ends, text[-6000:]
        await asyncio.sleep(1.0)


async def upload(person: Person, path: Path) -> str:
    images = f"{person.config.api.image.url}/v2/images"
    asked = {"name": "cloud", "disk_format": "qcow2", "container_format": "bare", "visibility": "public", "min_disk": 2}
    created = await person.http.post(images, json=asked)
    created.raise_for_status()
    image = str(created.json()["id"])
    data, headers = await asyncio.to_thread(path.read_bytes), {"Content-Type": "application/octet-stream"}
    (await person.http.put(f"{images}/{image}/file", content=data, headers=headers, timeout=300)).raise_for_status()
    return image


async def test_cloud_init_applies_its_metadata(tmp_path: Path) -> None:
    up = UpProcess(tmp_path, REAL)
    [up.metadata_port] = free_ports(1)
    room = tmp_path / "data" / "hosts" / HOST
    await asyncio.to_thread(up.start)
    person = await log_in(up)
    try:
        image = await upload(person, Path(os.environ["MOORAGE_TEST_CLOUD_IMAGE"]))
        body = {"name": "small", "ram": 512, "vcpus": 1, "disk": 3}
        flavor = str((await person.compute("POST", "/flavors", {"flavor": body})).json()["flavor"]["id"])
        assert (
            await person.compute("POST", "/os-keypairs", {"keypair": {"name": "one", "public_key": KEY}})
        ).is_success
        network = (await made(person, "network", name="both", mtu=1400))["id"]
        await made(person, "subnet", network_id=network, cidr="10.31.0.0/24", ip_version=4)
        slaac = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
        await made(person, "subnet", network_id=network, cidr="fd31::/64", ip_version=6, **slaac)
        asked = {
            "imageRef": image, "flavorRef": flavor, "key_name": "one", "networks": [{"uuid": network}],
            "user_data": base64.b64encode(USER_DATA.encode()).decode(),
        }  # fmt: skip
        for name, drive, source in (
            ("driven", True, "DataSourceConfigDrive"),
            ("asking", False, "DataSourceOpenStack"),
        ):
            server = (await person.active(name, **asked, config_drive=drive))["id"]
            text = await console_of(person, server, "GUEST: cloud-init finished from")
            addresses = {each["addr"] for each in await _addresses(person, server)}
            lines = {
                words[1]: words[2]
                for each in text.splitlines()
                if len(words := each.strip().split(" ", 2)) == 3 and words[0] == "TEST"
            }
            assert source in text.partition("GUEST: cloud-init finished from")[2].splitlines()[0]
            assert lines["key"] == KEY.split()[1]
            assert lines["file"] == "by user data"
            assert lines["host"].split(".")[0] == name
            assert addresses == set(lines["addresses"].split())
            assert lines["mtu"] == "1400"
            await person.delete(server)
            await person.gone(server)
        assert leftovers(room, inside=("env",)) == []
    finally:
        await person.http.aclose()
        await asyncio.to_thread(up.give_up, HOST)


async def _addresses(person: Person, server: str) -> list[dict[str, Any]]:
    seen = await person.server(server)
    assert seen is not None
    found: list[dict[str, Any]] = seen["addresses"]["both"]
    return found
