"""TLS of live migration: between libvirt's daemons, and between the QEMU processes of both hosts, which send memory and disks.

Each has certificates of its own, and none of them are ours: libvirt's are in `/etc/pki` or in `live_pki`, QEMU's where `qemu.conf` says.
So both are tried when the agent starts: the daemon is called as other hosts call it, and QEMU's files serve a handshake within this process.
A host where they do not work takes no guests that run, and does all else.
Names of files are libvirt's and QEMU's (libvirt's pages "TLS x509 certificate setup" and "qemu.conf", QEMU's page "TLS setup for network services").
"""

import asyncio
import contextlib
import re
import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from moorage.drivers.libvirt.link import DaemonLink
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.errors import HostFailed

AUTHORITY, SERVER, CLIENT = "ca-cert.pem", ("server-cert.pem", "server-key.pem"), ("client-cert.pem", "client-key.pem")
"""QEMU's names of files in its directory."""
QEMU_CONF = Path("/etc/libvirt/qemu.conf")
OF_MIGRATION, OF_ALL = Path("/etc/pki/libvirt-migrate"), Path("/etc/pki/qemu")
"""Where libvirt looks for QEMU's files when `qemu.conf` names no directory: in the first one if it exists."""
TURNED_AWAY = ("TLS confirmation", "of our certificate")
"""What libvirt's client says where the daemon does not take its certificate, which hears nothing of why."""
ANSWERS_WITHIN_S = 30.0
FLIGHTS = 3
"""How often each end of a TLS handshake speaks, at the most."""


def is_tls(uri: str) -> bool:
    """Whether a daemon is reached by TLS at this address; libvirt takes TLS for a host without a transport, too."""
    parts = urlsplit(uri)
    return parts.scheme == "qemu+tls" or (parts.scheme == "qemu" and bool(parts.netloc))


def name_of(uri: str) -> str:
    """The name that the certificates of a daemon at this address must have, and of QEMU there."""
    return urlsplit(uri).hostname or ""


def as_client(uri: str, settings: Libvirt) -> str:
    """The address as the daemon of this host opens it: the certificate that it shows is a matter of this host."""
    if not is_tls(uri) or not settings.live_pki:
        return uri
    parts = urlsplit(uri)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "pkipath"]
    return urlunsplit(parts._replace(query=urlencode([*kept, ("pkipath", settings.live_pki)], safe="/")))


async def why_none_arrive(settings: Libvirt) -> str:
    """Why guests that run cannot arrive by TLS; empty: they can, or none are to arrive so."""
    uri = settings.live_uri.format(address=settings.migration_address)
    if not settings.migration_address or not is_tls(uri):
        return ""
    directory = Path(settings.live_pki) if settings.live_pki else qemu_directory()
    found = (
        await _why_not_reached(as_client(uri, settings)),
        await asyncio.to_thread(why_qemu_cannot, directory, name_of(uri)),
    )
    return "; ".join(each for each in found if each)


async def _why_not_reached(uri: str) -> str:
    """Why the daemon cannot be called so, in libvirt's words; empty: it can."""
    link = DaemonLink(uri)
    try:
        await link.ask(lambda connection: connection.getURI(), limit_s=ANSWERS_WITHIN_S)
    except HostFailed as failure:
        return f"{uri}: {explained(failure.private.strip())}"
    finally:
        link.close()
    return ""


def explained(why: str) -> str:
    """libvirt's words, with what they mean where they do not say it."""
    if any(each in why for each in TURNED_AWAY):
        return f"{why}: the daemon there does not take this host's certificate, and its log says why"
    return why


def qemu_directory(conf: Path = QEMU_CONF) -> Path:
    """Where QEMU's certificates for migrations are, as libvirt determines it."""
    try:
        text = conf.read_text()
    except OSError:
        text = ""
    named_by = dict(re.findall(r'^\s*(\w+)\s*=\s*"([^"]*)"', text, re.MULTILINE))
    if named := named_by.get("migrate_tls_x509_cert_dir"):
        return Path(named)
    if OF_MIGRATION.exists():
        return OF_MIGRATION
    return Path(named_by.get("default_tls_x509_cert_dir") or OF_ALL)


def why_qemu_cannot(directory: Path, name: str) -> str:
    """Why QEMU cannot take and send guests with the files of this directory, under this name; empty: it can."""
    if missing := [each for each in (AUTHORITY, *SERVER, *CLIENT) if not (directory / each).is_file()]:
        return f"{directory} has no {', '.join(missing)}"
    try:
        refused = _why_refused(directory, name)
    except (OSError, ValueError) as unusable:
        return f"{directory} cannot be used: {getattr(unusable, 'reason', None) or unusable}"
    return f"{directory}/{refused}" if refused else ""


def _why_refused(directory: Path, name: str) -> str:
    """Connect the files with themselves by TLS, in memory: which of the certificates the other end refuses, and why; empty: none.

    Raises SSLError and other OSErrors for files that are no certificate, or no key of it.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_REQUIRED
    for context, (certificate, key) in ((server, SERVER), (client, CLIENT)):
        context.load_cert_chain(directory / certificate, directory / key, password=_refuse_passphrase)
        context.load_verify_locations(directory / AUTHORITY)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        (client.wrap_bio(to_client, to_server, server_hostname=name), SERVER[0]),
        (server.wrap_bio(to_server, to_client, server_side=True), CLIENT[0]),
    )
    for _ in range(FLIGHTS):
        for end, others in ends:
            try:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
            except ssl.SSLCertVerificationError as refused:
                return f"{others}: {refused.verify_message}"
    return ""


def _refuse_passphrase() -> str:
    """Raises ValueError: else a terminal would be asked for it."""
    raise ValueError("a key has a passphrase")
