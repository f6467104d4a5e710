"""Reads and creates the limits of compute at the identity service, as Nova's driver of unified limits finds them through oslo.limit.

They are those of the service and the region of one endpoint of compute.  Our own catalog names it, so that this needs no right to list
services and endpoints.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.clients.http import ServiceClient
from moorage.clients.replies import CREDENTIALS
from moorage.model.errors import Forbidden, Invalid, Unavailable
from moorage.model.unified_limits import COMPUTE

FLAT = "flat"
DEADLINE_S = 10.0
"""A request of a user waits for it."""


class EndpointWish(msgspec.Struct, frozen=True):
    """Which endpoint of compute the limits belong to."""

    id: str = ""
    region: str = ""
    interface: str = "public"


class LimitsPlace(msgspec.Struct, frozen=True):
    """The service and region of limits."""

    service: str
    region: str | None


class ComputeLimitsClient:
    """Through `identity` with our own credentials; `reader` has those that may see the limits of all projects."""

    def __init__(self, identity: ServiceClient, reader: ServiceClient, endpoint: EndpointWish) -> None:
        self._identity, self._reader, self._endpoint = identity, reader, endpoint
        self._place: LimitsPlace | None = None

    async def check_model(self) -> None:
        """Raises Invalid when the identity service counts by trees of projects, which oslo.limit does not do either, and Unavailable."""
        reply = await self._reader.call("GET", "/limits/model", deadline_s=DEADLINE_S)
        model = reply.body.get("model", {}).get("name")
        if model != FLAT:
            raise Invalid(
                f"the identity service enforces limits by the model {model}, and only {FLAT} is supported: set "
                '[unified_limit] enforcement_model = flat there, or [quota] driver = "local" here'
            )

    async def place(self) -> LimitsPlace:
        """Return the service and region of the endpoint. Raises Invalid when the catalog does not name exactly one."""
        if self._place is None:
            catalog = await self._identity.call("GET", "/auth/catalog", deadline_s=DEADLINE_S)
            wish = self._endpoint
            found = [
                LimitsPlace(service["id"], endpoint.get("region_id"))
                for service in catalog.body.get("catalog", ())
                for endpoint in service.get("endpoints", ())
                if (
                    endpoint.get("id") == wish.id
                    if wish.id
                    else service.get("type") == COMPUTE
                    and endpoint.get("interface") == wish.interface
                    and wish.region in ("", endpoint.get("region_id"))
                )
            ]
            if len(found) != 1:
                raise Invalid(
                    f"the catalog of the identity service has {len(found)} endpoints that [quota] endpoint_id, endpoint_region and "
                    "endpoint_interface could mean: name the one of compute whose limits hold"
                )
            (self._place,) = found
        return self._place

    async def registered(self, place: LimitsPlace | None = None) -> dict[str, int]:
        """Return the registered limits of the place, or of the configured endpoint. Raises Invalid and Unavailable."""
        rows = await self._rows("registered_limits", place or await self.place())
        return {row["resource_name"]: int(row["default_limit"]) for row in rows}

    async def of_project(self, project: str, place: LimitsPlace | None = None) -> dict[str, int]:
        """Return a project's own limits. Raises Invalid and Unavailable."""
        rows = await self._rows("limits", place or await self.place(), project_id=project)
        return {row["resource_name"]: int(row["resource_limit"]) for row in rows if row.get("project_id") == project}

    async def register(self, place: LimitsPlace, name: str, limit: int) -> None:
        """Create a registered limit. Raises a Problem when the identity service refuses it."""
        await self._create("registered_limits", place, {"resource_name": name, "default_limit": limit})

    async def limit_project(self, place: LimitsPlace, project: str, name: str, limit: int) -> None:
        """Create a project's limit. Raises a Problem when the identity service refuses it."""
        await self._create("limits", place, {"resource_name": name, "resource_limit": limit, "project_id": project})

    async def _create(self, kind: str, place: LimitsPlace, limit: Mapping[str, Any]) -> None:
        where = {"service_id": place.service} | ({} if place.region is None else {"region_id": place.region})
        try:
            await self._identity.call("POST", f"/{kind}", body={kind: [{**where, **limit}]})
        except Unavailable as refused:
            if refused.code != CREDENTIALS:
                raise
            raise Forbidden(
                "the identity service refuses it: there is no registered limit of this name and region, or [service_user] "
                "may not create limits",
                private=refused.private,
            ) from refused

    async def _rows(self, kind: str, place: LimitsPlace, **more: str) -> Sequence[Mapping[str, Any]]:
        where = {"service_id": place.service} | ({} if place.region is None else {"region_id": place.region})
        reply = await self._reader.call("GET", f"/{kind}", params={**where, **more}, deadline_s=DEADLINE_S)
        if reply.body.get("truncated"):
            raise Unavailable(
                f"the identity service shows only a part of {kind}: raise its list_limit, so that all that hold are known"
            )
        rows: Sequence[Mapping[str, Any]] = reply.body.get(kind, ())
        return rows
