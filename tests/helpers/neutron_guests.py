"""Servers of an administrator at a `NeutronSite`, with a network of their own, and what Moorage and Neutron show of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.neutron_ovs_site import NeutronSite, until, upload
from tests.helpers.real_services_cloud import ServicesClient

SEEN = {"ACTIVE", "ERROR", "SHUTOFF", "VERIFY_RESIZE"}
FLAVOR = "42"
GUESTS_GROUP = "guests"


@dataclass(frozen=True)
class Guest:
    id: str
    host: str
    address: str


@dataclass
class Guests:
    site: NeutronSite
    admin: ServicesClient
    network: str
    image: str
    _made: dict[str, list[str]] = field(default_factory=lambda: {"servers": [], "ports": [], "security-groups": []})
    _macs: set[str] = field(default_factory=set[str])

    @staticmethod
    @contextlib.asynccontextmanager
    async def of(site: NeutronSite) -> AsyncIterator["Guests"]:
        admin = site.desk("admin")
        try:
            await site.agents_alive(admin)
            image = await upload(admin, site.neighbours)
            network = (await admin("network", "POST", "/networks", {"network": {"name": "wired"}}))["network"]["id"]
            subnet = {"network_id": network, "cidr": "10.91.0.0/24", "ip_version": 4}
            await admin("network", "POST", "/subnets", {"subnet": subnet})
            made = Guests(site, admin, network, image)
            yield made
            await made.gone()
            await admin("network", "DELETE", f"/networks/{network}")
            await admin("image", "DELETE", f"/images/{image}")
        finally:
            await admin.close()

    # ---- servers ---------------------------------------------------------------------------------------------------

    async def boot(self, name: str, host: str = "", port: str = "", **more: Any) -> Guest:
        """When it is active."""
        server = await self._ask_for(name, host, port, more)
        shown = await self._becomes(server, "ACTIVE")
        found = [each["addr"] for rows in shown["addresses"].values() for each in rows]
        if found:
            self._macs.add((await self._port_of(server))["mac_address"])
        return Guest(server, shown["OS-EXT-SRV-ATTR:host"], found[0] if found else "")

    async def fails(self, name: str, host: str, port: str) -> dict[str, Any]:
        """As it is shown when it has failed."""
        return await self._becomes(await self._ask_for(name, host, port, {}), "ERROR")

    async def _ask_for(self, name: str, host: str, port: str, more: dict[str, Any]) -> str:
        body: dict[str, Any] = {"name": name, "imageRef": self.image, "flavorRef": FLAVOR}
        body["networks"] = [{"port": port} if port else {"uuid": self.network}]
        if host:
            body["availability_zone"] = f"nova:{host}"
        made = await self.admin("compute", "POST", "/servers", {"server": body | more})
        self._made["servers"].append(str(made["server"]["id"]))
        return self._made["servers"][-1]

    async def _becomes(self, server: str, status: str) -> dict[str, Any]:
        async def look() -> dict[str, Any]:
            shown: dict[str, Any] = (await self.admin("compute", "GET", f"/servers/{server}"))["server"]
            return shown

        def over(seen: dict[str, Any]) -> bool:
            return seen["OS-EXT-STS:task_state"] is None and seen["status"] in {status, "ERROR"}

        shown: dict[str, Any] = await until(look, over)
        assert shown["status"] == status, shown.get("fault")
        return shown

    async def act(self, guest: Guest, becomes: str, **action: Any) -> None:
        await self.admin("compute", "POST", f"/servers/{guest.id}/action", action)
        await self._becomes(guest.id, becomes)

    async def host(self, guest: Guest) -> str:
        shown = (await self.admin("compute", "GET", f"/servers/{guest.id}"))["server"]
        return str(shown["OS-EXT-SRV-ATTR:host"])

    async def console(self, guest: Guest) -> str:
        reply = await self.admin.ask("compute", "POST", f"/servers/{guest.id}/action", {"os-getConsoleOutput": {}})
        return str(reply.json()["output"]) if reply.is_success else ""

    async def says(self, guest: Guest, words: str) -> None:
        await until(lambda: self.console(guest), lambda said: words in said)

    async def says_more(self, guest: Guest, *words: str) -> None:
        """Each of these again and again, from now on: the second one had begun after this was asked."""
        before = await self.console(guest)
        wanted = {each: before.count(f"{each} ") + 2 for each in words}
        await until(
            lambda: self.console(guest), lambda said: all(said.count(f"{one} ") >= n for one, n in wanted.items())
        )

    # ---- the network -----------------------------------------------------------------------------------------------

    async def port(self, guest: Guest) -> dict[str, Any]:
        return await self._port_of(guest.id)

    async def _port_of(self, server: str) -> dict[str, Any]:
        (found,) = (await self.admin("network", "GET", f"/ports?device_id={server}"))["ports"]
        return dict(found)

    async def read_port(self, port: str) -> dict[str, Any]:
        return dict((await self.admin("network", "GET", f"/ports/{port}"))["port"])

    async def new_port(self) -> str:
        made = (await self.admin("network", "POST", "/ports", {"port": {"network_id": self.network}}))["port"]
        self._made["ports"].append(str(made["id"]))
        self._macs.add(made["mac_address"])
        return str(made["id"])

    async def group(self, name: str) -> str:
        body = {"security_group": {"name": name}}
        made = (await self.admin("network", "POST", "/security-groups", body))["security_group"]
        self._made["security-groups"].append(str(made["id"]))
        return str(made["id"])

    async def let_in(self, group: str, protocol: str) -> None:
        rule = {"security_group_id": group, "direction": "ingress", "protocol": protocol}
        await self.admin("network", "POST", "/security-group-rules", {"security_group_rule": rule})

    async def put_in(self, guest: Guest, groups: list[str]) -> None:
        port = (await self.port(guest))["id"]
        await self.admin("network", "PUT", f"/ports/{port}", {"port": {"security_groups": groups}})

    def plugged(self, host: str) -> set[str]:
        """Ids of the ports that are in the host's switch, by our mark."""
        said = self.site.hosts[host].switch.vsctl(
            "--bare", "--columns=external_ids", "find", "Interface", 'external_ids:moorage-owner!=""'
        )
        return {word.removeprefix("iface-id=") for word in said.split() if word.startswith("iface-id=")}

    async def is_up(self, guest: Guest, host: str) -> None:
        async def look() -> tuple[str, str]:
            port = await self.port(guest)
            return port["binding:host_id"], port["status"]

        await until(look, lambda seen: seen == (host, "ACTIVE"))

    async def is_wired(self, guest: Guest, host: str, left: str) -> None:
        """Neutron has it up there, with that binding alone; nothing of it is in the other host's switch."""
        await self.is_up(guest, host)
        port = (await self.port(guest))["id"]
        found = (await self.admin("network", "GET", f"/ports/{port}/bindings"))["bindings"]
        assert [(each["host"], each["status"]) for each in found] == [(host, "ACTIVE")]
        assert port in await asyncio.to_thread(self.plugged, host)
        assert port not in await asyncio.to_thread(self.plugged, left)

    async def is_free(self, port: str, left: str) -> None:
        """It is its owner's again, on no host, and not in that host's switch."""

        async def look() -> tuple[str, str, bool]:
            now = await self.read_port(port)
            return now["binding:host_id"], now["device_id"], port in await asyncio.to_thread(self.plugged, left)

        await until(look, lambda seen: seen == ("", "", False))

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def gone(self) -> None:
        """All of them, and nothing is left: no guest, device, port of a switch or flow on any host, and no port at Neutron."""
        mine = set(self._made["servers"])
        for server in mine:
            await self.admin("compute", "DELETE", f"/servers/{server}")
        self._made["servers"].clear()

        async def servers() -> set[str]:
            return {each["id"] for each in (await self.admin("compute", "GET", "/servers"))["servers"]} & mine

        await until(servers, lambda seen: not seen)
        for kind in ("ports", "security-groups"):
            while self._made[kind]:
                await self.admin("network", "DELETE", f"/{kind}/{self._made[kind].pop()}")
        rows = (await self.admin("network", "GET", f"/ports?network_id={self.network}"))["ports"]
        assert [each for each in rows if not each["device_owner"].startswith("network:")] == []
        for host in self.site.hosts:
            await self._nothing_left(host)

    async def _nothing_left(self, host: str) -> None:
        await until(lambda: asyncio.to_thread(self._left, host), lambda seen: seen == [])

    def _left(self, host: str) -> list[str]:
        flows = self.site.hosts[host].switch.flows("br-int")
        mine = [f"flow {flow}" for flow in flows if any(mac in flow for mac in self._macs)]
        return self.site.left(host) + mine
