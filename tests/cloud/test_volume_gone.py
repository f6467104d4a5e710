"""A volume that a server has is deleted at the volume service: no operation waits for it for ever, and it can be taken off."""

from typing import Any

from tests.cloud.conftest import Running
from tests.cloud.test_snapshots import act
from tests.cloud.test_volumes import attach, attached, becomes, detach, disks, ended, volume

RESET = {"os-reset_status": {"status": "available", "attach_status": "detached"}}


async def with_volume(running: Running) -> tuple[dict[str, Any], str]:
    server, disk = await running.admin.active("a"), await volume(running)
    assert (await attach(running, server["id"], disk)).status_code in {200, 202}
    await becomes(running, disk, "in-use")
    return server, disk


async def goes(running: Running, disk: str) -> None:
    """As operators delete a volume that hangs."""
    assert (await running.admin.volume("POST", f"/volumes/{disk}/action", RESET)).status_code == 202
    assert (await running.admin.volume("DELETE", f"/volumes/{disk}")).status_code == 202
    await becomes(running, disk, "gone")


async def done(running: Running, server: str, action: dict[str, Any]) -> dict[str, Any]:
    answer = await act(running, server, action)
    assert answer.status_code in {200, 202}, answer.text
    return await running.admin.settled(server)


async def is_deleted(running: Running, server: str) -> None:
    await running.admin.delete(server)
    await running.admin.gone(server)


async def test_a_migration_of_a_server_with_a_dead_volume_is_undone(running: Running) -> None:
    server, disk = await with_volume(running)
    await goes(running, disk)
    seen = await done(running, server["id"], {"migrate": None})
    assert (seen["status"], seen["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", server["OS-EXT-SRV-ATTR:host"])
    assert (await detach(running, server["id"], disk)).status_code == 202
    await ended(running, server["id"], "detach_volume")
    assert await attached(running, server["id"]) == []
    assert disks(running, server) == []
    assert (await done(running, server["id"], {"migrate": None}))["status"] == "VERIFY_RESIZE"
    await is_deleted(running, server["id"])


async def test_a_resize_is_reverted_without_a_dead_volume(running: Running) -> None:
    server, disk = await with_volume(running)
    assert (await done(running, server["id"], {"migrate": None}))["status"] == "VERIFY_RESIZE"
    await goes(running, disk)
    seen = await done(running, server["id"], {"revertResize": None})
    assert (seen["status"], seen["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", server["OS-EXT-SRV-ATTR:host"])
    await is_deleted(running, server["id"])


async def test_a_dead_volume_is_taken_off_a_shelved_server(running: Running) -> None:
    server, disk = await with_volume(running)
    await goes(running, disk)
    assert (await done(running, server["id"], {"shelve": None}))["status"] == "SHELVED_OFFLOADED"
    assert (await detach(running, server["id"], disk)).status_code == 202
    await ended(running, server["id"], "detach_volume")
    assert await attached(running, server["id"]) == []
    assert (await done(running, server["id"], {"unshelve": None}))["status"] == "ACTIVE"
    await is_deleted(running, server["id"])


async def test_a_hard_reboot_drops_a_dead_volume_and_no_other(running: Running) -> None:
    server, disk = await with_volume(running)
    other = await volume(running)
    assert (await attach(running, server["id"], other)).status_code in {200, 202}
    await becomes(running, other, "in-use")
    await goes(running, disk)
    assert (await done(running, server["id"], {"reboot": {"type": "HARD"}}))["status"] == "ACTIVE"
    assert [each["volumeId"] for each in await attached(running, server["id"])] == [other]
    assert disks(running, server) == [other]
    await is_deleted(running, server["id"])
