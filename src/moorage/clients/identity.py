"""The identity service: validates tokens, and tells whether a project exists and what has registered limits.

Answers are cached for at most a minute under a hash of the token (never the token), or until the token expires; a revoked
token is therefore refused within a minute.  Callers that ask about one token at the same time share one call.

The identity service decides by its own clock whether a token is valid, because our clock may be wrong.  If it refuses our own account
(for example, because that lost a role), this says nothing about the user's token: it is treated as an outage, not as a 401 for the user.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from moorage.clients.http import ServiceClient
from moorage.clients.replies import CREDENTIALS
from moorage.model.access_rules import AccessRule
from moorage.model.errors import Forbidden, Gone, Invalid, NotFound, Refusal, TooLarge, Unauthenticated, Unavailable
from moorage.model.principal import Principal
from moorage.model.task_context import record_caller

KEPT_S = 60.0
REFUSAL_KEPT_S = 10.0
KEPT_MAX = 10_000
TOKEN_MAX_CHARS = 16_384
SERVICE_ROLE = "service"
ACCESS_RULES = {"OpenStack-Identity-Access-Rules": "1.0"}
"""Tells the service that we enforce access rules (`Principal.require_call`)."""
OF_THE_TOKEN = (NotFound, Gone, Invalid, TooLarge)
"""The service's refusals of the token itself; any other refusal concerns our request."""


class IdentityClient:
    """Keystone v3, or the embedded service, through `ServiceClient` with our own credentials."""

    def __init__(self, identity: ServiceClient) -> None:
        self._identity = identity
        self._kept: OrderedDict[str, tuple[float, Principal | None]] = OrderedDict()
        self._validating: dict[str, asyncio.Task[Principal | None]] = {}

    async def validate(self, token: str, service_token: str | None = None) -> Principal:
        """Return the principal of `token`. With a valid service token beside it, a token that has expired meanwhile is still accepted.

        Raises Unauthenticated when the token is not valid, and Unavailable when the identity service is out.
        """
        service = await self._holder(service_token, allow_expired=False) if service_token else None
        trusted = service is not None and SERVICE_ROLE in service.roles
        holder = await self._holder(token, allow_expired=trusted)
        if holder is None:
            raise Unauthenticated("The request you have made requires authentication.")
        principal = msgspec.structs.replace(holder, service_roles=service.roles) if service is not None else holder
        record_caller(principal)
        return principal

    async def project_exists(self, project: str, token: str | None = None) -> bool:
        """Tell whether a project exists; false only if the identity service says so. True if the user may not read projects.

        Raises Unavailable when the identity service is out.
        """
        try:
            await self._identity.call("GET", f"/projects/{_safe(project)}", token=token)
        except NotFound:
            return False
        except Forbidden:
            return True
        except Unavailable as out:
            if out.code != CREDENTIALS:
                raise
        return True

    async def limited_resources(self, service: str) -> tuple[str, ...]:
        """Return the names of the resources for which services of this type have registered limits, in every region.

        Raises a Refusal, and Unavailable when the identity service is out.
        """
        catalog = await self._identity.call("GET", "/auth/catalog")
        names: set[str] = set()
        for id in sorted({each["id"] for each in catalog.body.get("catalog", ()) if each.get("type") == service}):
            found = await self._identity.call("GET", "/registered_limits", params={"service_id": id})
            names |= {each["resource_name"] for each in found.body.get("registered_limits", ())}
        return tuple(sorted(names))

    def forget(self) -> None:
        """Empty the cache."""
        self._kept.clear()

    async def _holder(self, token: str, *, allow_expired: bool) -> Principal | None:
        if not token or len(token) > TOKEN_MAX_CHARS or not token.isprintable() or not token.isascii():
            return None
        key = hashlib.sha256(f"{allow_expired}:{token}".encode()).hexdigest()
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept[0]:
            self._kept.move_to_end(key)
            return kept[1]
        task = self._validating.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key, token, allow_expired))
            self._validating[key] = task
            task.add_done_callback(lambda _: self._validating.pop(key, None))
        return await asyncio.shield(task)  # a caller that is cancelled must not fail the others

    async def _ask(self, key: str, token: str, allow_expired: bool) -> Principal | None:
        params = {"nocatalog": "1", **({"allow_expired": "1"} if allow_expired else {})}
        try:
            reply = await self._identity.call(
                "GET", "/auth/tokens", params=params, headers={"X-Subject-Token": token, **ACCESS_RULES}
            )
        except OF_THE_TOKEN:
            self._keep(key, REFUSAL_KEPT_S, None)
            return None
        except Refusal as refused:
            raise Unavailable(
                "the identity service does not let us ask who holds a token",
                private=f"{refused.private}; [service_user] needs the role admin or service",
                code=CREDENTIALS,
            ) from refused
        principal = principal_of(reply.body.get("token", {}))
        left_s = KEPT_S if allow_expired else min(KEPT_S, _left_s(principal.expires_at, reply.headers.get("date", "")))
        if left_s > 0:
            self._keep(key, left_s, principal)
        return principal

    def _keep(self, key: str, for_s: float, answer: Principal | None) -> None:
        self._kept[key] = (time.monotonic() + for_s, answer)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)


def principal_of(token: Mapping[str, Any]) -> Principal:
    """Return the principal that a Keystone v3 token describes."""
    user: Mapping[str, Any] = token.get("user", {})
    project: Mapping[str, Any] = token.get("project", {})
    domain: Mapping[str, Any] = token.get("domain", {})
    return Principal(
        user=user.get("id", ""),
        user_name=user.get("name", ""),
        user_domain=user.get("domain", {}).get("id", "default"),
        project=project.get("id"),
        project_name=project.get("name", ""),
        project_domain=project.get("domain", {}).get("id", "default"),
        domain=domain.get("id"),
        system=bool(token.get("system", {}).get("all")),
        roles=tuple(role["name"].lower() for role in token.get("roles", ())),
        is_admin_project=token.get("is_admin_project", True),
        expires_at=token.get("expires_at", ""),
        access_rules=_rules(token.get("application_credential", {}).get("access_rules")),
    )


def _rules(rules: Any) -> tuple[AccessRule, ...] | None:
    if rules is None:
        return None
    return tuple(AccessRule(each.get("service", ""), each.get("method", ""), each.get("path", "")) for each in rules)


def _left_s(expires_at: str, date: str) -> float:
    """The token's remaining life by the clock of the service, from the header `Date`; our clock only if the service has none."""
    try:
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return (datetime.fromisoformat(expires_at) - now).total_seconds()
    except (TypeError, ValueError):  # no expiry, or one without a zone: believe the service, which has just said yes
        return KEPT_S


def _safe(name: str) -> str:
    """Quote an id, so that it stays one segment of a path."""
    return "".join(c for c in name if c.isalnum() or c in "-_.")[:255].strip(".") or "-"
