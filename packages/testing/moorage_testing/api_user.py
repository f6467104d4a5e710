"""A person at a running cloud: a token of the embedded identity, and the public APIs over sockets, as any client speaks to them."""

import asyncio
import time
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any

import httpx

from moorage.main.config import Config
from moorage.main.service_clients import admin_password, demo_password

VERSION = "2.104"
PATIENCE_S = 180.0
LOOK_FIRST_S, LOOK_MOST_S = 0.05, 0.4
"""Pauses between two reads of a server. They grow, because many servers are often waited for at once, and each read is a request."""
CALL_S = 120.0
CONNECTIONS = 64


class Person:
    """`async with Person(config, "demo", "demo") as demo: await demo.boot(…)`; several compute URLs are used in turn."""

    reaches_all = False
    """The volume and image services at the addresses of the embedded ones may be real, and all that they hold is this cloud's."""

    def __init__(self, config: Config, user: str = "admin", project: str = "admin", urls: Sequence[str] = ()) -> None:
        self.config = config
        self.user, self.project_name = user, project
        self.urls = list(urls) or [f"{config.api.compute.url}/v2.1"]
        self.project = ""
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        self.http = httpx.AsyncClient(timeout=CALL_S, limits=limits, verify=False)  # reading certificates takes 50 ms
        self._turn = 0
        self._names: dict[tuple[str, str], str] = {}

    async def __aenter__(self) -> "Person":
        await self.log_in()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def log_in(self) -> None:
        """Get a token, with the password that the data directory keeps."""
        password = admin_password(self.config) if self.user == "admin" else demo_password(self.config)
        domain = {"id": "default"}
        user = {"name": self.user, "domain": domain, "password": password}
        asked = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": {"name": self.project_name, "domain": domain}},
            }
        }
        reply = await self.http.post(f"{self.config.api.identity.url}/v3/auth/tokens", json=asked)
        reply.raise_for_status()
        self.project = str(reply.json()["token"]["project"]["id"])
        self.http.headers["X-Auth-Token"] = str(reply.headers["X-Subject-Token"])
        self.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"

    # ------------------------------------------------------------------------------------------------- asking

    async def compute(self, method: str, path: str, body: Any = None, **params: str) -> httpx.Response:
        """One call, to the next of the compute URLs."""
        self._turn += 1
        url = self.urls[self._turn % len(self.urls)] + path
        return await self.http.request(method, url, json=body, params=params)

    async def network(self, method: str, path: str, body: Any = None, **params: str) -> httpx.Response:
        return await self.http.request(method, f"{self.config.api.network.url}/v2.0{path}", json=body, params=params)

    async def volume(self, method: str, path: str, body: Any = None, **params: str) -> httpx.Response:
        """One call to the volume service, at the newest version."""
        headers = {"OpenStack-API-Version": "volume 3.71"}
        url = f"{self.config.api.volume.url}/v3/{self.project}{path}"
        return await self.http.request(method, url, json=body, params=params, headers=headers)

    async def id_of(self, kind: str, name: str) -> str:
        """The id of an image, network, subnet or flavor with this name."""
        if (kind, name) not in self._names:
            match kind:
                case "image":
                    reply = await self.http.get(f"{self.config.api.image.url}/v2/images", params={"name": name})
                case "flavor":
                    reply = await self.compute("GET", "/flavors")
                case _:
                    reply = await self.network("GET", f"/{kind}s", name=name)
            reply.raise_for_status()
            self._names[kind, name] = next(each["id"] for each in reply.json()[f"{kind}s"] if each["name"] == name)
        return self._names[kind, name]

    # ------------------------------------------------------------------------------------------------- servers

    async def ask_boot(
        self, name: str = "a", *, flavor: str = "m1.nano", networks: Any = "private", hints: Any = None, **more: Any
    ) -> httpx.Response:
        """POST /servers; `networks` is a network's name or what the API takes."""
        if isinstance(networks, str) and networks not in {"auto", "none"}:
            networks = [{"uuid": await self.id_of("network", networks)}]
        if "imageRef" not in more:  # a cloud of real hosts has no such image
            more["imageRef"] = await self.id_of("image", "tiny")
        if "flavorRef" not in more:
            more["flavorRef"] = await self.id_of("flavor", flavor)
        server = {"name": name, "networks": networks, **more}
        body: dict[str, Any] = {"server": server}
        if hints is not None:
            body["os:scheduler_hints"] = hints
        return await self.compute("POST", "/servers", body)

    async def boot(self, name: str = "a", **more: Any) -> str:
        """The id of a server that was accepted."""
        reply = await self.ask_boot(name, **more)
        if reply.status_code != 202:
            raise AssertionError(f"the boot was not accepted: {reply.status_code} {reply.text}")
        return str(reply.json()["server"]["id"])

    async def server(self, server: str) -> dict[str, Any] | None:
        """What is shown of it; None when it is gone."""
        reply = await self.compute("GET", f"/servers/{server}")
        if reply.status_code == 404:
            return None
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()["server"]
        return found

    async def settled(self, server: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The server when it is no longer being built."""
        deadline, pause_s = time.monotonic() + patience_s, LOOK_FIRST_S
        while True:
            found = await self.server(server)
            if found is None:
                raise AssertionError(f"{server} is gone")
            if found["status"] != "BUILD" and found["OS-EXT-STS:task_state"] is None:
                return found
            if time.monotonic() > deadline:
                now = f"{found['status']} {found['OS-EXT-STS:task_state']}"
                raise AssertionError(f"{server} is still {now}: {await self.operations_of(server)}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LOOK_MOST_S)

    async def operations_of(self, server: str) -> list[dict[str, Any]]:
        """With the last lines of their journals, to see what they wait for."""
        reply = await self.compute("GET", "/ext/operations", server=server, all_projects="1")
        found = []
        for each in reply.json()["operations"][:3]:
            shown = (await self.compute("GET", f"/ext/operations/{each['id']}")).json()["operation"]
            found.append({**shown, "lines": shown.get("lines", [])[-6:]})
        return found

    async def images(self) -> list[str]:
        """The ids of all that are shown."""
        reply = await self.http.get(f"{self.config.api.image.url}/v2/images")
        reply.raise_for_status()
        return [str(each["id"]) for each in reply.json()["images"]]

    async def volumes(self) -> list[dict[str, Any]]:
        """Those of every project, in detail."""
        reply = await self.volume("GET", "/volumes/detail", all_tenants="1")
        reply.raise_for_status()
        return list(reply.json()["volumes"])

    async def leave_nothing(self, images: Collection[str]) -> None:
        """Delete every server of every project, and wait until they are gone; every volume, and every image but these."""
        reply = await self.compute("GET", "/servers", all_tenants="true")
        reply.raise_for_status()
        await asyncio.gather(*(self.gone(each["id"]) for each in reply.json()["servers"]))
        for each in await self.volumes():
            reply = await self.volume("DELETE", f"/volumes/{each['id']}", cascade="true")
            if reply.status_code not in {202, 404} and not await self._going(each["id"]):
                raise AssertionError(f"volume {each['id']} is {each['status']}: {reply.text}")
        for image in await self.images():
            if image not in images:
                url = f"{self.config.api.image.url}/v2/images/{image}"
                await self.http.patch(
                    url,
                    json=[{"op": "replace", "path": "/protected", "value": False}],
                    headers={"Content-Type": "application/openstack-images-v2.1-json-patch"},
                )
                (await self.http.delete(url)).raise_for_status()

    async def _going(self, volume: str) -> bool:
        """Whether it is being deleted already, as those are that go with their server: a real Cinder refuses to begin again."""
        shown = await self.volume("GET", f"/volumes/{volume}")
        return shown.status_code == 404 or shown.json()["volume"]["status"] == "deleting"

    async def active(self, name: str = "a", **more: Any) -> dict[str, Any]:
        """Boot one and see it ACTIVE."""
        found = await self.settled(await self.boot(name, **more))
        if found["status"] != "ACTIVE":
            raise AssertionError(f"{found['id']} is {found['status']}: {found.get('fault')}")
        return found

    async def delete(self, server: str) -> None:
        """Ask for the delete."""
        reply = await self.compute("DELETE", f"/servers/{server}")
        if reply.status_code not in {204, 404}:
            raise AssertionError(f"the delete was not accepted: {reply.status_code} {reply.text}")

    async def gone(self, server: str, patience_s: float = PATIENCE_S) -> None:
        """Delete it and see it go; an administrator sees what was claimed for it go too, which is a moment later."""
        await self.delete(server)
        await self.absent(server, patience_s)
        if self.user != "admin":
            return
        deadline, pause_s = time.monotonic() + patience_s, LOOK_FIRST_S
        while (left := await self.claimed(server)) != {}:
            if time.monotonic() > deadline:
                raise AssertionError(f"{left} is still claimed for {server}: {await self.operations_of(server)}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LOOK_MOST_S)

    async def claimed(self, server: str) -> dict[str, Any]:
        """What the Placement API shows as allocated for it, by provider."""
        url = f"{self.config.api.placement.url}/placement/allocations/{server}"
        reply = await self.http.get(url, headers={"OpenStack-API-Version": "placement 1.39"})
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()["allocations"]
        return found

    async def absent(self, server: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until nobody is shown it any more."""
        deadline, pause_s = time.monotonic() + patience_s, LOOK_FIRST_S
        while await self.server(server) is not None:
            if time.monotonic() > deadline:
                left = await self.server(server)
                raise AssertionError(f"{server} is still there: {left}; {await self.operations_of(server)}")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LOOK_MOST_S)
