"""What a host needs for guests that arrive by TLS, looked at before any guest is: QEMU's files, and how other daemons are called."""

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from moorage.drivers.libvirt import live_tls
from moorage.drivers.libvirt.live_tls import AUTHORITY, CLIENT, SERVER
from moorage.drivers.libvirt.settings import Libvirt
from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.local_cluster.libvirt_daemon import DaemonCertificates

ADDRESS = "192.0.2.7"
OVER = datetime.timedelta(minutes=-1)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "authority")


@pytest.fixture
def other(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "other", "another")


@pytest.fixture
def pki(authority: CertificateAuthority, tmp_path: Path) -> Path:
    made = tmp_path / "pki"
    DaemonCertificates(authority.file, authority.issue("host", [ADDRESS, "host.test"]), ()).lay_out(made)
    return made


def test_complete_files_serve_the_address_and_the_name(pki: Path) -> None:
    assert live_tls.why_qemu_cannot(pki, ADDRESS) == ""
    assert live_tls.why_qemu_cannot(pki, "host.test") == ""


@pytest.mark.parametrize("file", [AUTHORITY, *SERVER, *CLIENT])
def test_a_file_that_is_missing_is_named(pki: Path, file: str) -> None:
    (pki / file).unlink()
    assert live_tls.why_qemu_cannot(pki, ADDRESS) == f"{pki} has no {file}"


def test_a_directory_that_is_missing_has_none_of_them(tmp_path: Path) -> None:
    assert live_tls.why_qemu_cannot(tmp_path / "absent", ADDRESS).endswith(
        "has no ca-cert.pem, server-cert.pem, server-key.pem, client-cert.pem, client-key.pem"
    )


@pytest.mark.parametrize(("end", "name"), [(SERVER, "server-cert.pem"), (CLIENT, "client-cert.pem")])
def test_a_certificate_that_the_others_would_refuse_is_named(
    pki: Path,
    authority: CertificateAuthority,
    other: CertificateAuthority,
    end: tuple[str, str],
    name: str,
) -> None:
    for signed, why in (
        (other.issue("host", [ADDRESS]), "unable to get local issuer certificate"),
        (authority.issue("old", [ADDRESS], OVER), "certificate has expired"),
    ):
        for file, becomes in zip(end, (signed.cert, signed.key), strict=True):
            (pki / file).unlink()
            (pki / file).symlink_to(becomes)
        assert live_tls.why_qemu_cannot(pki, ADDRESS) == f"{pki}/{name}: {why}"


def test_a_certificate_for_another_name_is_refused(pki: Path) -> None:
    assert "server-cert.pem: IP address mismatch" in live_tls.why_qemu_cannot(pki, "192.0.2.8")
    assert "server-cert.pem: Hostname mismatch" in live_tls.why_qemu_cannot(pki, "other.test")


def another_key(pki: Path, authority: CertificateAuthority) -> None:
    (pki / SERVER[1]).unlink()
    (pki / SERVER[1]).symlink_to(authority.issue("else").key)


def a_passphrase(pki: Path, authority: CertificateAuthority) -> None:
    """Nobody is asked for it at a terminal."""
    key = pki / SERVER[1]
    made = serialization.load_pem_private_key(key.read_bytes(), None)
    key.unlink()
    secret = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))


def no_certificate(pki: Path, authority: CertificateAuthority) -> None:
    (pki / AUTHORITY).unlink()
    (pki / AUTHORITY).write_text("nothing")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (another_key, "KEY_VALUES_MISMATCH"),
        (no_certificate, "NO_CERTIFICATE_OR_CRL_FOUND"),
        (a_passphrase, "a key has a passphrase"),
    ],
)
def test_unusable_files_are_reported(
    pki: Path, authority: CertificateAuthority, spoil: Callable[[Path, CertificateAuthority], None], why: str
) -> None:
    spoil(pki, authority)
    assert live_tls.why_qemu_cannot(pki, ADDRESS) == f"{pki} cannot be used: {why}"


@pytest.mark.parametrize(
    ("conf", "special", "directory"),
    [
        (None, False, "/etc/pki/qemu"),
        ('# migrate_tls_x509_cert_dir = "/commented"\n', False, "/etc/pki/qemu"),
        ('default_tls_x509_cert_dir = "/all"\n', False, "/all"),
        ('default_tls_x509_cert_dir = "/all"\n', True, "special"),
        ('default_tls_x509_cert_dir="/all"\n  migrate_tls_x509_cert_dir = "/own"  # ours\n', True, "/own"),
    ],
)
def test_qemus_directory_is_the_one_that_libvirt_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: str | None, special: bool, directory: str
) -> None:
    file = tmp_path / "qemu.conf"
    if conf is not None:
        file.write_text(conf)
    of_migration = tmp_path / "special"
    monkeypatch.setattr(live_tls, "OF_MIGRATION", of_migration)
    if special:
        of_migration.mkdir()
    assert live_tls.qemu_directory(file) == tmp_path / directory


@pytest.mark.parametrize(
    ("uri", "by_tls", "name"),
    [
        ("qemu+tls://192.0.2.7/system", True, "192.0.2.7"),
        ("qemu+tls://host.test:16515/system?no_tty=1", True, "host.test"),
        ("qemu+tls://[2001:db8::7]/system", True, "2001:db8::7"),
        ("qemu://host.test/system", True, "host.test"),
        ("qemu:///system", False, ""),
        ("qemu+tcp://192.0.2.7/system", False, "192.0.2.7"),
        ("qemu+ssh://host.test/system", False, "host.test"),
        ("", False, ""),
    ],
)
def test_what_an_address_says(uri: str, by_tls: bool, name: str) -> None:
    assert (live_tls.is_tls(uri), live_tls.name_of(uri)) == (by_tls, name)


def test_the_certificate_that_a_daemon_shows_is_its_own_hosts_matter() -> None:
    uri, own = "qemu+tls://192.0.2.7/system", Libvirt(live_pki="/etc/moorage/pki")
    assert live_tls.as_client(uri, Libvirt()) == uri
    assert live_tls.as_client(uri, own) == f"{uri}?pkipath=/etc/moorage/pki"
    theirs = f"{uri}?pkipath=/theirs&no_tty=1"
    assert live_tls.as_client(theirs, own) == f"{uri}?no_tty=1&pkipath=/etc/moorage/pki"
    clear = "qemu+tcp://192.0.2.7/system"
    assert live_tls.as_client(clear, own) == clear


@pytest.mark.parametrize("settings", [Libvirt(), Libvirt(migration_address=ADDRESS, live_uri=""),
                                      Libvirt(migration_address=ADDRESS, live_uri="qemu+tcp://{address}/system")])  # fmt: skip
async def test_nothing_is_needed_where_no_guest_arrives_by_tls(settings: Libvirt) -> None:
    assert await live_tls.why_none_arrive(settings) == ""
