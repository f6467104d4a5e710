"""Consoles of servers: issues a token for a console, and checks the token when it is used.

A token is valid until it expires, while its server is on the same host and that host reports the console at the same
address. A guest that was stopped, moved, rebuilt or deleted has no console there (its old port may serve another guest
now). With `single_use`, the first connection consumes the token.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

from moorage.bus.agent_calls import HostAddress
from moorage.bus.agent_rpc import NOT_SUPPORTED, AgentClient
from moorage.bus.guest_payloads import GetConsole
from moorage.bus.verbs import Verb
from moorage.model.clock import Clock
from moorage.model.console import ConsoleSocket, ConsoleToken, ConsoleType
from moorage.model.errors import Conflict, HostFailed, Invalid, NotBuilt, NotFound, Unavailable, UnknownOutcome
from moorage.model.ids import CellId, ServerId
from moorage.model.server import Server, TaskState
from moorage.sql import Database, label
from moorage.store.cell import servers as cell_servers
from moorage.store.region import console_tokens
from moorage.store.region import servers as region_servers

TOKENS_OF_A_SERVER_MAX = 20
TOKEN_CHARACTERS_MAX = 255
HOST_PATIENCE_S = 10.0
GOING = frozenset({TaskState.DELETING, TaskState.SOFT_DELETING})
NOT_NOW = GOING | {TaskState.MIGRATING}
"""In these states no console is issued: the guest is about to move or to be deleted."""
UNAVAILABLE = "console_unavailable"


@dataclass(frozen=True)
class ConsoleSettings:
    """What an operator may configure (`main/config.py` explains each setting)."""

    urls: Mapping[str, str]
    """Console type → the URL of its proxy; a type without one is unavailable."""
    token_life_s: float = 600.0
    single_use: bool = True


class Consoles:
    """Issues console tokens, and resolves them."""

    def __init__(
        self,
        region: Database,
        cells: Mapping[str, Database],
        hosts: AgentClient,
        clock: Clock,
        settings: ConsoleSettings,
    ) -> None:
        self._region, self._cells, self._hosts, self._clock = region, cells, hosts, clock
        self.settings = settings

    async def open(self, server: Server, kind: ConsoleType) -> str:
        """Return the console's URL with a new token.

        Raises Invalid for an unavailable type, Conflict when the server has no console now, NotBuilt when its host has
        no consoles, Unavailable when the host does not answer.
        """
        base = self.settings.urls.get(kind.value)
        if not base:
            raise Invalid(f"Unavailable console type {kind.value}.")
        if server.cell is None or server.host is None:
            raise Conflict(f"Instance {server.id} is not ready")
        if server.task_state in NOT_NOW:
            raise Conflict(
                f"Cannot 'get_{kind.value}_console' instance {server.id} while it is in task_state {server.task_state}"
            )
        socket = await self._listening(server.cell, server.host, server.id, kind)
        token, now = secrets.token_urlsafe(32), self._now()
        life_us = int(self.settings.token_life_s * 1_000_000)
        kept = ConsoleToken(digest(token), server.id, kind.value, server.host, socket, now + life_us, now)
        with label("consoles"):
            await self._region.write(lambda tx: console_tokens.add(tx, kept, TOKENS_OF_A_SERVER_MAX))
        return access_url(base, kind, token)

    async def _listening(self, cell: CellId, host: str, server: ServerId, kind: ConsoleType) -> ConsoleSocket:
        try:
            return await self._ask(cell, host, server, kind.value)
        except HostFailed as failure:
            if failure.code == NOT_SUPPORTED:
                raise NotBuilt("The host of this server has no consoles.", private=str(failure)) from failure
            if failure.code == UNAVAILABLE:
                raise Invalid(f"Unavailable console type {kind.value}.", private=str(failure)) from failure
            raise Conflict(
                f"Instance {server} has no console now: {failure.public}.", private=failure.private
            ) from failure
        except UnknownOutcome as lost:
            raise Unavailable("The host of this server did not answer in time.", private=lost.private) from lost

    async def _ask(self, cell: CellId, host: str, server: ServerId, kind: str) -> ConsoleSocket:
        to = HostAddress(cell, host)
        return await self._hosts.ask(to, server, Verb.GET_CONSOLE, GetConsole(kind), ConsoleSocket, HOST_PATIENCE_S)

    # --------------------------------------------------------------------------------------------- tokens in use

    async def resolve(self, token: str) -> ConsoleToken:
        """Return the token's console. Raises NotFound with the reason when the token is not valid; Unavailable when the
        host does not answer.
        """
        if not 0 < len(token) <= TOKEN_CHARACTERS_MAX:
            raise NotFound("there is no such token")
        with label("consoles"):
            console_token = await self._region.read(lambda tx: console_tokens.get(tx, digest(token)))
        if console_token is None:
            raise NotFound("there is no such token, or it expired long ago")
        if console_token.expires_at <= self._now():
            raise NotFound("the token has expired: request a new one")
        if console_token.used and self.settings.single_use:
            raise NotFound("the token was used before: request a new one")
        await self._still_there(console_token)
        return console_token

    async def take(self, token: ConsoleToken) -> None:
        """Consume the token. Raises NotFound when another connection was faster."""
        if not self.settings.single_use:
            return
        with label("consoles"):
            taken = await self._region.write(lambda tx: console_tokens.take(tx, token.hash, self._now()))
        if not taken:
            raise NotFound("the token was used before: request a new one")

    def left_s(self, token: ConsoleToken) -> float:
        """Seconds until the token expires."""
        return max(0.0, (token.expires_at - self._now()) / 1_000_000)

    async def _still_there(self, token: ConsoleToken) -> None:
        server = ServerId(token.server)
        with label("consoles"):
            where = await self._region.read(lambda tx: region_servers.find(tx, server))
        cell = None if where is None or where.cell is None else where.cell
        database = None if cell is None else self._cells.get(cell)
        if cell is None or database is None:
            raise NotFound("the server is gone")
        with label("consoles"):
            record = await database.read(lambda tx: cell_servers.get(tx, server))
        if record is None or record.deleted:
            raise NotFound("the server is gone")
        if record.host != token.host:
            raise NotFound("the server has moved to another host: request a new token")
        if record.task_state in GOING:
            raise NotFound("the server is being deleted")
        try:
            now = await self._ask(cell, token.host, server, token.type)
        except HostFailed as failure:
            if failure.code == "host_silent":
                raise Unavailable("the host of the server does not answer", private=failure.private) from failure
            raise NotFound(f"the server has no console now: {failure.public}", private=failure.private) from failure
        except UnknownOutcome as lost:
            raise Unavailable("the host of the server does not answer", private=lost.private) from lost
        if now != token.socket:
            raise NotFound("the server was started again: request a new token")

    def _now(self) -> int:
        return int(self._clock.now() * 1_000_000)


def digest(token: str) -> str:
    """The form in which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def access_url(base: str, kind: ConsoleType, token: str) -> str:
    """The proxy's URL with the token: inside noVNC's query `path`, which its page passes to the WebSocket; for others
    as `token`.
    """
    if kind is not ConsoleType.NOVNC:
        return f"{base}?token={token}"
    split = urlsplit(base)
    query = parse_qs(split.query)
    query["path"] = [f"{query.get('path', [''])[0]}?token={token}"]
    return split._replace(query=urlencode(query, doseq=True)).geturl()
