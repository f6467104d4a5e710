"""HTTP servers of one process. Every port is bound before anything else starts, so a port in use is reported at once."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

import uvicorn
from typing_extensions import override

from moorage.main.config import Config, Listen
from moorage.main.connection_limits import Doorkeeper
from moorage.main.http_protocol import Admission, CountedWebSocket, LimitedProtocol
from moorage.main.rate_limits import RateLimits
from moorage.main.tls import ServedCertificate
from moorage.main.tls_acceptor import TlsAcceptor
from moorage.model.errors import Invalid

BACKLOG = 2048
LET_FINISH_S = 5.0
LOOK_EVERY_S = 1.0
"""How often the time limits of connections are checked."""
CERTIFICATE_EVERY_S = 5.0
"""How often the files of a certificate are checked for changes."""
WS_MESSAGE_MAX_BYTES = 1024 * 1024
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""Headers of every answer, for browsers."""
SAID_BY_ITSELF = {
    "console": frozenset(HEADERS),
    "webconsole": frozenset(HEADERS),
    "placement": frozenset({"Cache-Control"}),
}
"""Headers that these services set themselves."""

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Accepts connections within limits and checks their time. The process handles signals, not each server."""

    def __init__(self, config: uvicorn.Config, door: "HttpServer", requests_max: int) -> None:
        super().__init__(config)
        self._door = door
        self._requests_max = requests_max
        self._looked_at = 0.0
        self._certificate_at = 0.0

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        door, limits = self._door, self._door.limits
        loop = asyncio.get_running_loop()
        self.servers = []
        make = partial(
            LimitedProtocol,
            self.config,
            self.server_state,
            self.lifespan.state,
            loop,
            admission=Admission(limits, self._requests_max, door.rates, door.doorkeeper),
        )
        certificate = door.certificate
        for each in sockets or ():
            if certificate is None:
                self.servers.append(await loop.create_server(make, sock=each, backlog=BACKLOG))
            else:
                acceptor = TlsAcceptor(
                    each, door.doorkeeper, lambda visit: make(visit=visit), certificate, limits.head_s, BACKLOG
                )
                self.servers.append(cast("asyncio.base_events.Server", acceptor))
        self._looked_at = self._certificate_at = loop.time()
        self.started = True

    @override
    async def on_tick(self, counter: int) -> bool:
        now = asyncio.get_running_loop().time()
        if (passed_s := now - self._looked_at) >= LOOK_EVERY_S:
            self._looked_at = now
            for connection in self._door.connections:
                connection.check_progress(
                    min(passed_s, 2 * LOOK_EVERY_S)
                )  # if this process stood still, the clients were not slow
        if self._door.certificate is not None and now - self._certificate_at >= CERTIFICATE_EVERY_S:
            self._certificate_at = now
            self._door.certificate.reread()
        return await super().on_tick(counter)


class HttpServer:
    """One application on one port."""

    def __init__(self, name: str, listen: Listen, config: Config | None = None) -> None:
        """`config`: limits and certificates of all servers. Raises Invalid when the port is in use or the certificate cannot be read."""
        config = config or Config()
        self.name = name
        self.listen = listen
        self.limits = config.api.limits
        self.doorkeeper = Doorkeeper(self.limits, config.api.trusted_proxies, name)
        rates = config.api.rates
        self.rates = RateLimits(rates) if rates.project_per_s or rates.address_per_s else None
        self.certificate = _certificate(listen, config.data)
        self._hsts_s = config.api.hsts_s
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((listen.host, listen.port))
        except OSError as taken:
            self._socket.close()
            if taken.errno != errno.EADDRINUSE:
                raise Invalid(
                    f"the {name} service cannot listen on {listen.host} port {listen.port}: {taken.strerror or taken}"
                ) from taken
            raise Invalid(
                f"port {listen.port} on {listen.host} is taken, and the {name} service needs it: stop what listens there, "
                f"or choose another with --{name}-port (or --port-shift for all)"
            ) from taken

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def connections(self) -> list[LimitedProtocol]:
        """The connections that speak HTTP."""
        protocols = () if self._server is None else self._server.server_state.connections
        return [each for each in protocols if isinstance(each, LimitedProtocol)]

    async def open(self, app: Any, *, websockets_max: int = 0) -> None:
        """Serve the application; returns when connections are answered. `websockets_max`: how many WebSockets at once; 0: none."""
        config = uvicorn.Config(
            app,
            http=LimitedProtocol,
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(LET_FINISH_S),
            server_header=False,
            date_header=True,
            headers=self._headers(),
            ws=CountedWebSocket if websockets_max else "none",
            ws_max_size=WS_MESSAGE_MAX_BYTES,
        )
        self._server = _Server(config, self, self.limits.requests_max + websockets_max)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name=f"http-{self.name}")
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.005)
        if self.certificate is not None:
            _open_with_tls.add(self)

    async def close(self) -> None:
        """Answer the requests that have come, then stop."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
        _open_with_tls.discard(self)
        self._socket.close()

    def _headers(self) -> list[tuple[str, str]]:
        replaced = SAID_BY_ITSELF.get(self.name, frozenset())
        headers = [(name, value) for name, value in HEADERS.items() if name not in replaced]
        if self.certificate is not None and self._hsts_s:
            headers.append(("Strict-Transport-Security", f"max-age={self._hsts_s}"))
        return headers


_open_with_tls: WeakSet[HttpServer] = WeakSet()


def reread_certificates() -> None:
    """Read the certificates of all open servers of this process again, even if their files do not look changed."""
    for door in list(_open_with_tls):
        if door.certificate is not None:
            door.certificate.reread(always=True)


def _certificate(listen: Listen, data: Path) -> ServedCertificate | None:
    """Relative paths are taken from the data directory."""
    if not listen.has_tls:
        return None
    return ServedCertificate(data / listen.cert, data / listen.key if listen.key else None)
