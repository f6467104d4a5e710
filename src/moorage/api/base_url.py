"""The URL at which a caller reached us, for absolute links in answers: as configured, or from a valid Host header."""

import re
from collections.abc import MutableMapping
from typing import Any

from moorage.model.errors import Invalid

HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]{2,45}\])"  # a name or an address
    r"(?::[0-9]{1,5})?"
)


def base_url(scope: MutableMapping[str, Any], public_url: str) -> str:
    """`http://host:port`. Raises Invalid for a Host header that names no host, or for two of them.

    A caller may say any host of itself, so nothing that others are shown may be made of it.
    """
    if public_url:
        return public_url.rstrip("/")
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if not hosts and scope.get("server"):  # HTTP/1.0 needs none
        name, port = scope["server"]
        hosts = [f"[{name}]:{port}" if ":" in name else f"{name}:{port}"]
    if len(hosts) != 1 or HOST.fullmatch(hosts[0]) is None:
        raise Invalid("The Host header must be one host name or address, with a port or without.")
    return f"{scope.get('scheme', 'http')}://{hosts[0]}"
