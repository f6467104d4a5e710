"""What a cloud that is fuzzed has: one of each resource, made again when it was spoiled or deleted."""

from typing import Any

import httpx

from moorage.main.config import Config
from moorage.main.service_clients import admin_password, demo_password
from moorage_testing.api_user import Person
from moorage_testing.fuzz.requests import KnownNames

LOGIN_S = 60.0
KEPT = 8
"""Known ids of a resource; other ids are never used."""
ADMINISTRATORS = frozenset({"admin", "demo", "moorage", "default", "Default", "RegionOne"})
SPARED_COLLECTIONS = ("users", "projects", "domains", "roles", "regions", "services", "endpoints", "groups")
"""Of the identity service only what the fuzzer made is named, or nobody could log in any more."""

SPARED_AS_THEY_BEGAN = ("flavors", "images", "resource_providers")
"""Nor of these is named what the cloud began with: without it no server boots."""


class Seeded:
    """`async with Seeded(config) as seeded`; `refresh` logs in again and makes what is missing."""

    def __init__(self, config: Config) -> None:
        self.world = KnownNames(spared=ADMINISTRATORS)
        self.admin, self.demo = Person(config), Person(config, "demo", "demo")
        self._config = config
        self._began: dict[str, frozenset[str]] = {}
        self._own: dict[str, list[str]] = {name: [] for name in SPARED_COLLECTIONS}

    async def __aenter__(self) -> "Seeded":
        await self.refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.admin.http.aclose()
        await self.demo.http.aclose()

    async def refresh(self) -> None:
        for person in (self.admin, self.demo):
            await person.log_in()
        world = self.world
        world.tokens = [self.admin.http.headers["X-Auth-Token"], self.demo.http.headers["X-Auth-Token"]]
        world.project = self.admin.project
        await self._sessions()
        await self._identity()
        await self._cloud()
        world.spared = ADMINISTRATORS | {self.admin.project, self.demo.project}

    async def _sessions(self) -> None:
        """An administrator's and a user's at the web console, where it listens."""
        listen = self._config.api.webconsole
        if not listen.port:
            return
        self.world.sessions.clear()
        passwords = {"admin": admin_password(self._config), "demo": demo_password(self._config)}
        for user, password in passwords.items():
            async with httpx.AsyncClient(timeout=LOGIN_S) as browser:
                login = {"user": user, "password": password, "project": user}
                reply = await browser.post(f"{listen.url}/api/login", json=login)
                if reply.is_success:
                    self.world.sessions.append((browser.cookies["moorage"], str(reply.json()["csrf"])))

    async def _identity(self) -> None:
        url = f"{self._config.api.identity.url}/v3"
        for collection in SPARED_COLLECTIONS:
            one = collection.removesuffix("s") if collection != "services" else "service"
            body: dict[str, Any] = {"name": f"fuzz-{len(self._own[collection])}"}
            if collection == "users":
                body["password"] = "fuzz-secret"
            elif collection == "services":
                body["type"] = "fuzz"
            elif collection == "regions":
                body = {}
            elif collection == "endpoints":
                if not self._own["services"]:
                    continue
                body = {"service_id": self._own["services"][-1], "interface": "public", "url": "http://127.0.0.1:1"}
            alive = [
                each
                for each in self._own[collection]
                if (await self.admin.http.get(f"{url}/{collection}/{each}")).is_success
            ]
            if not alive:
                made = await self.admin.http.post(f"{url}/{collection}", json={one: body})
                if made.is_success:
                    alive = [str(made.json()[one]["id"])]
            self._own[collection] = alive[-KEPT:]
            self.world.ids[collection] = self._own[collection]

    async def _cloud(self) -> None:
        """Whatever the lists show, after one of each that a user makes most was asked for."""
        api, admin = self._config.api, self.admin
        if not self._began:
            await self._read_ids()
        if not self.world.ids.get("servers"):
            await admin.ask_boot("fuzzed", networks="none")
        flavor = {"name": "fuzzed", "ram": 64, "vcpus": 1, "disk": 1, "id": "fuzzed"}
        await admin.compute("POST", "/flavors", {"flavor": flavor})
        for _ in range(2 - len(self.world.ids.get("images", ()))):
            await admin.http.post(
                f"{api.image.url}/v2/images", json={"name": "fuzzed", "disk_format": "raw", "container_format": "bare"}
            )
        await admin.http.post(f"{api.placement.url}/placement/resource_providers", json={"name": "fuzzed"})
        for person in (admin, self.demo):
            await person.volume("POST", "/volumes", {"volume": {"size": 1, "name": "fuzzed"}})
            await person.network("POST", "/networks", {"network": {"name": "fuzzed"}})
            await person.compute("POST", "/os-server-groups", {"server_group": {"name": "g", "policy": "affinity"}})
        await self._read_ids()

    async def _read_ids(self) -> None:
        api, admin = self._config.api, self.admin
        lists = {
            "servers": (f"{api.compute.url}/v2.1/servers?all_tenants=1&limit=20", "id"),
            "flavors": (f"{api.compute.url}/v2.1/flavors", "id"),
            "os-keypairs": (f"{api.compute.url}/v2.1/os-keypairs", "name"),
            "os-server-groups": (f"{api.compute.url}/v2.1/os-server-groups?all_projects=1", "id"),
            "os-hypervisors": (f"{api.compute.url}/v2.1/os-hypervisors", "id"),
            "images": (f"{api.image.url}/v2/images", "id"),
            "resource_providers": (f"{api.placement.url}/placement/resource_providers", "uuid"),
            **{collection: (f"{api.network.url}/v2.0/{collection}?limit=20", "id") for collection in
               ("networks", "subnets", "ports", "routers", "security-groups", "security-group-rules", "floatingips", "trunks", "subnetpools")},
            **{collection: (f"{api.volume.url}/v3/{self.world.project}/{collection}?limit=20", "id") for collection in ("volumes", "snapshots", "attachments", "types")},
        }  # fmt: skip
        for collection, (url, key) in lists.items():
            found = [str(each[key]) for each in _rows(await admin.http.get(url)) if key in each]
            if collection in SPARED_AS_THEY_BEGAN:
                began = self._began.setdefault(collection, frozenset(found))
                found = [each for each in found if each not in began]
            self.world.ids[collection] = found[-KEPT:]


def _rows(answer: httpx.Response) -> list[dict[str, Any]]:
    """The one list of an answer, of whatever name."""
    if not answer.is_success:
        return []
    found = next((each for each in answer.json().values() if isinstance(each, list)), [])
    return [row.get("keypair", row) for row in found if isinstance(row, dict)]
