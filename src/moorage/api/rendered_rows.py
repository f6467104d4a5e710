"""The cache of rendered rows of `GET /servers/detail`: JSON bytes by everything that they depend on."""

import secrets
from collections.abc import Iterable, Mapping
from typing import TypeAlias

ROWS_MAX = 50_000
BYTES_MAX = 64 << 20
KEY_BYTES = 1_000
"""What the key of a row is counted as."""

RowKey: TypeAlias = tuple[object, ...]


class RenderedRowCache:
    """Rows as JSON bytes, at most `ROWS_MAX` of them and `BYTES_MAX` bytes.

    Links in a row begin with `placeholder`: which `http://host:port` a caller used is no part of the key, because anybody
    may send any Host header.
    """

    def __init__(self) -> None:
        self._known: dict[RowKey, bytes] = {}
        self.placeholder = f"here-{secrets.token_hex(16)}"
        """Placeholder for `http://host:port`; users cannot write it into a field of a server."""
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, keys: Iterable[RowKey]) -> dict[RowKey, bytes]:
        """The rows that are cached, of those keys."""
        return {key: self._known[key] for key in keys if key in self._known}

    def add(self, made: Mapping[RowKey, bytes]) -> None:
        """At either bound all other rows go; a page that is larger than the whole cache is not cached."""
        size = sum(map(len, made.values())) + KEY_BYTES * len(made)
        if len(self._known) + len(made) > ROWS_MAX or self.size_bytes + size > BYTES_MAX:
            self._known.clear()
            self.size_bytes = 0
        if size <= BYTES_MAX:
            self._known.update(made)
            self.size_bytes += size
