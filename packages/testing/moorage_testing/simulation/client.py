"""A client of a simulated cloud: one call at a time, with an answer or none."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec

from moorage.clients.asgi_transport import Base
from moorage_testing.simulation.cloud import SimulatedCloud

CALL_S = 60.0
ANSWER_MAX_BYTES = 64 * 1024 * 1024
VERSION = "2.104"
VOLUME_VERSION = "3.71"
PREFIXES = {
    "compute": "/v2.1",
    "network": "/v2.0",
    "image": "",
    "identity": "/v3",
    "placement": "/placement",
    "volume": "/v3",
}


class ClientReply(msgspec.Struct, frozen=True):
    """An answer; status 0: the outcome is unknown."""

    status: int
    body: Any = None
    headers: dict[str, str] = {}

    @property
    def unknown(self) -> bool:
        """It may have been done, now or later."""
        return self.status in {0, 500, 502, 504}

    @property
    def never_sent(self) -> bool:
        return self.status == -1


class SimulatedClient:
    """A person with a token."""

    def __init__(self, cloud: SimulatedCloud, token: str) -> None:
        self._cloud = cloud
        self.token = token

    async def ask(
        self, service: str, method: str, path: str, body: Any = None, *, version: str = VERSION, **params: str
    ) -> ClientReply:
        """One call, given up after a minute."""
        url = getattr(self._cloud.config.api, service).url + PREFIXES[service]
        headers = {"X-Auth-Token": self.token, "Content-Type": "application/json"}
        if service == "compute":
            headers["OpenStack-API-Version"] = f"compute {version}"
        if service == "volume":
            headers["OpenStack-API-Version"] = f"volume {VOLUME_VERSION}"
        if service == "placement":
            headers["OpenStack-API-Version"] = "placement 1.39"
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/octet-stream"
        try:
            async with asyncio.timeout(CALL_S):
                status, answered, content = await self._cloud.doors[service].ask(
                    Base(url, {}), method, path, urlencode(params), headers, content, ANSWER_MAX_BYTES
                )
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return ClientReply(-1)
        except (TimeoutError, httpx.TransportError):
            return ClientReply(0)
        try:
            decoded = msgspec.json.decode(content) if content else None
        except msgspec.DecodeError:
            decoded = content.decode(errors="replace")
        return ClientReply(status, decoded, {name.lower(): value for name, value in answered.items()})
