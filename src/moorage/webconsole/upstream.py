"""Makes all calls, with the user's own token, to the endpoints of the token's catalog, each with a deadline and a limited answer.

A service that refuses is `UpstreamRefused`, with its status and its sentence; one that does not answer is `Down`. Nothing is retried here:
feeds poll again by themselves, and a person decides about a change.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

LATEST = "2.104"
"""The microversion that pages are written for; an API that is older refuses it with a sentence."""
ANSWER_MAX_BYTES = 32 * 1024 * 1024
CONNECTIONS_MAX = 64
SENTENCE_MAX_CHARS = 1_000
LATE, AWAY = 504, 502


class UpstreamError(Exception):
    """Raised when a call fails: a status for the browser, and a sentence for the person."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class UpstreamRefused(UpstreamError):
    """Raised when the service refuses."""


class Down(UpstreamError):
    """Raised when the service does not answer, or not in a readable form."""


class UpstreamAnswer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: Any


class Upstream:
    """A pool of connections to the services."""

    def __init__(self, call_s: float, ca_file: str = "", transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Raises OSError or ssl.SSLError when the CA file cannot be read."""
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(call_s, connect=min(5.0, call_s)),
            verify=_trusted(ca_file),
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
            transport=transport,
            headers={"Accept": "application/json", "User-Agent": "moorage-console-web"},
            follow_redirects=False,
            trust_env=False,
        )
        self.calls = 0
        """Number of calls, to all services."""

    async def call(
        self, method: str, url: str, token: str = "", *, json: Any = None, headers: Mapping[str, str] | None = None
    ) -> UpstreamAnswer:
        """Make one call. Raises UpstreamRefused when the service refuses, and Down when it does not answer."""
        self.calls += 1
        sent = dict(headers or {})
        if token:
            sent |= {"X-Auth-Token": token, "OpenStack-API-Version": f"compute {LATEST}"}
        if json is not None:
            sent["Content-Type"] = "application/json"
        content = None if json is None else msgspec.json.encode(json)
        where = urlsplit(url).netloc
        try:
            async with self._client.stream(method, url, content=content, headers=sent) as reply:
                body = await _read(reply, where)
        except httpx.TimeoutException as late:
            raise Down(LATE, f"The service at {where} did not answer in time. It is asked again by itself.") from late
        except httpx.HTTPError as away:
            raise Down(AWAY, f"The service at {where} cannot be reached: {str(away) or type(away).__name__}.") from away
        if reply.status_code >= 500:
            raise Down(AWAY, f"The service at {where} failed: {_sentence(body, reply)} ({reply.status_code}).")
        if reply.status_code >= 400:
            raise UpstreamRefused(reply.status_code, _sentence(body, reply))
        if reply.status_code >= 300:
            raise Down(AWAY, f"The service at {where} answers with a redirect, which is not followed.")
        return UpstreamAnswer(reply.status_code, reply.headers, _decoded(body, where))

    async def close(self) -> None:
        await self._client.aclose()


def _trusted(ca_file: str) -> Any:
    import ssl

    return ssl.create_default_context(cafile=ca_file) if ca_file else ssl.create_default_context()


async def _read(reply: httpx.Response, where: str) -> bytes:
    body = bytearray()
    async for piece in reply.aiter_bytes():
        body += piece
        if len(body) > ANSWER_MAX_BYTES:
            raise Down(AWAY, f"The service at {where} answered with more than {ANSWER_MAX_BYTES // 2**20} MiB.")
    return bytes(body)


def _decoded(body: bytes, where: str) -> Any:
    if not body:
        return {}
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as junk:
        raise Down(AWAY, f"The service at {where} answered with what is no JSON.") from junk


def _sentence(body: bytes, reply: httpx.Response) -> str:
    """The sentence of an error in Nova's, Keystone's or Neutron's form; else the reason of its status."""
    try:
        error = msgspec.json.decode(body)
        inner = next(iter(error.values()))
        sentence = inner["message"] if isinstance(inner, dict) else inner
    except (msgspec.DecodeError, AttributeError, StopIteration, KeyError, TypeError):
        sentence = reply.reason_phrase
    return str(sentence)[:SENTENCE_MAX_CHARS]
