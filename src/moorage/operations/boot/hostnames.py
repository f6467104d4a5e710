"""The host name of a server that was given none."""

import re

HOSTNAME_CHARACTERS_MAX = 63


def sanitized_hostname(name: str, server: str) -> str:
    """A valid host name for the guest, made from the server's name as Nova does."""
    hostname = re.sub(r"[ _.]", "-", name.encode("latin-1", "ignore").decode("latin-1"))
    hostname = re.sub(r"[^a-zA-Z0-9-]+", "", hostname).lower().strip("-")[:HOSTNAME_CHARACTERS_MAX].rstrip("-")
    return hostname or f"Server-{server}"[:HOSTNAME_CHARACTERS_MAX]
