"""Every HTTP listener of a cloud, with requests without a token and with hostile requests."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared, a_config

from moorage.main.config import OPTIONAL_PORTS, Listen
from moorage.main.local_cluster.ports import free_ports

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATIENCE_S = 180.0
SERVICES = ("identity", "image", "network", "volume", "compute", "placement")
MILLION = 1_000_000
WRITES = {
    "identity": "POST /v3/users", "image": "POST /v2/images", "network": "POST /v2.0/networks",
    "volume": "POST /v3/volumes", "compute": "POST /v2.1/servers", "placement": "POST /placement/resource_providers",
}  # fmt: skip
BODY_MOST_BYTES = {
    "identity": 114_688, "image": 1_048_576, "network": 1_048_576, "volume": 114_688, "compute": 114_688, "placement": 8_388_608,
}  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


def url(running: Running, name: str) -> str:
    return str(getattr(running.config.api, name).url)


async def said_to(running: Running, name: str, data: bytes) -> tuple[int, str]:
    """What is answered to these bytes, with nothing behind them: a status and all of the answer."""
    listen = getattr(running.config.api, name)
    reader, writer = await asyncio.open_connection(listen.host, listen.port)
    writer.write(data)
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(found[1])) if found else b""
    writer.close()
    return int(head.split()[1]), (head + body).decode("latin-1")


def half(name: str, declared: int, *headers: str) -> bytes:
    method, path = WRITES[name].split()
    said = "".join(f"{each}\r\n" for each in ("Host: x", "Content-Type: application/json", *headers))
    return f"{method} {path} HTTP/1.1\r\n{said}Content-Length: {declared}\r\n\r\n{{".encode()


@pytest.mark.parametrize("name", SERVICES)
async def test_a_token_is_checked_before_the_body_is_read(running: Running, name: str) -> None:
    """The body never comes, and the answer does."""
    assert (await said_to(running, name, half(name, 100_000)))[0] == 401
    assert (await said_to(running, name, half(name, 100_000, "X-Auth-Token: nonsense")))[0] == 401


@pytest.mark.parametrize("name", SERVICES)
async def test_a_body_with_a_too_large_length_is_not_read(running: Running, name: str) -> None:
    token = f"X-Auth-Token: {running.admin.http.headers['X-Auth-Token']}"
    for declared in (BODY_MOST_BYTES[name] + 1, 10**17):
        assert (await said_to(running, name, half(name, declared, token)))[0] == 413
    if name in {"compute", "placement"}:  # as in Nova, this is looked at before the token
        assert (await said_to(running, name, half(name, BODY_MOST_BYTES[name] + 1)))[0] == 413


@pytest.mark.parametrize("name", SERVICES)
async def test_too_long_requests_are_refused_by_every_listener(running: Running, name: str) -> None:
    assert (await said_to(running, name, b"GET /" + b"u" * MILLION))[0] == 414
    assert (await said_to(running, name, b"GET / HTTP/1.1\r\nX: " + b"a" * MILLION))[0] == 431
    assert (await said_to(running, name, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n"))[0] == 431


@pytest.mark.parametrize("name", SERVICES)
async def test_security_headers_for_browsers(running: Running, name: str) -> None:
    for path in ("/", "/nothing"):
        headers = (await running.admin.http.get(url(running, name) + path, headers={"Accept": "text/html"})).headers
        assert headers.get_list("x-content-type-options") == ["nosniff"]
        assert headers.get_list("referrer-policy") == ["no-referrer"]
        assert headers.get_list("content-security-policy") == ["default-src 'none'; frame-ancestors 'none'"]
        assert len(headers.get_list("cache-control")) == (0 if name == "placement" else 1)
        assert "strict-transport-security" not in headers


async def test_a_token_is_not_to_be_stored(running: Running) -> None:
    answer = await running.admin.http.get(f"{url(running, 'identity')}/v3/auth/tokens")
    assert answer.headers.get_list("cache-control") == ["no-store"]


ODD = ("%C2%B2", "9" * 5_000, "%D9%A3", "1%0a", "-1", "1e9", "0x1", "%00")
NUMBERS = {
    "identity": ("/v3/users?limit={}", "/v3/projects?limit={}"),
    "image": ("/v2/images?limit={}", "/v2/images?size_min={}"),
    "network": ("/v2.0/networks?limit={}", "/v2.0/ports?limit={}", "/v2.0/networks?mtu={}"),
    "volume": ("/v3/volumes?limit={}", "/v3/volumes?offset={}", "/v3/volumes?size={}"),
    "compute": ("/v2.1/servers?limit={}", "/v2.1/flavors?minRam={}", "/v2.1/os-keypairs?limit={}", "/v2.1/os-services/{}"),
    "placement": ("/placement/allocation_candidates?limit={}&resources=VCPU:1", "/placement/allocation_candidates?resources=VCPU:{}"),
}  # fmt: skip
IDS = {
    "identity": "/v3/users/{}", "image": "/v2/images/{}", "network": "/v2.0/ports/{}", "volume": "/v3/volumes/{}",
    "compute": "/v2.1/servers/{}", "placement": "/placement/resource_providers/{}",
}  # fmt: skip
ID = "0d0c0b0a-0000-4000-8000-00000000ffff"


@pytest.mark.parametrize("name", SERVICES)
async def test_odd_numbers_and_ids_are_refusals(running: Running, name: str) -> None:
    asked = [path.format(odd) for path in NUMBERS[name] for odd in ODD]
    asked += [IDS[name].format(ID + odd) for odd in ("%0a", "%0d%0a", "%00", "%E2%80%A8", "%FF", "%C2%B2")]
    asked += [IDS[name].format(odd) for odd in ("%C2%B2", "9" * 5_000, "%2e%2e", "a" * 8_000)]
    headers = {"OpenStack-API-Version": "placement latest"} if name == "placement" else {}
    for path in asked:
        answer = await running.admin.http.get(url(running, name) + path, headers=headers)
        assert answer.status_code < 500, f"{path[:200]}: {answer.text[:300]}"
        assert len(answer.content) < 100_000


LONG_BODIES: dict[str, tuple[str, Any]] = {
    "identity": ("/v3/users", {"user": {"name": "n" * 100_000, "x" * 5_000: 1}}),
    "image": ("/v2/images", {"disk_format": "d" * 500_000, "name": "n" * 500_000}),
    "network": ("/v2.0/networks", {"network": {"name": "n" * 900_000, "y" * 50_000: 1}}),
    "volume": ("/v3/volumes", {"volume": {"size": "s" * 100_000}}),
    "compute": (
        "/v2.1/servers",
        {"server": {"name": "n" * 50_000, "flavorRef": "f" * 50_000, "imageRef": "i" * 5_000}},
    ),
    "placement": ("/placement/resource_providers", {"name": "n" * MILLION, "uuid": "u" * MILLION}),
}


@pytest.mark.parametrize("name", SERVICES)
async def test_a_refusal_repeats_only_part_of_the_input(running: Running, name: str) -> None:
    path, body = LONG_BODIES[name]
    answer = await running.admin.http.post(url(running, name) + path, json=body)
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < 5_000


async def test_the_console_proxy_and_the_metadata_service_have_the_same_limits(tmp_path: Any) -> None:
    from moorage.main.up import start_cloud

    config = a_config(tmp_path / "data")
    ports = dict(zip(OPTIONAL_PORTS, free_ports(len(OPTIONAL_PORTS)), strict=True))
    api = msgspec.structs.replace(config.api, **{name: Listen(port=port) for name, port in ports.items()})
    cloud = await start_cloud(
        msgspec.structs.replace(config, api=api, hosts=msgspec.structs.replace(config.hosts, count=0))
    )
    there = Running(cloud, None)  # type: ignore[arg-type]  # nobody asks as an administrator
    try:
        for name in OPTIONAL_PORTS:
            assert (await said_to(there, name, b"GET /" + b"u" * MILLION))[0] == 414
            assert (await said_to(there, name, b"GET / HTTP/1.1\r\nX: " + b"a" * MILLION))[0] == 431
        async with httpx.AsyncClient(trust_env=False) as browser:
            for method in ("GET", "POST"):
                page = await browser.request(method, url(there, "console") + "/vnc_lite.html")
                assert page.headers.get_list("x-content-type-options") == ["nosniff"]
                assert page.headers.get_list("cache-control") == ["no-store"]
                assert "frame-ancestors" in page.headers.get_list("content-security-policy")[0]
            reply = await browser.get(url(there, "metadata") + "/latest/meta-data")
            assert reply.headers["cache-control"] == "no-store"
    finally:
        await cloud.stop()
