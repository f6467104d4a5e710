"""Joins the parts of the identity service; `make_identity` is the way in."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp

from moorage.model.errors import NotFound
from moorage.model.principal import Principal
from moorage.sql import Database, Tx
from moorage.sql.migrate import migrate
from moorage_embedded.identity import store
from moorage_embedded.identity.bootstrap import DEFAULT_DOMAIN, Bootstrap, FirstService, FirstUser, bootstrap
from moorage_embedded.identity.context import TOKEN_LIFE_S, IdentityContext
from moorage_embedded.identity.http import IdentityEndpoint
from moorage_embedded.identity.lockout import DEFAULTS, LockoutLimits
from moorage_embedded.identity.passwords import ROUNDS, Passwords
from moorage_embedded.identity.store import TABLES
from moorage_embedded.identity.tokens import Seal

__all__ = ["Bootstrap", "EmbeddedIdentity", "FirstService", "FirstUser", "IdentitySettings", "make_identity"]


@dataclass(frozen=True)
class IdentitySettings:
    """How long tokens are good, and what a password costs."""

    token_life_s: float = TOKEN_LIFE_S
    password_rounds: int = ROUNDS
    """bcrypt's cost."""
    limits: LockoutLimits = DEFAULTS
    """How many wrong passwords may be tried."""


class EmbeddedIdentity:
    """A Keystone of one process. `start` before the first request; `close` ends its threads."""

    def __init__(self, context: IdentityContext, first: Bootstrap) -> None:
        self._context = context
        self._first = first
        self.app: ASGIApp = IdentityEndpoint(context)

    async def start(self) -> None:
        """Make the tables, and what the cloud begins with; safe at every start."""
        await migrate(self._context.database, TABLES)
        await bootstrap(self._context, self._first)

    async def validate(self, token: str) -> Principal:
        """Who asks with this token; raises Unauthenticated when it is not ours, has ended or was revoked."""
        return await self._context.validate(token)

    async def project_id(self, name: str) -> str:
        """The id of a project of the default domain; raises NotFound."""
        wanted = {"name": name, "domain_id": DEFAULT_DOMAIN}
        rows = await self._context.read(lambda tx: store.find(tx, "projects", wanted))
        if not rows:
            raise NotFound(f"there is no project {name}")
        return str(rows[0]["id"])

    async def limit(self, service: str, resource: str, project: str) -> int | None:
        """A project's limit of a service of this type, or the registered one; None: there is none, or it is -1."""

        def work(tx: Tx) -> int | None:
            services = {row["id"] for row in store.find(tx, "services", {"type": service})}
            ours = store.find(tx, "limits", {"resource_name": resource, "project_id": project})
            usual = store.find(tx, "registered_limits", {"resource_name": resource})
            said = [row["resource_limit"] for row in ours if row["service_id"] in services]
            said += [row["default_limit"] for row in usual if row["service_id"] in services]
            return next((int(each) for each in said), None)

        found = await self._context.remember(("limit", service, resource, project), lambda: self._context.read(work))
        return None if found is None or found < 0 else found

    def close(self) -> None:
        self._context.passwords.close()


def make_identity(
    database: Database,
    *,
    public_url: str,
    bootstrap: Bootstrap,
    key: bytes,
    clock: Callable[[], float] = time.time,
    settings: IdentitySettings = IdentitySettings(),
) -> EmbeddedIdentity:
    """`key` seals the tokens: those of the same key stay good over a restart."""
    context = IdentityContext(
        database,
        seal=Seal(key),
        passwords=Passwords(settings.password_rounds),
        limits=settings.limits,
        clock=clock,
        public_url=public_url,
        token_life_s=settings.token_life_s,
    )
    return EmbeddedIdentity(context, bootstrap)
