"""Requests between two hosts: disks of moving guests, and the agreement before libvirt sends a running guest.

Each request has a TLS connection of its own.  The receiving host has a self-signed certificate that is identified by its fingerprint; a
sender must know the host's key.  Both are part of the place that a host names for its guests (`MoveTarget.where`), which is sent on the bus.

    request     one line of JSON (`CarrierRequest`), then `size` bytes
    reply       one line of JSON (`CarrierReply`)
"""

import asyncio
import contextlib
import datetime
import hashlib
import hmac
import logging
import os
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moorage.model.errors import HostFailed, Problem
from moorage.model.guest import MoveTarget
from moorage.model.ids import ServerId
from moorage.model.private_files import private_file

T = TypeVar("T")

CONNECT_S, IDLE_S, ANSWER_S = 10.0, 60.0, 120.0
"""Time limits for a connection, for the next piece of a file, and for an answer, which may follow a file that is still being written."""
LINE_MAX_BYTES = 4 << 20
"""Limit of a request or a reply without its file."""
CHUNK_BYTES = 1 << 20
AT_ONCE_MAX = 32
"""Limit of connections that a host serves; further ones are closed at once."""
CERTIFICATE_DAYS = 3_650
KEY_FILE, CERTIFICATE_FILE, SECRET_FILE = "carrier.key", "carrier.pem", "carrier.secret"

_log = logging.getLogger(__name__)


class MigrationAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a host accepts guests: in a directory, for hosts of the same machine, and over the network if it has an address for that."""

    machine: str
    room: str
    address: str = ""
    port: int = 0
    key: str = ""
    certificate: str = ""
    """SHA-256 of the certificate."""
    daemon: str = ""
    """The URI by which other hosts' libvirt daemons reach the one there."""

    def target(self) -> MoveTarget:
        return MoveTarget(self.address, msgspec.json.encode(self).decode())

    @staticmethod
    def of(target: MoveTarget) -> "MigrationAddress":
        """Parse a place; earlier agents only named the machine and the directory. Raises HostFailed (`host_unreachable`)."""
        if not target.where.startswith("{"):
            machine, _, room = target.where.partition(":")
            return MigrationAddress(machine, room)
        try:
            return msgspec.json.decode(target.where, type=MigrationAddress)
        except msgspec.MsgspecError as garbled:
            raise unreachable(str(garbled)) from garbled


class CarrierRequest(msgspec.Struct):
    key: str
    verb: str
    server: str
    move: str
    name: str = ""
    size: int = 0
    """Size of the file that follows, in bytes."""
    body: msgspec.Raw = msgspec.Raw(b"null")


class CarrierReply(msgspec.Struct):
    code: str = ""
    """Code of the failure, if there is one."""
    public: str = ""
    private: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")


class Receiving(Protocol):
    """Handles a host's requests. Both methods raise HostFailed to refuse."""

    async def file_for(self, request: CarrierRequest) -> Path:
        """Return the path for the file that follows. Raises HostFailed to refuse it."""
        ...

    async def answer(self, request: CarrierRequest) -> bytes:
        """Return the answer as JSON. Raises HostFailed to refuse the request."""
        ...


class Receiver:
    """Listens for other hosts."""

    def __init__(self, room: Path, receiving: Receiving) -> None:
        self._room, self._receiving = room, receiving
        self._server: asyncio.Server | None = None
        self._serving = 0
        self.key = self.certificate = ""

    async def open(self, address: str, port: int) -> None:
        """Begin to listen. Raises OSError when the address or port is not available."""
        context = await asyncio.to_thread(self._prepare)
        self._server = await asyncio.start_server(
            self._serve, address, port, ssl=context, limit=LINE_MAX_BYTES, ssl_handshake_timeout=CONNECT_S
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _prepare(self) -> ssl.SSLContext:
        certificate, key, secret = (self._room / each for each in (CERTIFICATE_FILE, KEY_FILE, SECRET_FILE))
        if not secret.exists():
            _write(secret, uuid.uuid4().hex.encode() + uuid.uuid4().hex.encode())
        if not certificate.exists():  # written after its key
            _make_certificate(certificate, key)
        self.key = secret.read_text()
        der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
        self.certificate = hashlib.sha256(der).hexdigest()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(certificate, key)
        return context

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving += 1
        try:
            if self._serving <= AT_ONCE_MAX:
                writer.write(msgspec.json.encode(await self._reply(reader)) + b"\n")
                await writer.drain()
                await _discard(reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as lost:
            _log.warning("another host's connection was lost: %r", lost)
        finally:
            self._serving -= 1
            writer.close()

    async def _reply(self, reader: asyncio.StreamReader) -> CarrierReply:
        try:
            async with asyncio.timeout(IDLE_S):
                line = await reader.readline()
            request = msgspec.json.decode(line, type=CarrierRequest)
            if not hmac.compare_digest(request.key.encode(), self.key.encode()):
                raise HostFailed("the other host does not take that", private="wrong key", code="host_unreachable")
            if request.name and request.size < 0:
                raise HostFailed("the request of another host is garbled", private=str(request.size), code="garbled")
            if request.name:
                await _receive(reader, await self._receiving.file_for(request), request.size)
                return CarrierReply()
            return CarrierReply(body=msgspec.Raw(await self._receiving.answer(request)))
        except HostFailed as failed:
            return CarrierReply(failed.code or "guest_failed", failed.public, failed.private)
        except (ValueError, msgspec.MsgspecError) as garbled:
            return CarrierReply("garbled", "the request of another host is garbled", str(garbled))
        except OSError as failure:
            return CarrierReply("host_full", "the other host cannot keep it", str(failure))
        except Problem as failed:
            return CarrierReply("guest_failed", failed.public, failed.private)


async def _discard(reader: asyncio.StreamReader) -> None:
    """Read on until the other host closes: a connection that is closed with unread data is reset, and the answer may be lost with it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(IDLE_S):
            while await reader.read(CHUNK_BYTES):
                continue


async def _receive(reader: asyncio.StreamReader, file: Path, size: int) -> None:
    """Receive a file completely, or not at all."""
    coming = private_file(file.with_name(f"{file.name}.coming"))
    left = size
    try:
        with coming.open("wb") as out:
            while left:
                async with asyncio.timeout(IDLE_S):
                    data = await reader.read(min(left, CHUNK_BYTES))
                if not data:
                    raise asyncio.IncompleteReadError(b"", left)
                await asyncio.to_thread(out.write, data)
                left -= len(data)
            await asyncio.to_thread(os.fsync, out.fileno())
        os.replace(coming, file)
    finally:
        coming.unlink(missing_ok=True)


async def ask(place: MigrationAddress, verb: str, server: ServerId, move: str, body: object, kind: type[T]) -> T:
    """Send a request and return the other host's answer. Raises HostFailed: `host_unreachable`, or the code of its refusal."""
    request = CarrierRequest(place.key, verb, server, move, body=msgspec.Raw(msgspec.json.encode(body)))
    async with _connection(place) as (reader, writer):
        writer.write(msgspec.json.encode(request) + b"\n")
        async with asyncio.timeout(ANSWER_S):
            await writer.drain()
            return msgspec.json.decode(_body_of(await reader.readline()), type=kind)


async def send_file(place: MigrationAddress, verb: str, server: ServerId, move: str, file: Path) -> None:
    """Send a file under its own name. Raises HostFailed: `host_unreachable`, or the code of the refusal."""
    with file.open("rb") as data:
        size = os.fstat(data.fileno()).st_size
        async with _connection(place) as (reader, writer):
            writer.write(msgspec.json.encode(CarrierRequest(place.key, verb, server, move, file.name, size)) + b"\n")
            answer = asyncio.ensure_future(reader.readline())  # a refusal comes before the file is sent
            try:
                with contextlib.suppress(ConnectionError):  # the answer, or that there is none, says why
                    while size and not answer.done():
                        chunk = await asyncio.to_thread(data.read, min(size, CHUNK_BYTES))
                        if not chunk:
                            break
                        size -= len(chunk)
                        writer.write(chunk)
                        async with asyncio.timeout(IDLE_S):
                            await writer.drain()
                async with asyncio.timeout(ANSWER_S):
                    _body_of(await answer)
            finally:
                answer.cancel()


def _body_of(line: bytes) -> bytes:
    """The body of a reply. Raises HostFailed when it is a refusal, MsgspecError when it is none."""
    reply = msgspec.json.decode(line, type=CarrierReply)
    if reply.code:
        raise HostFailed(reply.public, private=reply.private, code=reply.code)
    return bytes(reply.body)


@asynccontextmanager
async def _connection(place: MigrationAddress) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to the host with this certificate, and to no other. Raises HostFailed (`host_unreachable`)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # its fingerprint is compared
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(place.address, place.port, ssl=context, limit=LINE_MAX_BYTES)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if not hmac.compare_digest(hashlib.sha256(der).hexdigest(), place.certificate):
            raise unreachable(f"{place.address} has another certificate")
        yield reader, writer
    except (OSError, TimeoutError, msgspec.MsgspecError, ValueError) as lost:
        raise unreachable(f"{place.address}:{place.port}: {lost!r}") from lost
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_S):
                    await writer.wait_closed()


def unreachable(why: str) -> HostFailed:
    return HostFailed("the other host cannot be reached", private=why, code="host_unreachable")


def _make_certificate(certificate: Path, key: Path) -> None:
    made = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moorage")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(made.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .sign(made, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    _write(key, made.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    _write(certificate, signed.public_bytes(pem))


def _write(file: Path, content: bytes) -> None:
    coming = private_file(file.with_name(f"{file.name}.coming"))
    coming.write_bytes(content)
    os.replace(coming, file)
