"""Consoles in a whole cloud: a WebSocket client at the proxy, a fake screen and a serial line at the host; and who is refused, and why."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.cloud.conftest import Running, Start, a_config
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from moorage.conductor.reconcilers.console_tokens import ConsoleTokens
from moorage.drivers.fault_injection import VerbDial
from moorage.drivers.framebuffer import HEIGHT, WIDTH, render_text
from moorage.main.config import Hosts, Listen
from moorage.main.config_guests import Console
from moorage.main.local_cluster.ports import free_ports
from moorage.model.ids import ServerId
from moorage.operations.guest import consoles
from moorage.operations.guest.consoles import TOKENS_OF_A_SERVER_MAX, digest
from moorage.store.cell import servers as cell_servers
from moorage.store.region import console_tokens
from moorage.store.servers import server_values
from moorage_testing.api_user import VERSION


@pytest.fixture
def with_proxy(start: Start, tmp_path: Path) -> Any:
    """A cloud with a console proxy on a free port."""

    def starting(**changes: Any) -> Any:
        api = msgspec.structs.replace(a_config(tmp_path).api, console=Listen(port=free_ports(1)[0]))
        return start(api=api, hosts=Hosts(count=1), console=Console(**changes))

    return starting


@pytest.fixture
async def proxied(with_proxy: Any) -> AsyncIterator[Running]:
    async with with_proxy() as running:
        yield running


async def console(running: Running, server: str, protocol: str = "vnc", kind: str = "novnc") -> str:
    """The URL that the API gives."""
    asked = {"remote_console": {"protocol": protocol, "type": kind}}
    reply = await running.admin.compute("POST", f"/servers/{server}/remote-consoles", asked)
    assert reply.status_code == 200, reply.text
    told = reply.json()["remote_console"]
    assert (told["protocol"], told["type"]) == (protocol, kind)
    return str(told["url"])


def token_of(url: str) -> str:
    query = parse_qs(urlsplit(url).query)
    return query["token"][0] if "token" in query else query["path"][0].removeprefix("?token=")


def address(running: Running, url: str) -> str:
    """The WebSocket behind a URL, as noVNC's page makes it."""
    return f"ws://127.0.0.1:{running.config.api.console.port}/?token={token_of(url)}"


async def opens(url: str) -> None:
    """It is let in, as soon as the proxy has noticed who went."""
    async with asyncio.timeout(180):
        while True:
            with suppress(InvalidStatus):
                async with open_at(url):
                    return


def open_at(url: str, **more: Any) -> Any:
    return connect(url, proxy=None, open_timeout=180, **more)


async def refused(url: str, **more: Any) -> tuple[int, str]:
    """Status and reason."""
    with pytest.raises(InvalidStatus) as caught:
        async with open_at(url, **more):
            pass
    response = caught.value.response
    assert not response.body  # an old client takes it for the console's first bytes
    return response.status_code, response.headers["X-Refused-Because"]


async def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    """Code and reason with which the proxy ends the connection."""
    async with asyncio.timeout(180):
        with suppress(ConnectionClosed):
            async for _ in socket:
                pass
    return socket.close_code, socket.close_reason


class Viewer:
    """Reads exact numbers of bytes from a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self._have = socket, b""

    async def read(self, count: int) -> bytes:
        async with asyncio.timeout(180):
            while len(self._have) < count:
                more = await self.socket.recv()
                self._have += more if isinstance(more, bytes) else more.encode()
        found, self._have = self._have[:count], self._have[count:]
        return found

    async def shake_hands(self) -> str:
        """RFB 3.8; the screen's name."""
        assert await self.read(12) == b"RFB 003.008\n"
        await self.socket.send(b"RFB 003.008\n")
        assert await self.read(2) == b"\x01\x01"
        await self.socket.send(b"\x01")
        assert await self.read(4) == b"\0\0\0\0"
        await self.socket.send(b"\x01")
        width, height = struct.unpack(">HH", (await self.read(20))[:4])
        assert (width, height) == (WIDTH, HEIGHT)
        (length,) = struct.unpack(">I", await self.read(4))
        return (await self.read(length)).decode()

    async def shown(self) -> list[bytes]:
        """The picture, as rows of bytes that are 1 where there is ink."""
        head = await self.read(16)
        assert head[0] == 0
        x, y, width, height, encoding = struct.unpack(">4xHHHHi", head)
        assert (x, y, encoding) == (0, 0, 0)
        dots = await self.read(width * height * 4)
        paper = dots[:4]
        inked = bytes(dots[at : at + 4] != paper for at in range(0, len(dots), 4))
        return [inked[row * width : (row + 1) * width] for row in range(height)]


async def test_a_screen_is_seen_and_typed_into(proxied: Running) -> None:
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


async def test_a_token_is_good_once_for_a_while_and_for_its_pages(proxied: Running) -> None:
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


async def test_of_two_who_come_with_one_token_one_is_let_in(proxied: Running) -> None:
    server = await proxied.admin.active("web")
    place = address(proxied, await console(proxied, server["id"], "serial", "serial"))

    async def come() -> int:
        try:
            async with open_at(place):
                return 101
        except InvalidStatus as refusal:
            return refusal.response.status_code

    assert sorted(await asyncio.gather(*(come() for _ in range(6)))) == [101, *[403] * 5]


async def test_a_guest_that_is_not_there_any_more_has_no_console(proxied: Running) -> None:
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


async def test_a_host_that_is_dead_is_said_to_be(proxied: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await proxied.admin.active("web")
    place = address(proxied, await console(proxied, server["id"]))
    driver = proxied.cloud.fleet.drivers["host1"]
    proxied.dial_all(get_console=VerbDial(fail_chance=1.0, says="the hypervisor is out", code="guest_failed"))
    assert await refused(place) == (403, "the server has no console now: the hypervisor is out")
    proxied.dial_all()
    (listening, _) = driver._consoles._open[ServerId(server["id"]), "novnc"]
    listening.close()
    assert await refused(place) == (502, "the host's console does not answer")
    await proxied.cloud.fleet.agents["host1"].stop()
    monkeypatch.setattr(consoles, "HOST_PATIENCE_S", 0.5)
    status, why = await refused(place)
    assert (status, why) == (503, "the host of the server does not answer")
    await proxied.cloud.fleet.restart(proxied.cloud.plans[0])
    await proxied.admin.gone(server["id"])


async def test_limits(with_proxy: Any) -> None:
    async with with_proxy(connections_max=2, connections_of_a_server_max=1, single_use=False) as running:
        first, second = await running.admin.active("a"), await running.admin.active("b")
        mine = address(running, await console(running, first["id"], "serial", "serial"))
        other = address(running, await console(running, second["id"], "serial", "serial"))
        async with open_at(mine):
            assert await refused(mine) == (503, "too many consoles of this server are open")
            async with open_at(other):
                assert await refused(other) == (503, "all connections of this console proxy are taken")
        await opens(mine)
        for _ in range(TOKENS_OF_A_SERVER_MAX):
            newest = await console(running, first["id"])
        assert (await refused(mine))[1] == "there is no such token, or it expired long ago"
        await opens(address(running, newest))


async def test_a_console_is_cut_where_that_is_configured(with_proxy: Any) -> None:
    async with with_proxy(enforce_session_timeout=True, token_life_s=1.5) as running:
        server = await running.admin.active("a")
        ended: tuple[int | None, str | None] | None = None
        async with asyncio.timeout(180):
            while ended is None:
                with suppress(InvalidStatus):  # its time was over before we came
                    async with open_at(address(running, await console(running, server["id"]))) as socket:
                        ended = await closed(socket)
        assert ended == (4001, "the token's time is over")


async def test_other_pages_may_be_named(with_proxy: Any) -> None:
    async with with_proxy(allowed_origins=("horizon.example.org",), single_use=False) as running:
        server = await running.admin.active("a")
        place = address(running, await console(running, server["id"]))
        async with open_at(place, origin="http://horizon.example.org:8080"):
            pass
        assert await refused(place, origin="http://horizon.example.org.evil.org") == (
            403, "pages of horizon.example.org.evil.org may not open consoles here",
        )  # fmt: skip
        assert await refused(place, origin="https://horizon.example.org") == (
            403, "the page's protocol is not that of the console",
        )  # fmt: skip
        forwarded = {"X-Forwarded-Proto": "http"}
        async with open_at(place, origin="https://horizon.example.org", additional_headers=forwarded):
            pass


async def test_other_kinds_of_console(with_proxy: Any) -> None:
    urls = {
        "spice_html5_url": "http://spice/auto.html", "spice_direct_url": "http://direct/nova", "mks_url": "http://mks/",
    }  # fmt: skip
    async with with_proxy(**urls) as running:
        driver = running.cloud.fleet.drivers["host1"]
        driver.turn(msgspec.structs.replace(driver.dials, console_types=("novnc", "spice-direct", "webmks")))
        server = await running.admin.active("a")
        direct = await console(running, server["id"], "spice", "spice-direct")
        assert direct.startswith("http://direct/nova?token=")
        reply = await running.admin.compute("GET", f"/os-console-auth-tokens/{token_of(direct)}")
        told = reply.json()["console"]
        assert told["instance_uuid"] == server["id"]
        assert told["tls_port"] == told["port"]
        assert (told["host"], told["internal_access_path"]) == ("127.0.0.1", None)
        mks = await console(running, server["id"], "mks", "webmks")
        async with open_at(address(running, mks)) as socket:
            await socket.send(b"hello")
            assert await Viewer(socket).read(5) == b"hello"
        for protocol, kind, why in (
            ("spice", "spice-html5", "Unavailable console type spice-html5."),
            ("vnc", "xvpvnc", "Invalid console type xvpvnc"),
            ("vnc", "serial", "Invalid console type serial"),
            ("rdp", "rdp-html5", "Unavailable console type rdp."),
        ):
            asked = {"remote_console": {"protocol": protocol, "type": kind}}
            reply = await running.admin.compute("POST", f"/servers/{server['id']}/remote-consoles", asked)
            assert (reply.status_code, reply.json()["badRequest"]["message"]) == (400, why)


async def test_actions_of_old_and_other_projects(proxied: Running) -> None:
    server = await proxied.admin.active("a")
    proxied.admin.http.headers["OpenStack-API-Version"] = "compute 2.1"
    path = f"/servers/{server['id']}/action"
    for action, kind in (("os-getVNCConsole", "novnc"), ("os-getSerialConsole", "serial")):
        reply = await proxied.admin.compute("POST", path, {action: {"type": kind}})
        assert (reply.status_code, reply.json()["console"]["type"]) == (200, kind)
        async with open_at(address(proxied, reply.json()["console"]["url"])):
            pass
    reply = await proxied.admin.compute("POST", path, {"os-getSPICEConsole": {"type": "spice-html5"}})
    assert reply.status_code == 400
    assert (await proxied.admin.compute("GET", "/os-console-auth-tokens/x")).status_code == 400
    async with proxied.person("demo", "demo") as stranger:
        reply = await stranger.compute(
            "POST", f"/servers/{server['id']}/remote-consoles", {"remote_console": {"protocol": "vnc", "type": "novnc"}}
        )
        assert reply.status_code == 404
        assert (await stranger.compute("GET", "/os-console-auth-tokens/x")).status_code == 403
    proxied.admin.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"


async def test_pages(with_proxy: Any, tmp_path: Path) -> None:
    novnc = tmp_path / "novnc"
    (novnc / "core").mkdir(parents=True)
    (novnc / "core" / "rfb.js").write_text("export default class RFB {}\n")
    (novnc / "secret.txt").write_text("secret")
    (tmp_path / "outside.js").write_text("secret")
    (novnc / "link.js").symlink_to(tmp_path / "outside.js")
    async with with_proxy() as running, httpx.AsyncClient(trust_env=False) as browser:
        reply = await browser.get(f"{running.config.api.console.url}/vnc_lite.html?path=x")
        assert (reply.status_code, "npm install @novnc/novnc" in reply.text) == (404, True)
    async with with_proxy(novnc_directory=str(novnc)) as running, httpx.AsyncClient(trust_env=False) as browser:
        url = running.config.api.console.url
        reply = await browser.get(f"{url}/vnc_lite.html?path=x")
        assert (reply.status_code, 'import RFB from "./core/rfb.js"' in reply.text) == (200, True)
        assert "<title>noVNC</title>" in reply.text
        assert reply.headers["referrer-policy"] == "no-referrer"
        reply = await browser.get(f"{url}/core/rfb.js")
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        for path in (
            "/secret.txt",
            "/link.js",
            "/../outside.js",
            "/%2e%2e/outside.js",
            "/core",
            "/nothing.js",
            "/core/rfb.js%00",
        ):
            assert (await browser.get(url + path)).status_code == 404, path
        assert (await browser.post(f"{url}/vnc_lite.html")).status_code == 405
        (novnc / "vnc_lite.html").write_text("<p>whole noVNC</p>")
        assert "whole noVNC" in (await browser.get(f"{url}/vnc_lite.html")).text


async def test_tls(start: Start, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    port = free_ports(1)[0]
    api = msgspec.structs.replace(a_config(tmp_path).api, console=Listen("localhost", port))
    tls = Console(certificate=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"))
    async with start(api=api, hosts=Hosts(count=1), console=tls) as running:
        server = await running.admin.active("web")
        assert (await console(running, server["id"])).startswith(f"https://localhost:{port}/vnc_lite.html?")
        url = await console(running, server["id"], "serial", "serial")
        assert url.startswith(f"wss://localhost:{port}/?token=")
        with pytest.raises(InvalidStatus):
            async with open_at(url, ssl=trusting, origin=f"http://localhost:{port}"):
                pass
        async with open_at(url, ssl=trusting, origin=f"https://localhost:{port}") as socket:
            assert await Viewer(socket).read(10)
