"""Limits of one project, and of one user in it, as its administrator set them, hold where a server is asked for."""

from typing import Any

from tests.cloud.conftest import Running


async def set_limits(running: Running, project: str, **limits: int) -> None:
    reply = await running.admin.compute("PUT", f"/os-quota-sets/{project}", {"quota_set": limits})
    assert reply.status_code == 200, reply.text


def refused(reply: Any) -> str:
    assert reply.status_code == 403, reply.text
    return str(reply.json()["forbidden"]["message"])


async def test_limits_of_a_project(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        group = await demo.compute("POST", "/os-server-groups", {"server_group": {"name": "g", "policy": "affinity"}})
        hints = {"group": group.json()["server_group"]["id"]}
        await set_limits(running, demo.project, server_group_members=1, metadata_items=1)
        assert "server_group_members" in refused(await demo.ask_boot("many", hints=hints, min_count=2))
        first = await demo.active("first", hints=hints, metadata={"a": "b"}, networks="none")
        assert "server_group_members" in refused(await demo.ask_boot("second", hints=hints))
        assert "metadata" in refused(await demo.ask_boot("much", metadata={"a": "b", "c": "d"}))
        await running.admin.gone(first["id"])  # who sees its claim and its place in the quota go too
        await set_limits(running, demo.project, server_group_members=-1, metadata_items=-1)
        await demo.active("again", hints=hints, metadata={"a": "b", "c": "d"}, networks="none")


async def test_limits_of_a_user(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        first = await demo.active("first", networks="none")
        user = {"user_id": first["user_id"]}
        path = f"/os-quota-sets/{demo.project}"
        limited = await running.admin.compute("PUT", path, {"quota_set": {"instances": 1, "force": True}}, **user)
        assert limited.status_code == 200, limited.text
        said = refused(await demo.ask_boot("second", networks="none"))
        assert said == "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances"
        await running.admin.gone(first["id"])  # who sees its claim and its place in the quota go too
        again = await demo.active("again", networks="none")
        detail = (await running.admin.compute("GET", f"{path}/detail", **user)).json()["quota_set"]
        assert detail["instances"] == {"limit": 1, "in_use": 1, "reserved": 0}
        assert (await running.admin.compute("DELETE", path, **user)).status_code == 202
        await demo.active("third", networks="none")
        await demo.gone(again["id"])
