"""Images of servers and shelved disks in a real Glance: disks are uploaded and downloaded, and nothing leaks."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.real_services_cloud import ServicesClient, moorage_with_real_services, until, until_server

from moorage.main.config import Hosts
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real


class _People:
    def __init__(self, stack: Stack, config: Any) -> None:
        self.stack = stack
        self.alice, self.admin = ServicesClient(stack, config, "alice"), ServicesClient(stack, config, "admin")

    async def act(self, server: str, **action: Any) -> Any:
        return await self.alice("compute", "POST", f"/servers/{server}/action", action)

    async def images(self, **filters: str) -> list[dict[str, Any]]:
        """Of everybody, as an administrator sees them."""
        query = "&".join(f"{name}={value}" for name, value in filters.items())
        return list((await self.admin("image", "GET", f"/images?{query}"))["images"])

    async def whole(self, image: str) -> dict[str, Any]:
        return await until(
            lambda: self.alice("image", "GET", f"/images/{image}"), lambda seen: seen["status"] == "active"
        )

    async def free(self, server: str) -> dict[str, Any]:
        async def shown() -> dict[str, Any]:
            return dict((await self.alice("compute", "GET", f"/servers/{server}"))["server"])

        return await until(shown, lambda seen: seen["OS-EXT-STS:task_state"] is None)


async def test_snapshot_backup_and_shelve(real_stack: Stack, tmp_path: Path) -> None:
    async with moorage_with_real_services(real_stack, tmp_path, Hosts(count=2)) as config:
        people = _People(real_stack, config)
        alice, admin = people.alice, people.admin
        base = await alice.upload("tiny")
        network = (await alice("network", "POST", "/networks", {"network": {"name": "images"}}))["network"]["id"]
        subnet = {"network_id": network, "ip_version": 4, "cidr": "10.99.0.0/24"}
        await alice("network", "POST", "/subnets", {"subnet": subnet})
        flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
        order = {"name": "one", "imageRef": base, "flavorRef": flavor, "networks": [{"uuid": network}]}
        server = (await alice("compute", "POST", "/servers", {"server": order}))["server"]["id"]
        before = await until_server(alice, server, "ACTIVE")

        made = (await people.act(server, createImage={"name": "copy", "metadata": {"why": "test"}}))["image_id"]
        copy = await people.whole(made)
        assert copy["owner"] == real_stack.logins["alice"].project_id
        assert (copy["instance_uuid"], copy["image_type"], copy["why"]) == (server, "snapshot", "test")
        assert (copy["base_image_ref"], copy["visibility"]) == (base, "private")
        original = await alice("image", "GET", f"/images/{base}")
        assert (copy["os_hash_value"], copy["disk_format"]) == (original["os_hash_value"], original["disk_format"])
        await people.free(server)

        backups: list[str] = []
        for name in ("monday", "tuesday"):
            body = {"name": name, "backup_type": "daily", "rotation": 1}
            backups.append((await people.act(server, createBackup=body))["image_id"])
            await people.whole(backups[-1])
            await people.free(server)
        await until(  # the older one goes when the server is at rest already
            lambda: people.images(image_type="backup", instance_uuid=server),
            lambda left: [each["id"] for each in left] == backups[1:],
        )

        await people.act(server, shelve=None)
        shelved = await until_server(alice, server, "SHELVED_OFFLOADED")
        assert shelved["addresses"].keys() == before["addresses"].keys()
        (port,) = (await admin("network", "GET", f"/ports?device_id={server}"))["ports"]
        assert (port["binding:host_id"], port["binding:vif_type"]) == ("", "unbound")
        assert port["device_owner"].startswith("compute:")
        (disk,) = await people.images(moorage_made_for="shelve", instance_uuid=server)
        assert disk["os_hash_value"] == original["os_hash_value"]
        await people.free(server)
        await people.act(server, unshelve=None)
        back = await until_server(alice, server, "ACTIVE")
        assert {each["addr"] for nets in back["addresses"].values() for each in nets} == {
            each["addr"] for nets in before["addresses"].values() for each in nets
        }
        (port,) = (await admin("network", "GET", f"/ports?device_id={server}"))["ports"]
        assert port["binding:host_id"]
        await until(lambda: people.images(moorage_made_for="shelve"), lambda seen: not seen)

        await alice("compute", "DELETE", f"/servers/{server}")
        await until(lambda: alice("network", "GET", f"/ports?network_id={network}"), lambda seen: not seen["ports"])
        assert not await people.images(instance_uuid=server, status="queued")
        for image in (made, backups[1], base):
            await alice("image", "DELETE", f"/images/{image}")
        await alice("network", "DELETE", f"/networks/{network}")
        await alice.close()
        await admin.close()
