"""Consoles of simulated guests: a simulated screen and a serial line that echoes, each on a port of its own while the guest runs.

A port is opened at the first request for the console, and closed with all its connections when the guest is off or destroyed: then a
token for it no longer works.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from moorage.drivers.framebuffer import Screen
from moorage.model.console import ConsoleSocket, ConsoleType
from moorage.model.errors import HostFailed
from moorage.model.ids import ServerId

VIEWERS_MAX = 8
"""Limit of connections to one console."""
CONSOLES_MAX = 1_000
"""Limit of a host's open console ports."""
READ_BYTES = 4_096
TAIL_CHARACTERS = 2_000
SPICE_GREETING = b"REDQ"

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_log = logging.getLogger(__name__)


class _Listening:
    """One port and its connections."""

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self._server: asyncio.Server | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self, address: str) -> int:
        self._server = await asyncio.start_server(self._meet, address, 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self.tasks:
            task.cancel()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            if len(self.tasks) <= VIEWERS_MAX:
                await self._speak(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the viewer went, or the guest
        finally:
            self.tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()


class SimulatedConsoles:
    """The consoles of one host."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self._address = address
        self._open: dict[tuple[ServerId, str], tuple[_Listening, ConsoleSocket]] = {}

    async def socket(self, server: ServerId, kind: str, name: str, written: Callable[[], str]) -> ConsoleSocket:
        """Return the address of a guest's console, which is opened now if it was not open. `written`: what the guest has
        written to its serial console.

        Raises HostFailed when the host has no port left.
        """
        known = self._open.get((server, kind))
        if known is not None:
            return known[1]
        if len(self._open) >= CONSOLES_MAX:
            raise HostFailed("the host has no port left for a console", private=server, code="console_unavailable")
        listening = _Listening(self._speaker(kind, name, written))
        port = await listening.open(self._address)
        if (again := self._open.get((server, kind))) is not None:  # somebody else asked meanwhile
            listening.close()
            return again[1]
        tls_port = port if kind == ConsoleType.SPICE_DIRECT else None
        path = f"/{server}" if kind == ConsoleType.WEBMKS else None
        console = ConsoleSocket(self._address, port, tls_port, path)
        self._open[server, kind] = (listening, console)
        return console

    def close_of(self, server: ServerId) -> None:
        """Close the consoles of a server whose guest no longer runs."""
        for kind in ConsoleType:
            known = self._open.pop((server, kind.value), None)
            if known is not None:
                known[0].close()

    def close(self) -> None:
        for server, _ in list(self._open):
            self.close_of(server)

    def _speaker(self, kind: str, name: str, written: Callable[[], str]) -> Speak:
        async def screen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await Screen(name, (name, "a simulated guest", ""), reader, writer).serve()

        async def serial(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(written()[-TAIL_CHARACTERS:].encode())
            await _echo(reader, writer)

        async def answer_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if head.startswith(b"CONNECT /") else b"HTTP/1.1 404 No\r\n\r\n")
            await _echo(reader, writer)

        match kind:
            case ConsoleType.NOVNC:
                return screen
            case ConsoleType.WEBMKS:
                return answer_connect
            case ConsoleType.SERIAL:
                return serial
            case _:
                return _greet_and_echo


async def _greet_and_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(SPICE_GREETING)
    await _echo(reader, writer)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(READ_BYTES):
        writer.write(data.replace(b"\r", b"\r\n"))
        await writer.drain()
