"""A light load: HTTP/1.1 over kept connections, from another process than the one that is measured."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

DEADLINE_S = 120.0


class UnexpectedAnswer(Exception):
    """An answer that was not expected; the bench ends with it."""


@dataclass
class Connection:
    """One connection, one request at a time."""

    host: str
    port: int
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> tuple[int, bytes]:
        status, _, content = await self.exchange(method, path, headers, body)
        return status, content

    async def exchange(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]:
        if self.writer is None or self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 26)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Content-Length: {len(body)}"]
        lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answered = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        length = int(answered.get("content-length", "0"))
        return int(head[0].split()[1]), answered, await self.reader.readexactly(length) if length else b""

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            await self.writer.wait_closed()


@dataclass
class Caller:
    """Somebody with a token, at one service."""

    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def connection(self) -> Connection:
        parts = urlsplit(self.url)
        return Connection(parts.hostname or "127.0.0.1", parts.port or 80)

    def path(self, path: str) -> str:
        return urlsplit(self.url).path.rstrip("/") + path

    async def call(self, method: str, path: str, body: Any = None, *, expect: int | None = None) -> Any:
        """Make one call on a connection of its own, with JSON in and out. Raises UnexpectedAnswer for another status."""
        connection = self.connection()
        try:
            raw = b"" if body is None else msgspec.json.encode(body)
            status, content = await connection.ask(method, self.path(path), self.headers, raw)
        finally:
            await connection.close()
        if status != expect and (expect is not None or status >= 300):
            raise UnexpectedAnswer(f"{method} {path}: {status} {content[:500].decode(errors='replace')}")
        return msgspec.json.decode(content) if content else None

    async def many(
        self, method: str, path: str, bodies: Sequence[bytes], *, in_flight: int, expect: int
    ) -> tuple[list[Any], float]:
        """All of them, so many at once; the answers and the seconds."""
        waiting = iter(bodies)
        answers: list[Any] = []

        async def work() -> None:
            connection = self.connection()
            try:
                for body in waiting:
                    status, content = await connection.ask(method, self.path(path), self.headers, body)
                    if status != expect:
                        raise UnexpectedAnswer(f"{method} {path}: {status} {content[:500].decode(errors='replace')}")
                    answers.append(msgspec.json.decode(content))
            finally:
                await connection.close()

        began = time.perf_counter()
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            for _ in range(min(in_flight, len(bodies))):
                group.create_task(work())
        return answers, time.perf_counter() - began


async def token_of(identity: str, user: str, password: str, project: str) -> tuple[str, str]:
    """A token, and the id of its project. Raises UnexpectedAnswer."""
    domain = {"id": "default"}
    asked = {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": user, "domain": domain, "password": password}},
            },
            "scope": {"project": {"name": project, "domain": domain}},
        }
    }
    connection = Caller(identity).connection()
    try:
        path = Caller(identity).path("/auth/tokens")
        status, headers, content = await connection.exchange("POST", path, {}, msgspec.json.encode(asked))
    finally:
        await connection.close()
    if status != 201:
        raise UnexpectedAnswer(f"no token for {user}: {status} {content[:500].decode(errors='replace')}")
    return headers["x-subject-token"], msgspec.json.decode(content)["token"]["project"]["id"]
