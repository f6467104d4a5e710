"""Sealed tokens: a Fernet over the few facts that cannot be looked up again, so that issuing one writes nothing."""

import base64
import hashlib
import secrets

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from moorage.model.errors import Unauthenticated

PRIMARY = frozenset({"password", "token"})
"""Methods by which users prove themselves; a token with another one stands for its user within limits."""
SIGNED = "ec2credential"
"""The method of a token that a signature was exchanged for."""
TOKEN_MAX_CHARS = 4096
OPENED_MAX = 20_000
"""What a seal holds never changes, so it is broken once; whether it still counts is asked every time, elsewhere."""


class Claims(msgspec.Struct, frozen=True, array_like=True):
    """What a token says of itself; everything else is looked up when it is used, so it is true then."""

    user: str
    methods: tuple[str, ...]
    scope: str
    """`""` (unscoped), `project`, `domain` or `system`."""
    scope_id: str
    issued_at: float
    expires_at: float
    """Seconds since the epoch."""
    audit_ids: tuple[str, ...]
    """Its own, then that of the token its chain began with."""
    application_credential: str = ""
    trust: str = ""


class Seal:
    """Encrypts and decrypts tokens; every process with the same key can."""

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(hashlib.sha256(key).digest()))
        self._decoder = msgspec.msgpack.Decoder(Claims)
        self._opened: dict[bytes, Claims] = {}

    def seal(self, claims: Claims) -> str:
        return self._fernet.encrypt(msgspec.msgpack.encode(claims)).decode().rstrip("=")

    def hide(self, secret: str) -> str:
        """For the database."""
        return self._fernet.encrypt(secret.encode()).decode()

    def reveal(self, hidden: str) -> str:
        """Empty when it was hidden with another key."""
        try:
            return self._fernet.decrypt(hidden).decode()
        except InvalidToken:
            return ""

    def open(self, token: str) -> Claims:
        """Raises Unauthenticated for whatever we did not seal."""
        if not token or len(token) > TOKEN_MAX_CHARS or not token.isascii():
            raise Unauthenticated("The request you have made requires authentication.")
        key = hashlib.sha256(token.encode()).digest()
        if (known := self._opened.get(key)) is not None:
            return known
        try:
            # Python's decoder passes over what is not of the alphabet, and over bits behind the end: one token, one text.
            sealed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            if base64.urlsafe_b64encode(sealed).decode().rstrip("=") != token:
                raise ValueError("not the text that was sealed")
            claims = self._decoder.decode(self._fernet.decrypt(token + "=" * (-len(token) % 4)))
        except (InvalidToken, msgspec.DecodeError, ValueError) as failure:
            raise Unauthenticated("The request you have made requires authentication.") from failure
        if len(self._opened) >= OPENED_MAX:
            self._opened.clear()
        self._opened[key] = claims
        return claims


def new_audit_id() -> str:
    return secrets.token_urlsafe(16)
