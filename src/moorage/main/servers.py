"""HTTP servers of one process: every door bound before anything else starts, so a taken port is said at once."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from typing_extensions import override

from moorage.main.config import Listen
from moorage.model.errors import Invalid

BACKLOG = 2048
LET_FINISH_S = 5.0
WS_MESSAGE_MAX_BYTES = 1024 * 1024
KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections: who closes first must be the client, or its next request is lost."""


class _Server(uvicorn.Server):
    """Signals are the process's affair, not one door's."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Doorway:
    """One application on one port."""

    def __init__(self, name: str, listen: Listen) -> None:
        self.name = name
        self.listen = listen
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

    async def open(self, app: Any, *, websockets: bool = False, certificate: str = "", key: str = "") -> None:
        """Serve from now on, with TLS where there is a certificate; returns when the first connection would be answered."""
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(LET_FINISH_S),
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
            date_header=True,
            ws="websockets-sansio" if websockets else "none",
            ws_max_size=WS_MESSAGE_MAX_BYTES,
            ssl_certfile=certificate or None,
            ssl_keyfile=key or None,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name=f"http-{self.name}")
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Answer what was asked, then stop."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
        self._socket.close()
