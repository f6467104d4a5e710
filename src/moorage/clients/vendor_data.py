"""Dynamic vendor data for guests, read from HTTP services with our own token.

Nova's protocol: a POST that describes the guest; the answer is a JSON object (nova 34, doc/source/admin/vendordata.rst).  The guest
gets no data of a service that fails, unless the failure is configured to be fatal.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.clients.http import ServiceClient
from moorage.model.errors import Problem, Unavailable
from moorage.model.instance_metadata import VENDOR_DATA_MAX_BYTES
from moorage.model.server import Server

_log = logging.getLogger(__name__)


class VendorData:
    """Asks all configured services."""

    def __init__(self, services: Sequence[tuple[str, ServiceClient]], *, timeout_s: float, fatal: bool) -> None:
        """`timeout_s`: limit of each call. `fatal`: the guest gets no metadata at all while a service fails."""
        self._services = tuple(services)
        self._timeout_s = timeout_s
        self._fatal = fatal

    async def of(self, server: Server) -> dict[str, Any]:
        """Return the answers about this server by the services' names; all are asked at the same time.

        Raises Unavailable when a service fails and that is fatal.
        """
        answers = await asyncio.gather(*(self._ask(name, service, server) for name, service in self._services))
        return {name: each for (name, _), each in zip(self._services, answers, strict=True)}

    async def close(self) -> None:
        for _, service in self._services:
            await service.close()

    async def _ask(self, name: str, service: ServiceClient, server: Server) -> Mapping[str, Any]:
        try:
            reply = await service.call("POST", "", body=_about(server), deadline_s=self._timeout_s)
            size = len(msgspec.json.encode(reply.body))
            if size > VENDOR_DATA_MAX_BYTES:
                raise Unavailable(f"it said {size} bytes, and {VENDOR_DATA_MAX_BYTES} are possible")
        except Problem as problem:
            why = f"vendor data of {name} for server {server.id}: {problem.private or problem.public}"
            if self._fatal:
                raise Unavailable(f"the vendor data service {name} did not say its part", private=why) from problem
            _log.warning("%s; the guest goes without", why)
            return {}
        return reply.body


def _about(server: Server) -> dict[str, Any]:
    return {
        "project-id": server.project,
        "instance-id": server.id,
        "image-id": server.image or "",
        "user-data": server.user_data,
        "hostname": server.hostname,
        "metadata": server.metadata,
        "boot-roles": ",".join(server.boot_roles),
    }
