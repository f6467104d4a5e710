"""`moorage up` with a real Cinder, killed with -9 during boots from volumes, attaches and detaches."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cloud.test_snapshots import until
from tests.helpers.real_cinder_audit import Cinder
from tests.helpers.real_cinder_cloud import RealPerson, as_seen, new_login, tiny_image

from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.real_services.fixtures import RealService
from moorage_testing.real_services.stack import Stack
from moorage_testing.up_process import UpProcess

pytestmark = pytest.mark.real


def beside(stack: Stack) -> str:
    """The tables of its configuration that name the neighbours."""
    login = stack.logins["moorage"]
    return (
        f'[identity]\nurl = "{stack.identity_url}"\n[image]\nurl = "{stack.image_url}"\n'
        f'[volume]\nurl = "{stack.volume_url}"\n[network]\nbackend = "flat"\n'
        f'[service_user]\nuser = "{login.user}"\npassword = "{login.password}"\nproject = "{login.project}"\n'
    )


async def test_killed_with_9(real_volume: RealService, tmp_path: Path) -> None:
    """What was accepted is there; whatever else there is, Cinder, records and guests agree on it, and nothing is exported to nobody."""
    stack, up = real_volume.stack, UpProcess(tmp_path, beside(real_volume.stack))
    cinder = Cinder(stack)
    await cinder.empty()
    up.start()
    try:
        async with RealPerson(as_seen(up.config, stack), stack, new_login(stack, "harbourmaster", "admin")) as admin:
            await tiny_image(admin)
            servers, disks = (
                [await admin.active(f"s{n}") for n in range(2)],
                [await volume(admin, cinder) for _ in range(4)],
            )
            for server, disk in zip(servers, disks[:2], strict=True):
                assert (await attach(admin, server["id"], disk)).is_success
            for disk in disks[:2]:
                await cinder_says(cinder, disk, "in-use")
            booting = [asyncio.create_task(boot(admin)) for _ in range(4)]
            pairs = list(zip(servers, disks[2:], disks[:2], strict=True))
            moving = [asyncio.create_task(attach(admin, server["id"], disk)) for server, disk, _ in pairs]
            promised = [await each for each in booting[:2]]
            moving += [asyncio.create_task(detach(admin, server["id"], disk)) for server, _, disk in pairs]
            await asyncio.wait(moving, timeout=0.2)
            up.end(signal.SIGKILL)
            rest = await asyncio.gather(*booting[2:], *moving, return_exceptions=True)
            promised += [each for each in rest if isinstance(each, str)]
            up.start()
            found = [await admin.settled(each) for each in promised]
            assert [(each["id"], each.get("fault")) for each in found if each["status"] != "ACTIVE"] == []
            seen = await nothing_leaked(admin.config, admin)
            exported = {each.partition("@")[0].removeprefix("volume-") for each in cinder.exports()}
            assert exported == {disk for server in seen.servers.values() for disk in server.volumes}
            for each in seen.servers:
                await admin.gone(each)
            await nothing_leaked(admin.config, admin)
            assert (await cinder.every("attachments"), cinder.exports()) == ([], [])
    finally:
        if up.process is not None:
            up.end(signal.SIGKILL)
        await cinder.empty()
        await cinder.close()


async def volume(admin: RealPerson, cinder: Cinder) -> str:
    made = str((await admin.volume("POST", "/volumes", {"volume": {"size": 1}})).json()["volume"]["id"])
    await cinder_says(cinder, made, "available")
    return made


async def cinder_says(cinder: Cinder, volume: str, wanted: str) -> None:
    await until(lambda: cinder.ok("GET", f"/volumes/{volume}"), lambda seen: seen["volume"]["status"] == wanted)


async def boot(admin: RealPerson) -> str:
    root: dict[str, Any] = {"source_type": "image", "destination_type": "volume", "boot_index": 0, "volume_size": 1}
    root |= {"uuid": await admin.id_of("image", "tiny"), "delete_on_termination": True}
    return await admin.boot("v", imageRef="", block_device_mapping_v2=[root])


async def attach(admin: RealPerson, server: str, disk: str) -> Any:
    path = f"/servers/{server}/os-volume_attachments"
    return await admin.compute("POST", path, {"volumeAttachment": {"volumeId": disk}})


async def detach(admin: RealPerson, server: str, disk: str) -> Any:
    return await admin.compute("DELETE", f"/servers/{server}/os-volume_attachments/{disk}")
