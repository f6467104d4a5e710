"""A volume is swapped for another under a running server, as the volume service asks for it."""

from typing import Any

import pytest
from tests.cloud.conftest import Running
from tests.cloud.test_multiattach_volumes import several
from tests.cloud.test_volumes import NO_SUCH, attach, attached, becomes, disks, ended, held, running, status, volume

from moorage.drivers.fault_injection import VerbDial
from moorage_testing.api_user import VERSION

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["running"]


async def as_service(running: Running) -> None:
    """The administrator has the role `service` besides, as the account of a volume service has."""
    admin, url = running.admin, f"{running.config.api.identity.url}/v3"
    role = (await admin.http.get(f"{url}/roles", params={"name": "service"})).json()["roles"][0]["id"]
    me = (await admin.http.get(f"{url}/users", params={"name": admin.user})).json()["users"][0]["id"]
    reply = await admin.http.put(f"{url}/projects/{admin.project}/users/{me}/roles/{role}")
    assert reply.status_code == 204, reply.text
    await admin.log_in()


async def moves(running: Running, volume: str, how: str = "success") -> str:
    """The volume, as the volume service has it that means to swap it."""
    body = {"os-reset_status": {"migration_status": how}}
    reply = await running.admin.volume("POST", f"/volumes/{volume}/action", body)
    assert reply.status_code == 202, reply.text
    return volume


async def swap(running: Running, server: str, old: str, new: str, version: str = VERSION, **more: Any) -> Any:
    running.admin.http.headers["OpenStack-API-Version"] = f"compute {version}"
    body = {"volumeAttachment": {"volumeId": new, **more}}
    reply = await running.admin.compute("PUT", f"/servers/{server}/os-volume_attachments/{old}", body)
    running.admin.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"
    return reply


async def with_volume(running: Running, **more: Any) -> tuple[dict[str, Any], str]:
    server, old = await running.admin.active("a"), await volume(running)
    assert (await attach(running, server["id"], old, **more)).status_code == 202
    await ended(running, server["id"], "attach_volume")
    return server, await moves(running, old)


async def test_the_guest_continues_with_the_new_volume(running: Running) -> None:
    await as_service(running)
    server, old = await with_volume(running, tag="data")
    new = await volume(running, size=2)
    reply = await swap(running, server["id"], old, new, delete_on_termination=True)
    assert (reply.status_code, reply.content) == (202, b""), reply.text
    action = await ended(running, server["id"], "swap_volume")
    assert (action["message"], [each["event"] for each in action["events"]]) == (None, ["compute_swap_volume"])
    await becomes(running, old, "available")
    assert await status(running, new) == "in-use"
    (row,), (attachment,) = await attached(running, server["id"]), await held(running)
    assert (row["volumeId"], row["device"], row["tag"], row["delete_on_termination"]) == (new, "/dev/vdb", "data", True)
    assert (row["attachment_id"], attachment["status"]) == (attachment["id"], "attached")
    assert disks(running, server) == [new]
    await running.admin.gone(server["id"])
    assert await status(running, old) == "available"
    await becomes(running, new, "gone")


async def test_a_paused_server_before_2_85(running: Running) -> None:
    await as_service(running)
    server, old = await with_volume(running)
    new = await volume(running)
    await running.admin.compute("POST", f"/servers/{server['id']}/action", {"pause": None})
    await ended(running, server["id"], "pause")
    assert (await swap(running, server["id"], old, new, "2.84")).status_code == 202
    assert (await ended(running, server["id"], "swap_volume"))["message"] is None
    assert disks(running, server) == [new]


async def test_a_failed_swap_changes_nothing(running: Running) -> None:
    await as_service(running)
    server, old = await with_volume(running)
    new = await volume(running)
    running.set_faults_everywhere(swap_volume=VerbDial(fail_times=1, says="the copy failed"))
    assert (await swap(running, server["id"], old, new)).status_code == 202
    action = await ended(running, server["id"], "swap_volume")
    assert (action["message"], "the copy failed" in action["events"][-1]["details"]) == ("Error", True)
    await becomes(running, old, "in-use")
    await becomes(running, new, "available")
    (attachment,) = await held(running)
    assert [each["attachment_id"] for each in await attached(running, server["id"])] == [attachment["id"]]
    assert disks(running, server) == [old]


async def test_refused_swaps(running: Running) -> None:
    server, old = await with_volume(running)
    new, id = await volume(running), server["id"]
    plain = running.person("demo", "demo")
    async with plain:
        mine = await plain.active("mine")
        body = {"volumeAttachment": {"volumeId": new}}
        reply = await plain.compute("PUT", f"/servers/{mine['id']}/os-volume_attachments/{old}", body)
        assert reply.status_code == 403, reply.text
    await as_service(running)

    async def refused(code: int, says: str, *asked: Any, **more: Any) -> None:
        reply = await swap(running, *asked, **more)
        assert (reply.status_code, says in reply.text) == (code, True), reply.text

    other, still = await running.admin.active("b"), await volume(running)
    large = await moves(running, await volume(running, size=2))
    for each in (still, large):
        assert (await attach(running, id, each)).status_code == 202
        await becomes(running, each, "in-use")
        await ended(running, id, "attach_volume")
    await refused(404, "could not be found", NO_SUCH, old, new)
    for version in ("2.84", VERSION):
        await refused(404, NO_SUCH, id, NO_SUCH, new, version)
        await refused(400, "could not be found", id, old, NO_SUCH, version)
    await refused(404, "not attached", id, new, old)
    await refused(409, "not migrating", id, new, old, "2.84")
    await refused(409, "not migrating", id, still, new)
    await refused(400, "different instance", other["id"], old, new, "2.84")
    await refused(404, "not attached", other["id"], old, new)
    await refused(400, "must be detached", id, old, old, "2.84")
    await refused(400, "must be detached", id, old, still)
    await refused(400, "same size or larger", id, large, new)
    await refused(400, "not mutable", id, old, new, tag="other")
    await moves(running, old, "migrating")
    await refused(400, "being migrated to", id, old, new)
    await moves(running, old)
    held_by_hand = await volume(running)
    reply = await running.admin.volume("POST", f"/volumes/{held_by_hand}/action", {"os-reserve": {}})
    assert reply.status_code == 202, reply.text
    await refused(400, "must be available", id, old, held_by_hand)
    await running.admin.volume("POST", f"/volumes/{held_by_hand}/action", {"os-unreserve": {}})
    await running.admin.compute("POST", f"/servers/{id}/action", {"os-stop": None})
    await ended(running, id, "stop")
    await refused(409, "vm_state stopped", id, old, new)
    assert disks(running, server) == [old, still, large]
    assert await status(running, old) == "in-use"


async def test_a_volume_that_two_servers_write_to_is_not_swapped(running: Running) -> None:
    await as_service(running)
    one, other = await running.admin.active("a"), await running.admin.active("b")
    shared, new = await several(running, "for-two"), await volume(running)
    for server in (one, other):
        assert (await attach(running, server["id"], shared)).status_code == 202
        await ended(running, server["id"], "attach_volume")
    await moves(running, shared)
    reply = await swap(running, one["id"], shared, new)
    assert (reply.status_code, "read/write" in reply.text) == (400, True), reply.text
    assert await status(running, shared) == "in-use"
