"""The process that answers guests at 169.254.169.254 (and fe80::a9fe:a9fe): it asks the metadata service for them, as Neutron's agents do.

    python -m moorage.drivers.libvirt.metadata_proxy CONF     returns when it listens; the process goes on without its parent

On each bridge it has sockets that belong to that device, so it knows by the socket which network a guest is on, and by the guest's address
which guest it is.  What a guest says of itself in headers is not passed on.  `CONF` (written by metadata_keeper.py) has each guest's
signature, and not the secret that signs.  SIGHUP: read `CONF` again; SIGTERM: end.

What guests say is parsed by a process that is not root's: it becomes the user that `CONF` names, and may take ports and addresses of the
machine for bridges that come later, and nothing else.  The directory of `CONF` is its own, for it may not search those above.

Limits (connection_shares.py): `CONNECTIONS_MAX` in all and `GUEST_CONNECTIONS_MAX` of one guest, over which 503 is answered; `HEAD_S` and `HEAD_MAX_BYTES` for a
request, `BODY_MAX_BYTES` for what comes with it, `ANSWER_S` and `ANSWER_MAX_BYTES` for the service's answer.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  # pyright: ignore[reportUnusedImport] - see the next one
import contextlib
import encodings.idna  # noqa: F401  # pyright: ignore[reportUnusedImport] - both look names up, and our files may be closed by then
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httptools
import msgspec

from moorage.drivers.libvirt.connection_shares import ConnectionShares
from moorage.drivers.libvirt.line_limit import LineLimit
from moorage.drivers.libvirt.metadata_sockets import index_of, sockets_on
from moorage.drivers.libvirt.privileges import NET_BIND_SERVICE, NET_RAW, become

CONNECTIONS_MAX, GUEST_CONNECTIONS_MAX, STRANGERS_MAX = 512, 16, 8
HEAD_S, ANSWER_S, SEND_S, NEIGHBOUR_S, STRANGER_S = 10.0, 60.0, 30.0, 5.0, 1.0
HEAD_MAX_BYTES, BODY_MAX_BYTES, ANSWER_MAX_BYTES = 16_384, 8_192, 4 << 20
CHUNK_BYTES = 1 << 16
PASSED_ON = frozenset({b"accept", b"content-type", b"user-agent"})
REASONS = {
    400: "Bad Request",
    404: "Not Found",
    408: "Request Timeout",
    413: "Content Too Large",
    503: "Service Unavailable",
}

log = logging.getLogger("moorage.metadata_proxy")


class KnownGuest(msgspec.Struct, frozen=True):
    """A guest, with what proves to the metadata service that it is this one."""

    server: str
    project: str
    signature: str


class Bridge(msgspec.Struct, frozen=True):
    addresses: dict[str, KnownGuest] = {}
    macs: dict[str, KnownGuest] = {}


class Conf(msgspec.Struct, frozen=True):
    url: str
    pid_file: str
    log_file: str
    ca: str = ""
    """PEM of the CA of its certificate; empty: those that this machine trusts."""
    version: str = ""
    """Of the program that runs."""
    user: tuple[int, int] | None = None
    """Whom it becomes, and the group; None: it stays who started it."""
    bridges: dict[str, Bridge] = {}


class Refused(Exception):
    """Answered with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class HttpMessage:
    """A request or an answer, as far as it was read."""

    body_max_bytes: int
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    url: bytes = b""
    body: bytearray = field(default_factory=bytearray)
    headers_done: bool = False
    done: bool = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.headers_done = True

    def on_body(self, body: bytes) -> None:
        """Raises Refused (413) for a body that is too long."""
        self.body += body
        if len(self.body) > self.body_max_bytes:
            raise Refused(413)

    def on_message_complete(self) -> None:
        self.done = True


def answer(status: int, reason: str, headers: list[tuple[bytes, bytes]], body: bytes, *, head: bool = False) -> bytes:
    header_lines = [(b"content-length", str(len(body)).encode()), (b"connection", b"close"), *headers]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in header_lines)
    return f"HTTP/1.1 {status} {reason}\r\n".encode() + lines + b"\r\n" + (b"" if head else body)


def plain_answer(status: int) -> bytes:
    more = [(b"retry-after", b"2")] if status == 503 else []
    return answer(status, REASONS[status], [(b"content-type", b"text/plain"), *more], REASONS[status].encode())


class Proxy:
    """`start` within a loop; `reread` when the configuration was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.conf = read(path)
        self._listening: dict[tuple[str, int], list[socket.socket]] = {}
        self._servers: dict[tuple[str, int], list[asyncio.Server]] = {}
        self._shares = ConnectionShares(CONNECTIONS_MAX, GUEST_CONNECTIONS_MAX)
        self._strangers = ConnectionShares(CONNECTIONS_MAX, STRANGERS_MAX)
        self._tls = tls_of(self.conf)

    @property
    def descriptors(self) -> set[int]:
        """Of its sockets."""
        return {each.fileno() for sockets in self._listening.values() for each in sockets}

    def bind(self) -> None:
        """Sockets for bridges that are there; one that was made anew has another number. Raises OSError."""
        wanted = {(name, index) for name in self.conf.bridges if (index := index_of(name)) is not None}
        for gone in self._listening.keys() - wanted:
            for server in self._servers.pop(gone, []):
                server.close()
            for each in self._listening.pop(gone):
                each.close()
        for key in wanted - self._listening.keys():
            self._listening[key] = sockets_on(*key)

    async def serve(self) -> None:
        for key in self._listening.keys() - self._servers.keys():
            handle = partial(self._guest, key[0])
            self._servers[key] = [await asyncio.start_server(handle, sock=each) for each in self._listening[key]]

    async def reread(self) -> None:
        try:
            self.conf = read(self._path)
            self._tls = tls_of(self.conf)
            self.bind()
        except (OSError, msgspec.MsgspecError) as failure:
            log.error("the configuration cannot be taken whole: %s", failure)
        await self.serve()

    async def _guest(self, bridge: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername")[0]).partition("%")[0]
        try:
            known = self.conf.bridges.get(bridge, Bridge()).addresses.get(peer) or await self._known_by_mac(
                bridge, peer, writer
            )
            if known is None:
                await self._refuse(bridge, peer, reader, writer)
                return
            with self._shares.share(bridge, known.server, writer.transport) as has_place:
                reply = await self._answer(known, bridge, peer, reader) if has_place else plain_answer(503)
                if reply:
                    writer.write(reply)
                    async with asyncio.timeout(SEND_S):
                        await writer.drain()
        except (OSError, TimeoutError) as gone:
            log.info("%s on %s went: %s", peer, bridge, gone)
        except Exception:
            log.exception("%s on %s", peer, bridge)
        finally:
            writer.close()

    async def _refuse(self, bridge: str, peer: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a stranger at once. What it still sends is read for a moment, for a reset loses the answer; a crowd is not waited for."""
        log.warning("%s on %s is no guest's address", peer, bridge)
        with self._strangers.share(bridge, bridge, writer.transport) as has_place:
            writer.write(plain_answer(404))
            if has_place:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STRANGER_S):
                        await reader.read(CHUNK_BYTES)

    async def _answer(self, known: KnownGuest, bridge: str, peer: str, reader: asyncio.StreamReader) -> bytes:
        try:
            method, request = await requested(reader)
            async with asyncio.timeout(ANSWER_S):
                return await self._ask(known, peer, method, request)
        except Refused as refused:
            return plain_answer(refused.status)
        except httptools.HttpParserError as odd:
            log.info("%s on %s: %s", peer, bridge, odd)
            return plain_answer(400)
        except EOFError:
            return b""
        except (OSError, TimeoutError) as out:
            log.warning("the metadata service does not answer: %s", out)
            return plain_answer(503)

    async def _known_by_mac(self, bridge: str, peer: str, writer: asyncio.StreamWriter) -> KnownGuest | None:
        """A link-local address is no port's: the MAC that has it is. Who asks for it holds a place of strangers meanwhile."""
        if not peer.startswith("fe80:"):
            return None
        with self._strangers.share(bridge, bridge, writer.transport) as has_place:
            mac = await neighbour(bridge, peer) if has_place else ""
        return self.conf.bridges.get(bridge, Bridge()).macs.get(mac)

    async def _ask(self, known: KnownGuest, peer: str, method: bytes, request: HttpMessage) -> bytes:
        url = urlsplit(self.conf.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        reader, writer = await asyncio.open_connection(url.hostname, port, ssl=self._tls, limit=ANSWER_MAX_BYTES)
        try:
            headers = {
                "host": url.netloc, "connection": "close", "content-length": str(len(request.body)),
                "x-instance-id": known.server, "x-tenant-id": known.project,
                "x-instance-id-signature": known.signature, "x-forwarded-for": peer,
            }  # fmt: skip
            lines = [f"{name}: {value}".encode() for name, value in headers.items()]
            lines += [name + b": " + value for name, value in request.headers if name in PASSED_ON]
            writer.write(b"\r\n".join([method + b" " + request.url + b" HTTP/1.1", *lines, b"", b""]) + request.body)
            await writer.drain()
            got = HttpMessage(ANSWER_MAX_BYTES)
            parser = httptools.HttpResponseParser(got)
            while not got.done:
                data = await reader.read(CHUNK_BYTES)
                if not data:
                    break
                parser.feed_data(data)
            if not got.headers_done:
                raise OSError("its answer ended early")
            kept = [(name, value) for name, value in got.headers if name in {b"content-type", b"retry-after"}]
            return answer(parser.get_status_code(), "Answer", kept, bytes(got.body), head=method == b"HEAD")
        except Refused as too_large:
            raise OSError("its answer is too large") from too_large
        except httptools.HttpParserError as odd:
            if isinstance(odd.__context__, Refused):
                raise OSError("its answer is too large") from odd
            raise OSError(f"its answer cannot be read: {odd}") from odd
        finally:
            writer.close()


async def requested(reader: asyncio.StreamReader) -> tuple[bytes, HttpMessage]:
    """Its method, and all of it. Raises Refused, EOFError, HttpParserError."""
    request = HttpMessage(BODY_MAX_BYTES)
    parser = httptools.HttpRequestParser(request)
    count = 0
    try:
        async with asyncio.timeout(HEAD_S):
            while not request.done:
                data = await reader.read(CHUNK_BYTES)
                if not data:
                    raise EOFError
                count += len(data)
                if not request.headers_done and count > HEAD_MAX_BYTES:
                    raise Refused(413)
                parser.feed_data(data)
    except TimeoutError:
        raise Refused(408) from None
    except httptools.HttpParserError as odd:
        if isinstance(odd.__context__, Refused):
            raise odd.__context__ from None
        raise
    method = parser.get_method()
    if method not in {b"GET", b"HEAD", b"POST"} or not request.url.startswith(b"/"):
        raise Refused(400)
    return method, request


async def neighbour(bridge: str, address: str) -> str:
    """The MAC of who has this address there; empty when nobody is known."""
    words = ("ip", "-6", "-json", "neighbour", "show", address, "dev", bridge)
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(NEIGHBOUR_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return next((str(each["lladdr"]) for each in json.loads(output or "[]") if "lladdr" in each), "")


def read(path: Path) -> Conf:
    """Raises OSError and MsgspecError."""
    return msgspec.json.decode(path.read_bytes(), type=Conf)


def tls_of(conf: Conf) -> ssl.SSLContext | None:
    return ssl.create_default_context(cadata=conf.ca or None) if conf.url.startswith("https:") else None


async def run(proxy: Proxy) -> None:
    loop, over, again = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    await proxy.serve()

    async def rereading() -> None:
        while True:
            await again.wait()
            again.clear()
            await proxy.reread()

    task = asyncio.create_task(rereading())
    await over.wait()
    task.cancel()


def leave_parent(log_file: int, pid_file: int, kept: Collection[int]) -> None:
    """Ends the parent; this is another process then, whose words go into its log.

    Of what it inherited it keeps these descriptors alone: who started it may wait for the end of a pipe that is one of the others.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, nothing), (1, log_file), (2, log_file)):
        os.dup2(source, target)
    os.write(pid_file, f"{os.getpid()}\n".encode())
    for number in [int(each) for each in os.listdir("/proc/self/fd")]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def main(path: Path) -> int:
    try:
        os.chdir(path.parent)
        proxy = Proxy(Path(path.name))
        proxy.bind()
        log_file, pid_file = (
            os.open(each, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for each in (proxy.conf.log_file, proxy.conf.pid_file)
        )
        if proxy.conf.user is not None:
            become(*proxy.conf.user, (NET_BIND_SERVICE, NET_RAW))
    except (OSError, msgspec.MsgspecError) as failure:
        print(f"guests' requests for metadata cannot be taken: {failure}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    leave_parent(log_file, pid_file, proxy.descriptors)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    log.addFilter(LineLimit())
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(proxy))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
