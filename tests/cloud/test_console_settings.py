"""Consoles in a whole cloud: limits, settings of the proxy, other kinds of console, pages and TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.cloud.conftest import Running, Start, a_config
from tests.helpers.console_clients import Viewer, address, closed, console, open_at, refused, token_of, with_proxy
from websockets.exceptions import InvalidStatus

from moorage.main import consoles
from moorage.main.config import Hosts, Listen
from moorage.main.config_guests import Console
from moorage.main.local_cluster.ports import free_ports
from moorage.operations.guest.consoles import TOKENS_OF_A_SERVER_MAX
from moorage_testing.api_user import VERSION

__all__ = ["with_proxy"]


@pytest.fixture
async def proxied(with_proxy: Any) -> AsyncIterator[Running]:
    async with with_proxy() as running:
        yield running


async def opens(url: str) -> None:
    """It is let in, as soon as the proxy has noticed who went."""
    async with asyncio.timeout(180):
        while True:
            with suppress(InvalidStatus):
                async with open_at(url):
                    return


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
        answer = reply.json()["console"]
        assert answer["instance_uuid"] == server["id"]
        assert answer["tls_port"] == answer["port"]
        assert (answer["host"], answer["internal_access_path"]) == ("127.0.0.1", None)
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


async def test_console_actions_of_old_versions_and_other_projects(proxied: Running) -> None:
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


async def test_pages(with_proxy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    novnc = tmp_path / "novnc"
    (novnc / "core").mkdir(parents=True)
    (novnc / "core" / "rfb.js").write_text("export default class RFB {}\n")
    (novnc / "secret.txt").write_text("secret")
    (tmp_path / "outside.js").write_text("secret")
    (novnc / "link.js").symlink_to(tmp_path / "outside.js")
    monkeypatch.setattr(consoles, "DISTRIBUTIONS_NOVNC", str(tmp_path / "none"))
    async with with_proxy() as running, httpx.AsyncClient(trust_env=False) as browser:
        reply = await browser.get(f"{running.config.api.console.url}/vnc_lite.html?path=x")
        assert (reply.status_code, "npm install @novnc/novnc" in reply.text) == (404, True)
    monkeypatch.setattr(consoles, "DISTRIBUTIONS_NOVNC", str(novnc))
    async with with_proxy() as running, httpx.AsyncClient(trust_env=False) as browser:
        reply = await browser.get(f"{running.config.api.console.url}/core/rfb.js")
        assert reply.status_code == 200, "the distribution's package is found by itself"
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
