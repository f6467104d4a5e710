"""Consoles in a whole cloud: a WebSocket client at the proxy, a fake screen and a serial line at the host, and which connections are refused."""

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.cloud.conftest import Running
from tests.helpers.console_clients import Viewer, address, closed, console, open_at, refused, token_of, with_proxy
from websockets.exceptions import InvalidStatus

from moorage.conductor.reconcilers.console_tokens import ConsoleTokens
from moorage.drivers.fault_injection import VerbDial
from moorage.drivers.framebuffer import HEIGHT, WIDTH, render_text
from moorage.model.ids import ServerId
from moorage.operations.guest import consoles
from moorage.operations.guest.consoles import digest
from moorage.store.cell import servers as cell_servers
from moorage.store.region import console_tokens
from moorage.store.servers import server_values

__all__ = ["with_proxy"]


@pytest.fixture
async def proxied(with_proxy: Any) -> AsyncIterator[Running]:
    async with with_proxy() as running:
        yield running


async def test_a_screen_is_shown_and_accepts_input(proxied: Running) -> None:
    server = await proxied.admin.active("web")
    url = await console(proxied, server["id"])
    assert url.startswith(f"http://127.0.0.1:{proxied.config.api.console.port}/vnc_lite.html?path=%3Ftoken%3D")
    async with open_at(address(proxied, url), subprotocols=["binary"]) as socket:
        assert socket.subprotocol == "binary"
        viewer = Viewer(socket)
        assert await viewer.shake_hands() == "web"
        await socket.send(struct.pack(">BBHHHH", 3, 0, 0, 0, WIDTH, HEIGHT))
        assert await viewer.shown() == [bytes(row) for row in render_text(["web", "a simulated guest", "", ""])]
        await socket.send(struct.pack(">BBHHHH", 3, 1, 0, 0, WIDTH, HEIGHT))
        await socket.send(struct.pack(">BBxxI", 4, 1, ord("h")) + struct.pack(">BBxxI", 4, 0, ord("h")))
        assert await viewer.shown() == [bytes(row) for row in render_text(["web", "a simulated guest", "", "h"])]


async def test_a_serial_line_echoes_and_a_cookie_does_as_well(proxied: Running) -> None:
    server = await proxied.admin.active("web")
    url = await console(proxied, server["id"], "serial", "serial")
    assert url.startswith(f"ws://127.0.0.1:{proxied.config.api.console.port}/?token=")
    cookie = {"Cookie": f"a=b; token={token_of(url)}"}
    place = f"ws://127.0.0.1:{proxied.config.api.console.port}/websockify"
    async with open_at(place, additional_headers=cookie) as socket:
        viewer = Viewer(socket)
        written = b""
        while not written.endswith(b"web login: "):
            written += await viewer.read(1)
        await socket.send(b"root\r")
        assert await viewer.read(6) == b"root\r\n"


async def test_a_token_is_valid_once_for_a_time_and_for_its_pages(proxied: Running) -> None:
    server = await proxied.admin.active("web")
    assert await refused(f"ws://127.0.0.1:{proxied.config.api.console.port}/") == (
        400, "there is no token in the query, nor a cookie with one",
    )  # fmt: skip
    place = f"ws://127.0.0.1:{proxied.config.api.console.port}/?token="
    assert (await refused(place + "guessed"))[0] == 403
    assert (await refused(place + "x" * 300))[0] == 403
    once = address(proxied, await console(proxied, server["id"]))
    for origin in ("http://evil.example.org", "null", "https://127.0.0.1", "http://[", "file://"):
        assert (await refused(once, origin=origin))[0] == 403, origin
    assert (await refused(once.replace("/?", "/elsewhere?")))[0] == 403
    async with open_at(once, origin=f"http://127.0.0.1:{proxied.config.api.console.port}"):
        assert await refused(once) == (403, "the token was used before: request a new one")
    late = await console(proxied, server["id"])
    region = proxied.cloud.region.databases.region
    kept = await region.read(lambda tx: console_tokens.get(tx, digest(token_of(late))))
    assert kept is not None
    over = console_tokens.console_tokens.update().values(expires_at=kept.created_at)
    await region.write(lambda tx: tx.run(over))
    assert await refused(address(proxied, late)) == (403, "the token has expired: request a new one")
    assert await ConsoleTokens(region, proxied.cloud.region.clock).run() == 2
    assert await refused(address(proxied, late)) == (403, "there is no such token, or it expired long ago")


async def test_of_two_clients_with_one_token_one_is_accepted(proxied: Running) -> None:
    server = await proxied.admin.active("web")
    place = address(proxied, await console(proxied, server["id"], "serial", "serial"))

    async def come() -> int:
        try:
            async with open_at(place):
                return 101
        except InvalidStatus as refusal:
            return refusal.response.status_code

    assert sorted(await asyncio.gather(*(come() for _ in range(6)))) == [101, *[403] * 5]


async def test_a_deleted_guest_has_no_console(proxied: Running) -> None:
    server = await proxied.admin.active("web")
    before = await console(proxied, server["id"])
    watching = address(proxied, await console(proxied, server["id"], "serial", "serial"))
    path = f"/servers/{server['id']}"
    async with open_at(watching) as socket:
        assert (await proxied.admin.compute("POST", f"{path}/action", {"os-stop": None})).status_code == 202
        assert (await closed(socket))[0] == 1001
    await proxied.admin.settled(server["id"])
    status, why = await refused(address(proxied, before))
    assert (status, "not running" in why) == (403, True)
    asked = {"remote_console": {"protocol": "vnc", "type": "novnc"}}
    assert (await proxied.admin.compute("POST", f"{path}/remote-consoles", asked)).status_code == 409
    assert (await proxied.admin.compute("POST", f"{path}/action", {"os-start": None})).status_code == 202
    await proxied.admin.settled(server["id"])
    await console(proxied, server["id"])  # which opens the port anew
    assert await refused(address(proxied, before)) == (403, "the server was started again: request a new token")
    fresh = await console(proxied, server["id"])
    assert (await proxied.admin.compute("GET", f"/os-console-auth-tokens/{token_of(fresh)}")).status_code == 200
    await proxied.admin.gone(server["id"])
    assert await refused(address(proxied, fresh)) == (403, "the server is gone")
    assert (await proxied.admin.compute("GET", f"/os-console-auth-tokens/{token_of(fresh)}")).status_code == 404


async def test_a_token_is_bound_to_the_host_that_the_server_was_on(proxied: Running) -> None:
    server = await proxied.admin.active("web")
    place = address(proxied, await console(proxied, server["id"]))
    region = proxied.cloud.region.databases
    table = cell_servers.servers

    async def put_on(host: str) -> None:
        for database in region.cells.values():
            row = await database.read(lambda tx: cell_servers.get(tx, ServerId(server["id"])))
            if row is not None:
                moved = server_values(msgspec.structs.replace(row, host=host))
                await database.write(
                    lambda tx, new=moved: tx.run(table.update().where(table.c.id == new["id"]).values(new))
                )

    await put_on("host9")
    assert await refused(place) == (403, "the server has moved to another host: request a new token")
    await put_on("host1")
    async with open_at(place):
        pass


async def test_the_console_of_a_dead_host_is_refused_with_the_reason(
    proxied: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await proxied.admin.active("web")
    place = address(proxied, await console(proxied, server["id"]))
    driver = proxied.cloud.fleet.drivers["host1"]
    proxied.set_faults_everywhere(
        get_console=VerbDial(fail_chance=1.0, says="the hypervisor is out", code="guest_failed")
    )
    assert await refused(place) == (403, "the server has no console now: the hypervisor is out")
    proxied.set_faults_everywhere()
    (listening, _) = driver._consoles._open[ServerId(server["id"]), "novnc"]
    listening.close()
    assert await refused(place) == (502, "the host's console does not answer")
    await proxied.cloud.fleet.agents["host1"].stop()
    monkeypatch.setattr(consoles, "HOST_PATIENCE_S", 0.5)
    status, why = await refused(place)
    assert (status, why) == (503, "the host of the server does not answer")
    await proxied.cloud.fleet.restart(proxied.cloud.plans[0])
    await proxied.admin.gone(server["id"])
