"""The network service's REST interface, shared by all parts of the client: paths, pages, rows of ports, extensions."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import quote

from moorage.clients.http import Body, Json, Params, ServiceClient
from moorage.clients.replies import ServiceResponse
from moorage.model.errors import Internal, NotFound, PreconditionFailed, Stale
from moorage.model.network import Port

PAGE_SIZE = 1000
PAGES_MAX = 1000
EXTENSIONS_KEPT_S = 600.0
TRIES_AT_A_REVISION_MAX = 4


def path_of(*segments: str) -> str:
    """Build a path such as `/v2.0/ports/<id>`; each argument stays one segment of the path, even an id with a slash."""
    return "/v2.0/" + "/".join(quote(each, safe="") for each in segments)


class NetworkApi:
    """Calls one network service. It caches only the list of extensions."""

    def __init__(self, service: ServiceClient) -> None:
        self.service = service
        self._extensions: frozenset[str] = frozenset()
        self._extensions_until = 0.0

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: Body | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ServiceResponse:
        """Make one request, by default with our own credentials. Raises a Problem as `ServiceClient.call` does."""
        return await self.service.call(method, path, token=token, body=body, params=params, headers=headers)

    async def pages(self, collection: str, params: Params, token: str | None = None) -> AsyncIterator[Json]:
        """Yield every row of a collection. A page may be shorter than its limit; the answer then has a link to the next page.

        Raises Internal after PAGES_MAX pages.
        """
        marker: dict[str, str] = {}
        key = collection.replace("-", "_")
        for _ in range(PAGES_MAX):
            query: dict[str, Any] = {**params, "limit": PAGE_SIZE, **marker}
            body = (await self.call("GET", path_of(collection), params=query, token=token)).body
            rows: list[Json] = body[key]
            for row in rows:
                yield row
            more = any(link.get("rel") == "next" for link in body.get(f"{key}_links") or ())
            if not rows or (len(rows) < PAGE_SIZE and not more):
                return
            marker = {"marker": rows[-1]["id"]}
        raise Internal(f"more than {PAGES_MAX * PAGE_SIZE} {collection}")

    async def extensions(self) -> frozenset[str]:
        """Return the aliases of the service's extensions; they are read again every ten minutes."""
        if time.monotonic() >= self._extensions_until:
            rows = (await self.call("GET", path_of("extensions"))).body["extensions"]
            self._extensions = frozenset(row["alias"] for row in rows)
            self._extensions_until = time.monotonic() + EXTENSIONS_KEPT_S
        return self._extensions

    async def auto_network(self, project: str) -> str:
        """Return the network of the project's automatically allocated topology; the service makes it if it is missing.

        Raises Conflict when the service cannot make it.
        """
        reply = await self.call("GET", path_of("auto-allocated-topology", project))
        return str(reply.body["auto_allocated_topology"]["id"])

    # ---- ports -------------------------------------------------------------------------------------------------------

    async def port(self, port: str, token: str | None = None) -> Json:
        """Return the row of a port. Raises NotFound."""
        body: Json = (await self.call("GET", path_of("ports", port), token=token)).body["port"]
        return body

    async def ports_of(self, server: str, token: str | None = None) -> list[Json]:
        return [row async for row in self.pages("ports", {"device_id": server}, token)]

    async def port_of_server(self, server: str, port: str) -> Json | None:
        """Return the row of the server's port; None if it does not exist, or belongs to another device."""
        try:
            row = await self.port(port)
        except NotFound:
            return None
        return row if row.get("device_id") == server else None

    async def port_by_mac(self, network: str, mac: str) -> Json:
        """Return the row of the port with this MAC. Raises NotFound."""
        rows = [row async for row in self.pages("ports", {"network_id": network, "mac_address": mac})]
        if not rows:
            raise NotFound(f"no port of network {network} has {mac}")
        return rows[0]

    async def put_port(self, port: str, body: Json, revision: int) -> Json:
        """Change a port at this revision. Raises PreconditionFailed when the port has another revision."""
        headers = {"If-Match": f"revision_number={revision}"}
        reply = await self.call("PUT", path_of("ports", port), body={"port": body}, headers=headers)
        answered: Json = reply.body["port"]
        return answered

    async def delete_port(self, port: str) -> None:
        """Delete a port; a missing one is success."""
        try:
            await self.call("DELETE", path_of("ports", port))
        except NotFound:
            return

    async def change_port(
        self, server: str, now: Port, change: Callable[[Port], Json], read: Callable[[Json], Port]
    ) -> None:
        """PUT `change` at the port's newest revision, while the port belongs to this server; a port of another device is not changed.

        `read` makes a Port of a row.  An empty change and a missing port are success.
        Raises Stale when the port keeps changing.
        """
        for _ in range(TRIES_AT_A_REVISION_MAX):
            try:
                if now.device_id != server or not (wanted := change(now)):
                    return
                await self.put_port(now.id, wanted, now.revision)
                return
            except PreconditionFailed:
                try:
                    now = read(await self.port(now.id))
                except NotFound:
                    return
            except NotFound:
                return
        raise Stale(f"port {now.id} keeps changing")
