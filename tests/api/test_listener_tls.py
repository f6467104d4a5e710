"""TLS on a listener: who may connect, and a certificate that is renewed at run time."""

import asyncio
import os
import signal
import ssl
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.api import test_listener_limits as in_the_clear
from tests.helpers.raw_http_client import Listening, get, listening

from moorage.clients.http import ServiceClient
from moorage.main.config import ApiConfig, Config, Listen, read_config
from moorage.main.consoles import urls
from moorage.main.event_loop import run_loop
from moorage.main.http_limits import HttpLimits
from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.process import stop_on_signals
from moorage.main.tls import ServedCertificate
from moorage.model.errors import Invalid, Unavailable
from moorage_testing.waiting import until


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "ca")


def a_listen(authority: CertificateAuthority, name: str = "server") -> Listen:
    made = authority.issue(name)
    return Listen(port=0, cert=str(made.cert), key=str(made.key))


def trusting(authority: CertificateAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


async def fetched(there: Listening, trust: ssl.SSLContext) -> httpx.Response:
    async with httpx.AsyncClient(verify=trust, trust_env=False) as client:
        return await client.get(f"https://127.0.0.1:{there.door.port}/")


async def serial(there: Listening, trust: ssl.SSLContext) -> str:
    """Of the certificate that a new connection is shown."""
    ends = await there.connect(ssl=trust)
    shown = ends.writer.get_extra_info("peercert")
    ends.close()
    return str(shown["serialNumber"])


def spoil(file: str) -> None:
    Path(file).write_text("no key")


async def test_a_listener_speaks_tls(authority: CertificateAuthority, tmp_path: Path) -> None:
    async with listening(listen=a_listen(authority)) as there:
        answer = await fetched(there, trusting(authority))
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert there.app.scopes[0]["scheme"] == "https"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await fetched(there, trusting(CertificateAuthority(tmp_path / "another")))
        neighbour = ServiceClient("compute", f"https://127.0.0.1:{there.door.port}", ca_file=str(authority.file))
        assert (await neighbour.call("GET", "/json", token="")).status == 200
        await neighbour.close()
        stranger = ServiceClient("compute", f"https://127.0.0.1:{there.door.port}")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await stranger.call("GET", "/", token="")
        await stranger.close()
    async with listening(listen=a_listen(authority), hsts_s=0) as there:
        assert "strict-transport-security" not in (await fetched(there, trusting(authority))).headers


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")
async def test_tls_below_1_2_is_refused(authority: CertificateAuthority) -> None:
    async with listening(listen=a_listen(authority)) as there:
        for version, taken in (
            (ssl.TLSVersion.TLSv1_1, False),
            (ssl.TLSVersion.TLSv1_2, True),
            (ssl.TLSVersion.TLSv1_3, True),
        ):
            trust = trusting(authority)
            trust.set_ciphers("DEFAULT:@SECLEVEL=0")
            trust.minimum_version = trust.maximum_version = version
            try:
                ends = await there.connect(ssl=trust)
            except (ssl.SSLError, ConnectionError):
                assert not taken
                continue
            assert taken
            ends.close()


async def test_plain_http_on_a_tls_port_gets_no_answer(authority: CertificateAuthority) -> None:
    async with listening(listen=a_listen(authority)) as there:
        ends = await there.connect()
        await ends.say(get())
        await ends.ended()
        await there.empty()
        assert not there.app.scopes


async def test_unfinished_handshakes_are_counted_and_closed(authority: CertificateAuthority) -> None:
    limits = HttpLimits(head_s=0.3, connections_of_an_address_max=20)
    async with listening(listen=a_listen(authority), limits=limits) as there:
        for _ in range(30):
            ends = await there.connect()
            await ends.say(b"\x16\x03\x01")
        assert there.door.doorkeeper.inside <= 20
        await there.empty()
        assert (await fetched(there, trusting(authority))).status_code == 200


async def test_a_renewed_certificate_is_used_for_new_connections(
    authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    listen, trust = a_listen(authority), trusting(authority)
    async with listening(listen=listen) as there:
        first = await serial(there, trust)
        kept = await there.connect(ssl=trust)
        authority.issue("server")
        assert there.door.certificate is not None
        assert there.door.certificate.reread()
        second = await serial(there, trust)
        assert second != first
        await kept.say(get())
        assert (await kept.answer())[0] == 200
        spoil(listen.key)
        assert not there.door.certificate.reread()
        assert "the certificate was not changed" in caplog.text
        assert not there.door.certificate.reread()
        assert await serial(there, trust) == second


async def test_the_listener_reloads_its_certificate_periodically_and_on_request(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.main.http_servers.CERTIFICATE_EVERY_S", 0.05)
    listen, trust = a_listen(authority), trusting(authority)
    async with listening(listen=listen) as there:
        certificate = there.door.certificate
        assert certificate is not None
        before = certificate.context
        authority.issue("server")
        await until(lambda: certificate.context is not before)
        before = certificate.context
        stopping = stop_on_signals(Config(api=ApiConfig(compute=listen)))
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: certificate.context is not before)
        assert not stopping.is_set()
        for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(sign)
        assert await serial(there, trust)


def test_tls_works_on_the_event_loop_of_the_processes(
    authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_loop(test_a_listener_speaks_tls(authority, tmp_path))
    run_loop(test_plain_http_on_a_tls_port_gets_no_answer(authority))
    run_loop(test_unfinished_handshakes_are_counted_and_closed(authority))
    run_loop(in_the_clear.test_incomplete_requests_are_closed_after_a_time(caplog))
    run_loop(in_the_clear.test_a_client_that_does_not_read_is_disconnected())
    run_loop(in_the_clear.test_connections_are_limited_in_total_and_by_address())


def test_an_invalid_certificate_is_refused_with_the_reason(authority: CertificateAuthority, tmp_path: Path) -> None:
    good, other = authority.issue("good"), authority.issue("other")
    encrypted = tmp_path / "encrypted.key"
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(good.key.read_bytes(), None)
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
        )
    )
    together = tmp_path / "both.pem"
    together.write_bytes(good.cert.read_bytes() + good.key.read_bytes())
    ServedCertificate(together, None)
    for certificate, key_file, said in (
        (tmp_path / "absent.pem", good.key, "absent.pem cannot be read for TLS: No such file"),
        (good.cert, tmp_path / "absent.key", "absent.key cannot be read for TLS"),
        (good.cert, other.key, "are no certificate and its key, in PEM"),
        (good.key, good.key, "are no certificate and its key, in PEM"),
        (good.cert, encrypted, "encrypted"),
    ):
        with pytest.raises(Invalid, match=said):
            ServedCertificate(certificate, key_file)
    with pytest.raises(Invalid, match="is no PEM file of a CA"):
        ServiceClient("image", "https://glance", ca_file=str(good.key))


def test_each_listener_uses_the_common_certificate_or_its_own(tmp_path: Path) -> None:
    file = tmp_path / "moorage.toml"
    file.write_text(
        '[api]\ncert = "all.pem"\nkey = "all.key"\nca_file = "ca.pem"\n'
        '[api.image]\nport = 9292\ncert = "image.pem"\n'
        "[api.metadata]\nport = 8775\ntls = false\n"
        '[api.network]\nhost = "::1"\nport = 9696\n'
        '[image]\nurl = "https://glance"\nca_file = "glance.pem"\n'
    )
    config = read_config(file)
    assert (config.api.compute.cert, config.api.compute.key) == ("all.pem", "all.key")
    assert (config.api.image.cert, config.api.image.key) == ("image.pem", "")
    assert config.api.compute.url == "https://127.0.0.1:8774"
    assert config.api.network.url == "https://[::1]:9696"
    assert config.api.metadata.url == "http://127.0.0.1:8775"
    assert config.ca_of() == config.ca_of(config.network) == str(config.data / "ca.pem")
    assert config.ca_of(config.image) == str(config.data / "glance.pem")
    moved = msgspec.structs.replace(config.api, compute=Listen(port=1))
    assert moved.compute.url == "https://127.0.0.1:1"


def test_the_older_console_setting_is_its_listeners_certificate(tmp_path: Path) -> None:
    file = tmp_path / "moorage.toml"
    file.write_text('[console]\ncertificate = "a.pem"\nkey = "a.key"\n')
    config = read_config(file)
    assert (config.api.console.cert, config.api.console.key) == ("a.pem", "a.key")
    assert urls(config)["serial"] == "wss://127.0.0.1:6080/"
    assert not config.api.compute.has_tls
    file.write_text('[api.image]\nport = 9292\nkey = "a.key"\n')
    with pytest.raises(Invalid, match=r"\[api\.image\] names a key without a certificate"):
        read_config(file)
