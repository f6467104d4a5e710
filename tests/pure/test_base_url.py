"""Absolute links use the configured URL or the host's name, never the Host header of a client."""

import pytest

from moorage.api.base_url import base_url
from moorage.model.errors import Invalid


def scope(*hosts: str) -> dict[str, object]:
    return {"headers": [(b"host", each.encode("latin-1")) for each in hosts], "server": ("::1", 8774)}


@pytest.mark.parametrize(
    "host", ["cloud", "cloud:8774", "a_b.example.org.", "192.0.2.1:1", "[2001:db8::1]:8774", "[::1]"]
)
def test_a_host(host: str) -> None:
    assert base_url(scope(host), "") == f"http://{host}"


BAD = [
    "",
    "a b",
    "evil/x",
    "evil?x",
    "u@evil",
    "a:b",
    "a:123456",
    "[",
    "[::1",
    "a\r\nX: y",
    '"><script>',
    "x" * 300,
    "-a",
    "é",
    "a,b",
]


@pytest.mark.parametrize("host", BAD)
def test_no_host(host: str) -> None:
    with pytest.raises(Invalid, match="Host header"):
        base_url(scope(host), "")
    assert base_url(scope(host), "https://cloud/compute/") == "https://cloud/compute"


def test_two_hosts_or_none() -> None:
    with pytest.raises(Invalid, match="Host header"):
        base_url(scope("a", "b"), "")
    assert base_url(scope(), "") == "http://[::1]:8774"
