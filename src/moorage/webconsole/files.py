"""Pages, style and scripts: read from the package at the start, compressed once, and identified to browsers by a digest."""

import gzip
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
GZIP_FROM_BYTES = 512


@dataclass(frozen=True)
class StaticFile:
    body: bytes
    packed: bytes
    """By gzip; empty where that is not worth it."""
    type: str
    etag: str


def load() -> dict[str, StaticFile]:
    """Path below `static` → its file."""
    loaded: dict[str, StaticFile] = {}
    _load(files("moorage.webconsole") / "static", "", loaded)
    return loaded


def _load(folder: Traversable, prefix: str, loaded: dict[str, StaticFile]) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            _load(each, f"{prefix}{each.name}/", loaded)
        elif (kind := TYPES.get(each.name.rpartition(".")[2])) is not None:
            body = each.read_bytes()
            packed = gzip.compress(body, 9, mtime=0) if len(body) >= GZIP_FROM_BYTES else b""
            loaded[prefix + each.name] = StaticFile(body, packed, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
