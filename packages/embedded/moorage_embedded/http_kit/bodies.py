"""A JSON body, read within a limit."""

from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request

from moorage.model.admission import declares_more
from moorage_embedded.http_kit.answers import HttpFault

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class JsonBody:
    """How one API reads its bodies, and what it answers to a bad one; `{limit}` stands for the limit in bytes."""

    too_large: str
    malformed: str
    empty: str | None = None
    """None: an empty body counts as an empty object."""
    nul: str | None = None
    """None: texts may hold the character NUL."""
    not_an_object: str | None = None
    """None: the body may be any JSON."""
    too_large_headers: tuple[tuple[str, str], ...] = ()

    async def read(self, request: Request, limit_bytes: int) -> Any:
        """The decoded body. Raises HttpFault with 413 when it is longer than the limit, and with 400 when it is not what the API takes."""
        too_large = HttpFault(413, self.too_large.format(limit=limit_bytes), dict(self.too_large_headers))
        if declares_more(request.headers.get("content-length"), limit_bytes):
            raise too_large
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > limit_bytes:
                raise too_large
        if not data:
            if self.empty is None:
                return {}
            raise HttpFault(400, self.empty)
        if self.nul is not None and b"\\u0000" in data:
            raise HttpFault(400, self.nul)
        try:
            content = _decode(bytes(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise HttpFault(400, self.malformed) from None
        if self.not_an_object is not None and not isinstance(content, dict):
            raise HttpFault(400, self.not_an_object)
        return content
