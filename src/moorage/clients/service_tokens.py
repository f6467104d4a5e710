"""Our own token of the identity service, which all calls of this process share."""

import asyncio
import time
from contextvars import Context, copy_context
from datetime import datetime
from typing import Any, Protocol

from moorage.clients.replies import CREDENTIALS, ServiceResponse
from moorage.model.errors import Refusal, Unavailable, UnknownOutcome
from moorage.model.task_context import lease_left

TOKEN_DEADLINE_S = 15.0
"""Deadline for getting our token; short, so that callers learn that the identity service does not answer before their own deadline."""
TOKEN_MARGIN_S = 60.0
"""A service token is replaced this long before it expires."""
TOKEN_LIFE_DEFAULT_S = 300.0


class TokenIssuer(Protocol):
    """The client that is called for a token: `http.ServiceClient`."""

    call_deadline_s: float

    async def call(
        self, method: str, path: str, *, token: str | None, body: dict[str, Any] | None, deadline_s: float | None
    ) -> ServiceResponse: ...


class ServiceTokens:
    """Our own Keystone v3 token: fetched once, replaced before it expires or when a service no longer accepts it.

    All callers that need a token meanwhile wait for the same call and share its failure.  No caller's deadline, lease or
    cancellation ends this call, so a failure is always the identity service's own, and its circuit breaker counts it.
    """

    def __init__(
        self,
        identity: TokenIssuer,
        *,
        user: str,
        password: str,
        project: str = "service",
        domain: str = "Default",
        system: bool = False,
    ) -> None:
        """`system`: the token is one of the system, and no project's."""
        self._identity = identity
        self._credentials: dict[str, Any] = {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"name": user, "domain": {"name": domain}, "password": password}},
                },
                "scope": {"system": {"all": True}}
                if system
                else {"project": {"name": project, "domain": {"name": domain}}},
            }
        }
        self._token = ""
        self._project = ""
        self._good_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def is_fresh(self) -> bool:
        """Tell whether there is a valid token, so that `get` makes no call."""
        return self._task is None and time.monotonic() < self._good_until

    async def get(self, *, fresh: bool = False) -> str:
        """Return a token that is still valid for a while. `fresh`: the last one was refused, so fetch a new one."""
        if self._task is None and (fresh or not self.is_fresh()):
            self._good_until = 0.0
            self._task = asyncio.create_task(self._ask(), name="service-token", context=_without_lease())
            self._task.add_done_callback(self._on_token_done)
        if self._task is not None:
            await asyncio.shield(self._task)
        return self._token

    def _on_token_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # the waiting callers have the error; perhaps none waits any more

    async def project(self) -> str:
        """Return the id of our token's project."""
        if not self._project:
            await self.get()
        return self._project

    async def _ask(self) -> None:
        requested_at = time.monotonic()
        try:
            deadline_s = min(TOKEN_DEADLINE_S, self._identity.call_deadline_s)
            reply = await self._identity.call(
                "POST", "/auth/tokens", token="", body=self._credentials, deadline_s=deadline_s
            )
        except UnknownOutcome as lost:  # an unused token does no harm
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
        self._good_until = requested_at + max(life_s - TOKEN_MARGIN_S, life_s / 2)


def _without_lease() -> Context:
    """A context without the first caller's lease, which must not limit the other callers; an unused token does no harm."""
    context = copy_context()
    context.run(lease_left.set, None)
    return context


def _life_s(reply: ServiceResponse) -> float:
    """The token's remaining life in seconds by the identity service's own clock, because ours may differ."""
    token = reply.body.get("token", {})
    try:
        return (
            datetime.fromisoformat(token["expires_at"]) - datetime.fromisoformat(token["issued_at"])
        ).total_seconds()
    except (KeyError, ValueError):
        return TOKEN_LIFE_DEFAULT_S
