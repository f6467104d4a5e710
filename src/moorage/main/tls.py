"""Certificates of listeners: read when they start, and again when their files change, so that nobody need be interrupted."""

import logging
import ssl
from pathlib import Path

from moorage.model.errors import Invalid

log = logging.getLogger(__name__)


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """TLS 1.2 and newer with this certificate; `key` None: it is in the same file. Raises Invalid with what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    def encrypted() -> bytes:
        raise Invalid(f"the key of {certificate} is encrypted, and nobody is there who could say its password")

    try:
        context.load_cert_chain(certificate, key, password=encrypted)
    except ssl.SSLError as wrong:
        pair = f"{certificate} and {key}" if key is not None else str(certificate)
        raise Invalid(f"{pair} are no certificate and its key, in PEM: {wrong.reason or wrong}") from wrong
    except OSError as unreadable:
        missing = next((each for each in (certificate, key) if each is not None and not each.is_file()), certificate)
        raise Invalid(f"{missing} cannot be read for TLS: {unreadable.strerror or unreadable}") from unreadable
    return context


class Certificate:
    """A certificate and its key on disk, and the context that new connections get."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Raises Invalid."""
        self._certificate = certificate
        self._key = key
        self._seen = self._stamps()
        self.context = server_context(certificate, key)

    def reread(self, *, always: bool = False) -> bool:
        """Whether another one is used from now on. What cannot be used is said in the log, and the last one stays."""
        stamps = self._stamps()
        if stamps == self._seen and not always:
            return False
        self._seen = stamps
        try:
            self.context = server_context(self._certificate, self._key)
        except Invalid as wrong:
            log.error("the certificate was not changed: %s", wrong.public)
            return False
        log.info("the certificate %s was read again", self._certificate)
        return True

    def _stamps(self) -> tuple[object, ...]:
        return tuple(_stamp(each) for each in (self._certificate, self._key) if each is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What differs when a file was written or replaced; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
