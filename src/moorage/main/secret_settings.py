"""Secrets of a configuration: where they may stand, what is refused, and those that are made once.

Any text in the file may be given as `{ file = "…" }` or `{ env = "…" }` instead: a password, or a whole URL that holds one.  A
relative file is looked for in `$CREDENTIALS_DIRECTORY`, where systemd puts what `LoadCredential=` names, else beside the
configuration.  A password that stands in the configuration itself makes that file a secret, which others may not read.
"""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moorage.model.errors import Invalid
from moorage.model.private_files import may_be_read_by_others, private_directory, private_file

SECRET_BYTES_MAX = 64 * 1024
SECRET_NAMES = ("password", "secret", "secrets.keys")
"""How settings end that are secrets whatever they say."""
WITH_A_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


def resolved(settings: Any, base: Path, at: str = "") -> Any:
    """The same settings, with what is said elsewhere read. Raises Invalid, which never repeats what was read."""
    match settings:
        case {"file": str(name), **rest} if at and not rest:
            return _of_file(name, base, at)
        case {"env": str(name), **rest} if at and not rest:
            if not (value := os.environ.get(name, "")):
                raise Invalid(f"{at} is to be read from the environment, where {name} is not set")
            return value
        case dict():
            return {key: resolved(value, base, f"{at}.{key}" if at else str(key)) for key, value in settings.items()}
        case list():
            return [resolved(value, base, at) for value in settings]
        case _:
            return settings


def check_unread(path: Path, settings: Mapping[str, Any]) -> None:
    """Raises Invalid when a password stands in a file that others may read."""
    names = sorted(set(_secrets(settings)))
    if names and may_be_read_by_others(path):
        raise Invalid(
            f"others may read {path}, and {_some(names)} stands in it: chmod 600 {path}, or say where it is kept instead, "
            'as { file = "/run/credentials/…" } or { env = "…" }'
        )


def _of_file(name: str, base: Path, at: str) -> str:
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY") or base, name)
    try:
        if may_be_read_by_others(path):
            raise Invalid(f"others may read {path}, which {at} is to be read from: chmod 600 {path}")
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        value = data.decode().strip()
    except OSError as unreadable:
        raise Invalid(f"{at} is to be read from {path}, which cannot be read: {unreadable.strerror}") from unreadable
    except UnicodeDecodeError:
        raise Invalid(f"{at} is to be read from {path}, which is no text") from None
    if not value or len(data) > SECRET_BYTES_MAX:
        raise Invalid(f"{at} is to be read from {path}, which has nothing in it, or more than {SECRET_BYTES_MAX} bytes")
    return value


def _secrets(settings: Any, at: str = "") -> Iterator[str]:
    """Names of the settings that hold a secret here."""
    match settings:
        case {"file": str(), **rest} if at and not rest:
            return
        case {"env": str(), **rest} if at and not rest:
            return
        case dict():
            for key, value in settings.items():
                yield from _secrets(value, f"{at}.{key}" if at else str(key))
        case list():
            for value in settings:
                yield from _secrets(value, at)
        case str() if settings and (at.endswith(SECRET_NAMES) or WITH_A_PASSWORD.search(settings)):
            yield at
        case _:
            return


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def secret(data: Path, name: str, length: int = 24) -> str:
    """A secret that is made once and kept, readable by its owner only, in the data directory."""
    path = data / "secrets" / name
    if path.exists():
        return path.read_text().strip()
    private_directory(path.parent)
    coming = path.with_name(f"{name}.{secrets.token_hex(8)}")
    private_file(coming).write_text(secrets.token_urlsafe(length))
    try:
        os.link(coming, path)  # whole, and once: other processes may share the directory, and begin at the same time
    except FileExistsError:
        pass
    finally:
        coming.unlink()
    return path.read_text().strip()
