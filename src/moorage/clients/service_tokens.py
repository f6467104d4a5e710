"""Our own token of the identity service, which all calls in this process share."""

import asyncio
import time
from contextvars import Context, copy_context
from datetime import datetime
from typing import Any, Protocol

from moorage.clients.replies import CREDENTIALS, ServiceResponse
from moorage.model.errors import Refusal, Unavailable, UnknownOutcome
from moorage.model.task_context import lease_left

TOKEN_DEADLINE_S = 15.0
"""A token of ours is asked for no longer, so that most who wait for it hear that it is the identity service that does not answer."""
TOKEN_MARGIN_S = 60.0
"""A service token is replaced this long before it expires."""
TOKEN_LIFE_DEFAULT_S = 300.0


class IdentityService(Protocol):
    """What is called for a token: `http.ServiceClient`."""

    call_deadline_s: float

    async def call(
        self, method: str, path: str, *, token: str | None, body: dict[str, Any] | None, deadline_s: float | None
    ) -> ServiceResponse: ...


class ServiceTokens:
    """Our own Keystone v3 token: asked for once, replaced before it expires or when a service no longer takes it.

    The call for it is everybody's: all who need a token meanwhile wait for the same one and share its failure.  Nobody's deadline, lease or
    hanging up ends it, so that it fails as the identity service's call, which the identity service's breaker counts.
    """

    def __init__(
        self,
        identity: IdentityService,
        *,
        user: str,
        password: str,
        project: str = "service",
        domain: str = "Default",
    ) -> None:
        self._identity = identity
        self._asks: dict[str, Any] = {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"name": user, "domain": {"name": domain}, "password": password}},
                },
                "scope": {"project": {"name": project, "domain": {"name": domain}}},
            }
        }
        self._token = ""
        self._project = ""
        self._good_until = 0.0
        self._asking: asyncio.Task[None] | None = None

    def is_fresh(self) -> bool:
        """Whether there is one, so that `get` asks nobody."""
        return self._asking is None and time.monotonic() < self._good_until

    async def get(self, *, fresh: bool = False) -> str:
        """A token with time left. `fresh`: the one we gave was refused."""
        if self._asking is None and (fresh or not self.is_fresh()):
            self._good_until = 0.0
            self._asking = asyncio.create_task(self._ask(), name="service-token", context=_without_lease())
            self._asking.add_done_callback(self._on_token_done)
        if self._asking is not None:
            await asyncio.shield(self._asking)
        return self._token

    def _on_token_done(self, asking: asyncio.Task[None]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # those who waited were told; it may be that nobody does any more

    async def project(self) -> str:
        """The id of the project that our token is for."""
        if not self._project:
            await self.get()
        return self._project

    async def _ask(self) -> None:
        asked_at = time.monotonic()
        try:
            deadline_s = min(TOKEN_DEADLINE_S, self._identity.call_deadline_s)
            reply = await self._identity.call("POST", "/auth/tokens", token="", body=self._asks, deadline_s=deadline_s)
        except UnknownOutcome as lost:  # a token more or less does no harm
            raise Unavailable(lost.public, private=lost.private) from lost
        except Refusal as refused:
            raise Unavailable(
                "the identity service does not accept our credentials", private=refused.public, code=CREDENTIALS
            ) from refused
        token = reply.headers.get("X-Subject-Token")
        if not token:
            raise Unavailable("the identity service answers without a token", private=f"status {reply.status}")
        self._token = token
        self._project = str(reply.body.get("token", {}).get("project", {}).get("id", ""))
        life_s = _life_s(reply)
        self._good_until = asked_at + max(life_s - TOKEN_MARGIN_S, life_s / 2)


def _without_lease() -> Context:
    """Whoever asks first may hold a lease, which says nothing of the others; a token more or less does no harm."""
    context = copy_context()
    context.run(lease_left.set, None)
    return context


def _life_s(reply: ServiceResponse) -> float:
    """How long a token lives by the identity service's own clock, so that ours may differ."""
    token = reply.body.get("token", {})
    try:
        return (
            datetime.fromisoformat(token["expires_at"]) - datetime.fromisoformat(token["issued_at"])
        ).total_seconds()
    except (KeyError, ValueError):
        return TOKEN_LIFE_DEFAULT_S
