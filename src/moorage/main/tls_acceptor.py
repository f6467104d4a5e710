"""Accepts connections with TLS: they are counted before their handshake, and get the certificate that is in use at that moment.

`asyncio.Server` makes a protocol only after the handshake, so connections that never finish it would not be counted.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from moorage.main.connection_limits import Doorkeeper, Visit
from moorage.main.tls import ServedCertificate

REST_S = 0.5
"""Pause after this process, or its machine, had no file descriptor left for another connection."""
GOODBYE_S = 1.0
"""How long the other side may take to confirm the end of the TLS connection."""

log = logging.getLogger(__name__)


class TlsAcceptor:
    """Accepts from one socket until it is closed, as `asyncio.Server` does."""

    def __init__(
        self,
        listening: socket.socket,
        doorkeeper: Doorkeeper,
        make_protocol: Callable[[Visit], asyncio.Protocol],
        certificate: ServedCertificate,
        handshake_s: float,
        backlog: int,
    ) -> None:
        self._socket = listening
        self._doorkeeper = doorkeeper
        self._make_protocol = make_protocol
        self._certificate = certificate
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[None]] = set()
        listening.setblocking(False)
        listening.listen(backlog)
        self._task = self._loop.create_task(self._accept(), name="accept-tls")

    def close(self) -> None:
        self._task.cancel()
        for each in self._entering:
            each.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(self._task, *self._entering, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._socket)
            except OSError as failure:
                if failure.errno != errno.ECONNABORTED:  # the client is gone again
                    log.error("no connection can be accepted: %s", failure.strerror or failure)
                    await asyncio.sleep(REST_S)
                continue
            visit = self._doorkeeper.admit(address[0])
            if visit is None:
                connection.close()
                continue
            task = self._loop.create_task(self._enter(connection, visit))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter(self, connection: socket.socket, visit: Visit) -> None:
        entered = False
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(visit),
                connection,
                ssl=self._certificate.context,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=GOODBYE_S,
            )
            entered = True
        except (OSError, EOFError) as failure:  # its handshake failed, or took too long
            log.debug("a connection from %s ended before it began: %r", visit.caller, failure)
        finally:
            if not entered:
                visit.leave()
                connection.close()
