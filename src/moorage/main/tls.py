"""Certificates of listeners: read at the start, and again when their files change, so that no connection is interrupted."""

import logging
import ssl
from pathlib import Path

from moorage.model.errors import Invalid

log = logging.getLogger(__name__)


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Build a context for TLS 1.2 and newer with this certificate; `key` None: the key is in the same file.

    Raises Invalid when the files cannot be used, or when the key is encrypted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    def encrypted() -> bytes:
        raise Invalid(
            f"the key of {certificate} is encrypted: store the key without a password, because a service cannot ask for one"
        )

    try:
        context.load_cert_chain(certificate, key, password=encrypted)
    except ssl.SSLError as wrong:
        pair = f"{certificate} and {key}" if key is not None else str(certificate)
        raise Invalid(f"{pair} are no certificate and its key, in PEM: {wrong.reason or wrong}") from wrong
    except OSError as unreadable:
        missing = next((each for each in (certificate, key) if each is not None and not each.is_file()), certificate)
        raise Invalid(f"{missing} cannot be read for TLS: {unreadable.strerror or unreadable}") from unreadable
    return context


class ServedCertificate:
    """A certificate and its key on disk, and the TLS context of new connections."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Read the files. Raises Invalid when they cannot be used."""
        self._certificate = certificate
        self._key = key
        self._read_stamps = self._stamps()
        self.context = server_context(certificate, key)

    def reread(self, *, always: bool = False) -> bool:
        """Read the files again if they changed, or `always`; tell whether another certificate is used from now on.

        If the files cannot be used, the log says so and the last certificate is kept.
        """
        stamps = self._stamps()
        if stamps == self._read_stamps and not always:
            return False
        self._read_stamps = stamps
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
    """Values that change when the file is written or replaced; None: there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
