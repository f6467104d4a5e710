"""What every handler shares: the database, the seal, the passwords, and what is remembered between requests.

Remembered are standings, the catalog and the revoked, so that a token is checked without SQL.  Every write through
`IdentityContext.write` forgets all of it; an answer read while a write went by is used once and not kept.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar, cast

from moorage.model.errors import Conflict
from moorage.model.principal import Principal
from moorage.model.task_context import record_caller
from moorage.sql import Database, Tx
from moorage_embedded.identity import associations, store
from moorage_embedded.identity.effective_roles import EffectiveRoles, refused, stand
from moorage_embedded.identity.lockout import DEFAULTS, Lockout, LockoutLimits, Throttle
from moorage_embedded.identity.passwords import Passwords
from moorage_embedded.identity.tokens import Claims, Seal
from moorage_embedded.identity.trust_chain import stand_on_trust

T = TypeVar("T")

REMEMBERED_MAX = 20_000
TOKEN_LIFE_S = 3600.0


@lru_cache(maxsize=10_000)
def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class IdentityContext:
    """One per service; belongs to one event loop."""

    def __init__(
        self,
        database: Database,
        *,
        seal: Seal,
        passwords: Passwords,
        limits: LockoutLimits = DEFAULTS,
        clock: Callable[[], float],
        public_url: str,
        token_life_s: float = TOKEN_LIFE_S,
    ) -> None:
        self.database = database
        self.seal = seal
        self.passwords = passwords
        self.lockout = Lockout(database, limits, clock)
        self.throttle = Throttle(limits.failures_per_minute, clock)
        self.clock = clock
        self.url = public_url.rstrip("/").removesuffix("/v3") + "/v3"
        self.token_life_s = token_life_s
        self._generation = 0
        self._remembered: OrderedDict[tuple[object, ...], object] = OrderedDict()

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self.database.read(work)

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run a write. Raises Conflict when a concurrent write made the same entry."""
        try:
            return await self.database.write(work)
        except store.Doubled as failure:
            raise Conflict("Conflict occurred: a duplicate entry was made at the same moment.") from failure
        finally:
            self._generation += 1
            self._remembered.clear()

    async def remember(self, key: tuple[object, ...], find: Callable[[], Awaitable[T]]) -> T:
        """What `find` says, kept until anything is written."""
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return cast("T", self._remembered[key])
        before = self._generation
        found = await find()
        if before == self._generation:
            self._remembered[key] = found
            while len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return found

    async def revoked(self) -> frozenset[str]:
        return await self.remember(("revoked",), lambda: self.read(lambda tx: store.revoked(tx, self.clock())))

    async def claims(self, token: str) -> Claims:
        """What a token says, if it is ours, has not ended and was not revoked; else Unauthenticated."""
        claims = self.seal.open(token)
        if claims.expires_at <= self.clock() or not (await self.revoked()).isdisjoint(claims.audit_ids):
            raise refused()
        return claims

    async def standing(self, claims: Claims) -> EffectiveRoles:
        key = ("standing", claims.user, claims.scope, claims.scope_id, claims.application_credential, claims.trust)
        find = stand_on_trust if claims.trust else stand
        found = await self.remember(key, lambda: self.read(lambda tx: find(tx, claims)))
        if claims.issued_at < max(found.user["tokens_from"], found.tokens_from):
            raise refused()
        return found

    async def validate(self, token: str) -> Principal:
        """The principal of a token. Raises Unauthenticated.

        Tokens that may only make certain calls are refused too, because the call is not known here.
        """
        claims = await self.claims(token)
        standing = await self.standing(claims)
        if standing.access_rules is not None:
            raise refused()
        principal = principal_of(claims, standing)
        record_caller(principal)
        return principal

    async def catalog(self) -> list[dict[str, Any]]:
        """Services that are enabled, each with its enabled endpoints; URLs as they were stored."""
        return await self.remember(("catalog",), lambda: self.read(_catalog))

    async def endpoints_of(self, project: str) -> frozenset[str]:
        """The endpoints that the catalog of this project is limited to; empty when it is not limited."""
        if not await self.remember(("associations",), lambda: self.read(associations.exist)):
            return frozenset()

        def work(tx: Tx) -> frozenset[str]:
            return frozenset(each["id"] for each in associations.of_project(tx, project))

        return await self.remember(("endpoints", project), lambda: self.read(work))


def principal_of(claims: Claims, standing: EffectiveRoles) -> Principal:
    project, home = standing.project, standing.project_domain
    return Principal(
        user=standing.user["id"],
        user_name=standing.user["name"],
        user_domain=standing.user_domain["id"],
        project=None if project is None else project["id"],
        project_name="" if project is None else project["name"],
        project_domain="" if home is None else home["id"],
        domain=None if standing.domain is None else standing.domain["id"],
        system=claims.scope == "system",
        roles=tuple(name.lower() for _, name in standing.roles),
        expires_at=iso(claims.expires_at),
    )


def _catalog(tx: Tx) -> list[dict[str, Any]]:
    found = {one["id"]: {**one, "endpoints": []} for one in store.find(tx, "services", {"enabled": True})}
    for endpoint in store.find(tx, "endpoints", {"enabled": True}):
        if endpoint["service_id"] in found:
            found[endpoint["service_id"]]["endpoints"].append(endpoint)
    return list(found.values())
