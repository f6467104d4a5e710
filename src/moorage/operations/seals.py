"""Secrets that must wait in a journal: sealed with a key that every process of a region has, and no database."""

import base64
import hashlib
import logging

from cryptography.fernet import Fernet, InvalidToken

_log = logging.getLogger(__name__)


class Seals:
    """Seals short secrets; made from a secret that the processes share (the service user's password)."""

    def __init__(self, shared: str) -> None:
        key = hashlib.sha256(b"moorage sealed secrets/" + shared.encode()).digest()
        self._box = Fernet(base64.urlsafe_b64encode(key))

    def seal(self, secret: str) -> str:
        return self._box.encrypt(secret.encode()).decode()

    def open(self, sealed: str) -> str | None:
        """The secret; None when it was sealed with another key."""
        try:
            return self._box.decrypt(sealed.encode()).decode()
        except InvalidToken:
            _log.warning("a sealed secret cannot be opened: the service user's password was changed since")
            return None
