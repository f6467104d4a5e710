"""Everything that a real Cinder holds, of all projects: counted, compared and emptied."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx

from moorage_testing.real_services.stack import Stack

VERSION = "volume 3.71"
PATIENCE_S = 180.0
LOOK_EVERY_S = 0.15
DEFAULT_TYPE = "__DEFAULT__"
UNUSED = {"status": "error", "attach_status": "detached", "migration_status": "none"}


class Cinder:
    """With an administrator's and a service's rights: what is in its tables, what it charges, and the files of its back end."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        headers = {
            "X-Auth-Token": stack.token("admin"),
            "X-Service-Token": stack.token("moorage"),
            "OpenStack-API-Version": VERSION,
        }
        self._http = httpx.AsyncClient(headers=headers, timeout=60)
        self._url = f"{stack.volume_url}/v3/{stack.logins['admin'].project_id}"
        self.files = stack.site.root / "state" / "volumes"

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self._http.request(method, self._url + path, json=body)

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        reply = await self.ask(method, path, body)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else {}

    async def every(self, things: str) -> list[dict[str, Any]]:
        """All volumes, snapshots or attachments of all projects."""
        return list((await self.ok("GET", f"/{things}/detail?all_tenants=1&limit=1000"))[things])

    # ---- counted

    async def world(self, *projects: str) -> dict[str, Any]:
        """All of it, comparable; of the projects what they are charged and what is reserved of their quota."""
        volumes, snapshots, attachments = [await self.every(each) for each in ("volumes", "snapshots", "attachments")]
        charged = [(await self.ok("GET", f"/os-quota-sets/{each}?usage=true"))["quota_set"] for each in projects]
        exported, there = await asyncio.to_thread(self._files)
        return {
            "volumes": sorted((each["id"], each["status"], each["size"]) for each in volumes),
            "snapshots": sorted((each["id"], each["status"]) for each in snapshots),
            "attachments": sorted((each["volume_id"], each["instance"], each["status"]) for each in attachments),
            "exports": exported,
            "files": there,
            "charged": [
                {
                    f"{what} {how}": each[what][how]
                    for what in ("volumes", "gigabytes", "snapshots")
                    for how in ("in_use", "reserved")
                    if each[what][how]
                }
                for each in charged
            ],
        }

    def _files(self) -> tuple[list[str], list[str]]:
        return _names(self.files / "exports"), [
            each for each in _names(self.files) if each not in {"exports", "broken"}
        ]

    def exports(self) -> list[str]:
        """`VOLUME@HOST` of everything that is exported; volumes by the names of their files."""
        return _names(self.files / "exports")

    async def becomes(self, wanted: dict[str, Any], *projects: str) -> None:
        """Wait until all it holds is this: what it deletes it deletes later."""
        deadline = time.monotonic() + PATIENCE_S
        while (now := await self.world(*projects)) != wanted:
            assert time.monotonic() < deadline, f"Cinder holds\n{now}\nand should hold\n{wanted}"
            await asyncio.sleep(LOOK_EVERY_S)

    # ---- emptied

    async def empty(self) -> None:
        """Take away whatever anybody left, by the rights of an administrator."""
        for each in await self.every("attachments"):
            await self._gone("DELETE", f"/attachments/{each['id']}")
        for noun in ("snapshot", "volume"):
            for each in await self.every(f"{noun}s"):
                path = f"/{noun}s/{each['id']}/action"
                await self._gone("POST", path, {"os-reset_status": UNUSED if noun == "volume" else {"status": "error"}})
                await self._gone("POST", path, {"os-force_delete": {}})
            deadline = time.monotonic() + PATIENCE_S
            while left := await self.every(f"{noun}s"):
                assert time.monotonic() < deadline, f"they do not go: {left}"
                await asyncio.sleep(LOOK_EVERY_S)
        for name in self.exports():
            (self.files / "exports" / name).unlink()
        await self.forget_types()

    async def forget_types(self) -> None:
        """Types that tests made: their names are taken otherwise."""
        for each in (await self.ok("GET", "/types?is_public=None"))["volume_types"]:
            if each["name"] != DEFAULT_TYPE:
                await self._gone("DELETE", f"/types/{each['id']}")

    async def _gone(self, method: str, path: str, body: Any = None) -> None:
        reply = await self.ask(method, path, body)
        assert reply.is_success or reply.status_code == 404, f"{method} {path}: {reply.status_code} {reply.text}"


def _names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())
