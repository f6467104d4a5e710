"""What the contract tests of groups of volumes share: groups, their types and snapshots that are made."""

import uuid
from typing import Any

import httpx

from tests.helpers.contract_volume_service import Person, VolumeGround


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def message(answer: httpx.Response) -> str:
    (fault,) = answer.json().values()
    assert fault["code"] == answer.status_code
    return str(fault["message"])


async def group_type(ground: VolumeGround, **said: Any) -> dict[str, Any]:
    answer = await ground.ask(ground.admin, "POST", "/group_types", {"group_type": {"name": new_name("type")} | said})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()["group_type"]
    return found


async def volume_type(ground: VolumeGround, **specs: str) -> dict[str, Any]:
    said = {"name": new_name("type"), "extra_specs": specs}
    answer = await ground.ask(ground.admin, "POST", "/types", {"volume_type": said})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["volume_type"]
    return found


async def ask_group(
    ground: VolumeGround, who: Person, type: dict[str, Any], *types: Any, **said: Any
) -> httpx.Response:
    named = [each["id"] for each in types]
    return await ground.ask(who, "POST", "/groups", {"group": {"group_type": type["id"], "volume_types": named} | said})


async def group(ground: VolumeGround, who: Person, type: dict[str, Any], *types: Any, **said: Any) -> dict[str, Any]:
    """One that was made."""
    answer = await ask_group(ground, who, type, *types, **said)
    assert answer.status_code == 202, answer.text
    assert set(answer.json()["group"]) == {"id", "name"}
    return await ground.until(who, answer.json()["group"]["id"], "available", "group")


async def act(ground: VolumeGround, who: Person, id: str, action: str, said: Any, **more: Any) -> httpx.Response:
    return await ground.ask(who, "POST", f"/groups/{id}/action", {action: said}, **more)


async def copied(ground: VolumeGround, who: Person, **said: Any) -> httpx.Response:
    return await ground.ask(who, "POST", "/groups/action", {"create-from-src": said})


async def snapshotted(ground: VolumeGround, who: Person, id: str, **said: Any) -> dict[str, Any]:
    answer = await ground.ask(who, "POST", "/group_snapshots", {"group_snapshot": {"group_id": id} | said})
    assert answer.status_code == 202, answer.text
    made = answer.json()["group_snapshot"]
    assert set(made) == {"id", "name", "group_type_id"}
    return await ground.until(who, made["id"], "available", "group_snapshot")


async def members(ground: VolumeGround, who: Person, id: str) -> list[str]:
    found = await ground.shown(who, f"{id}?list_volume=True", "group")
    return list(found["volumes"])


async def drop(ground: VolumeGround, who: Person, id: str) -> None:
    answer = await act(ground, who, id, "delete", {"delete-volumes": True})
    assert answer.status_code == 202, answer.text
    await ground.gone(who, id, "group")
