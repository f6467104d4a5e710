"""A process's authentication to the broker, and the check of the broker's certificate: keys, credentials, certificates.

Files are read again for every connection, so a file that was replaced is used with the next one.  A key that other users of the machine
can read is refused, because the broker takes everybody who has it for this process.
"""

import base64
import binascii
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nkeys

from moorage.model.errors import Invalid

SEED_BYTES = 58
PUBLIC_CHARS = 56
"""An nkey as text."""


@dataclass(frozen=True)
class Security:
    """The settings of `[bus]` besides the address; a broker without authentication needs none of them."""

    nkey: Path | None = None
    """The file with the seed of an nkey: the broker knows its public half and gets a signature."""
    credentials: Path | None = None
    """A NATS credentials file: a JWT that the operator of the broker signed, and the seed that goes with it."""
    tls: bool = False
    """Send nothing to a broker before it has shown a trusted certificate."""
    ca: Path | None = None
    """PEM file of the CA of the broker's certificate; None: the CAs that this machine trusts."""
    cert: Path | None = None
    """Our own certificate, if the broker asks for one (mutual TLS)."""
    key: Path | None = None

    def check(self) -> None:
        """Check the settings and files. Raises Invalid, and names the setting that is wrong."""
        if self.nkey is not None and self.credentials is not None:
            raise Invalid("[bus] nkey and credentials are two ways to say who this process is: configure one of them")
        if (self.cert is None) != (self.key is None):
            raise Invalid("[bus] cert and key belong together")
        if not self.tls and (self.ca or self.cert):
            raise Invalid("[bus] ca, cert and key are of TLS: say tls = true, or take them out")
        for name in ("nkey", "credentials", "ca", "cert", "key"):
            path: Path | None = getattr(self, name)
            if path is not None:
                _check_file(f"[bus] {name}", path, secret=name in ("nkey", "credentials", "key"))
        if self.nkey is not None:
            public_key(self.nkey)
        if self.tls:
            self.context()

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts only the configured CA, or the CAs of this machine. Raises Invalid for unusable files."""
        try:
            made = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except (OSError, ssl.SSLError) as wrong:
            raise Invalid(f"[bus] ca: {self.ca} is no file of certificates ({_why(wrong)})") from wrong
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None:
            try:
                made.load_cert_chain(self.cert, self.key, password=_no_password)
            except (OSError, ssl.SSLError) as wrong:
                raise Invalid(
                    f"[bus] cert: {self.cert} and {self.key} are no certificate and its key ({_why(wrong)})"
                ) from wrong
        return made

    def options(self) -> dict[str, Any]:
        """Return the client library's options for one connection. Raises Invalid for files that became unusable meanwhile."""
        options: dict[str, Any] = {}
        if self.nkey is not None:
            options["nkeys_seed_str"] = seed_of(self.nkey)
        if self.credentials is not None:
            options["user_credentials"] = str(self.credentials)
        if self.tls:
            options["tls"] = self.context()
        return options


def wants_tls(url: str) -> bool:
    """Tell whether the address itself asks for TLS."""
    return any(urlsplit(each).scheme == "tls" for each in url.split(","))


def seed_of(path: Path) -> str:
    """Return the seed in a file. Raises Invalid when there is none."""
    try:
        lines = path.read_text().split()
    except (OSError, UnicodeDecodeError) as wrong:
        raise Invalid(f"the nkey seed file {path} cannot be read: {_why(wrong)}") from wrong
    if len(lines) != 1 or len(lines[0]) != SEED_BYTES or not lines[0].startswith("SU"):
        raise Invalid(f"{path} is no nkey seed of a user: it is one line of {SEED_BYTES} letters that begins with SU")
    return lines[0]


def public_key(path: Path) -> str:
    """Return the public half of the key in a file. Raises Invalid when it is not a key."""
    return public_of(seed_of(path), str(path))


def public_of(seed: str, where: str = "the seed") -> str:
    """Return the public half of a seed; `where` names its place in errors.

    Raises Invalid when it is not the seed of a user (ErrInvalidSeed is only raised inside).
    """
    try:
        kind, raw = nkeys.decode_seed(bytearray(seed.encode()))
        if kind != nkeys.PREFIX_BYTE_USER or new_seed(bytes(raw)) != seed:
            raise nkeys.ErrInvalidSeed
        return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()
    except (nkeys.NkeysError, ValueError) as wrong:
        raise Invalid(f"{where} is no nkey seed of a user: its letters do not fit together") from wrong


def is_public_key(key: str) -> bool:
    """Tell whether this is the valid public half of a user's key."""
    if len(key) != PUBLIC_CHARS or not key.startswith("U"):
        return False
    try:
        raw = base64.b32decode(key.encode("ascii"))
    except (binascii.Error, UnicodeEncodeError):
        return False
    return bool(nkeys.crc16(bytearray(raw[:-2])) == int.from_bytes(raw[-2:], "little"))


def new_seed(random: bytes) -> str:
    """Make a user's seed from 32 random bytes."""
    return bytes(nkeys.encode_seed(random, nkeys.PREFIX_BYTE_USER)).decode()


def _check_file(what: str, path: Path, *, secret: bool) -> None:
    try:
        status = path.stat()
        with path.open("rb"):
            pass
    except OSError as missing:
        raise Invalid(f"{what}: {path} cannot be read: {missing.strerror}") from missing
    if secret and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Invalid(f"{what}: others on this machine may read {path}: chmod 600 it")


def _no_password() -> str:
    raise ValueError("the key is encrypted, and a process cannot ask for its password")


def _why(wrong: BaseException) -> str:
    return (wrong.strerror if isinstance(wrong, OSError) else None) or str(wrong) or type(wrong).__name__
