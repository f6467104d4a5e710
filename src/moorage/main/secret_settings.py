"""Secrets of a configuration: where they may be kept, what is refused, and secrets that Moorage makes itself.

Any text in the file may be given as `{ file = "…" }` or `{ env = "…" }` instead: a password, or a whole URL that contains one.  A
relative path is looked up in `$CREDENTIALS_DIRECTORY`, where systemd puts the files of `LoadCredential=`, else beside the
configuration.  If a password is in the configuration file itself, other users must not be able to read that file.
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
"""Endings of the names of settings that are always secrets."""
WITH_A_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


def resolved(settings: Any, base: Path, at: str = "") -> Any:
    """Return the settings with the values of `{ file = … }` and `{ env = … }` read.

    Raises Invalid when a value cannot be read; the message never contains a value.
    """
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
    """Check that other users cannot read a configuration file that contains passwords. Raises Invalid when they can."""
    names = sorted(set(_secrets(settings)))
    if names and may_be_read_by_others(path):
        raise Invalid(
            f"others may read {path}, and {_first_names(names)} stands in it: chmod 600 {path}, or say where it is kept instead, "
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


def _first_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def secret(data: Path, name: str, length: int = 24) -> str:
    """Return a secret that is made once and kept in the data directory, readable by its owner only."""
    path = data / "secrets" / name
    if path.exists():
        return path.read_text().strip()
    private_directory(path.parent)
    coming = path.with_name(f"{name}.{secrets.token_hex(8)}")
    private_file(coming).write_text(secrets.token_urlsafe(length))
    try:
        os.link(coming, path)  # atomic: other processes may share the directory and start at the same time
    except FileExistsError:
        pass
    finally:
        coming.unlink()
    return path.read_text().strip()
