"""`moorage console-web`: a process with one listener, and nothing else of a cloud."""

import asyncio
from pathlib import Path

import httpx
import pytest

from moorage.main.config import ApiConfig, Config, Listen
from moorage.main.local_cluster.ports import free_port
from moorage.main.webconsole import make_webconsole, webconsole
from moorage.model.errors import Invalid


async def test_the_console_uses_the_limits_and_headers_of_a_listener(tmp_path: Path) -> None:
    api = ApiConfig(webconsole=Listen(port=free_port()), identity=Listen(port=free_port()))
    stopping = asyncio.Event()
    role = asyncio.create_task(webconsole(Config(data_dir=str(tmp_path), api=api), stopping))
    try:
        async with httpx.AsyncClient(base_url=api.webconsole.url) as browser:
            reply = await _asked(browser, role)
            assert reply.status_code == 200
            assert reply.headers.get_list("content-security-policy") == [reply.headers["content-security-policy"]]
            assert "script-src 'self'" in reply.headers["content-security-policy"]
            assert reply.headers["cache-control"] == "no-cache"
            assert (await browser.get("/" + "x" * 20_000)).status_code == 414
            body = {"user": "ada", "password": "x", "project": "one"}
            down = await browser.post("/api/login", json=body)
            assert down.status_code == 502
            assert "cannot be reached" in down.json()["error"]
    finally:
        stopping.set()
        await role


async def _asked(browser: httpx.AsyncClient, role: asyncio.Task[None]) -> httpx.Response:
    async with asyncio.timeout(60):
        while not role.done():
            try:
                return await browser.get("/login")
            except httpx.ConnectError:
                await asyncio.sleep(0.02)
    raise AssertionError("it ended")


def test_a_ca_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"missing\.pem cannot be read for the web console"):
        make_webconsole(Config(data_dir=str(tmp_path), api=ApiConfig(ca_file="missing.pem")))


def test_behind_a_proxy_with_tls_its_cookie_is_for_tls(tmp_path: Path) -> None:
    proxied = ApiConfig(webconsole=Listen(public_url="https://console.example"))
    assert make_webconsole(Config(data_dir=str(tmp_path), api=proxied))._cookie == "__Host-moorage"
    assert make_webconsole(Config(data_dir=str(tmp_path)))._cookie == "moorage"
