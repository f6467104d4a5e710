"""What tenants tell their guests, and passwords, on their way into journals and rows: encrypted with the region's key.

`user_data`, injected files and administrators' passwords are encrypted by whoever accepts a request, and stay so in every record,
journal and copy; they are decrypted where a guest is made, and where they are shown.  A value names its key, so keys can be
exchanged while everything runs (`moorage secrets rotate`): the first of the keys encrypts, all of them decrypt.  What an earlier
release wrote is in clear, and read as it is: no base64 begins like an encrypted value.
"""

import base64
import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from moorage.model.errors import Unavailable
from moorage.model.guest import GuestSpec, InjectedFile
from moorage.model.server import Server

BEGINS = "encrypted:1:"
ENCRYPTED = re.compile(r"encrypted:1:([0-9a-f]{16}):([A-Za-z0-9_-]+=*)")
KEY_ID_CHARACTERS = 16
DECRYPTED_SINCE = "rebuild/1"
"""Conductors that list this saga know encrypted values: it came with the same release."""

Keys = Callable[[], Sequence[str]]
"""The region's keys as they are now, each 32 bytes in URL-safe base64; the first encrypts."""

_log = logging.getLogger(__name__)


def key_id(key: str) -> str:
    """What a key is called, where nobody may learn it."""
    return hashlib.sha256(b"moorage key/" + key.encode()).hexdigest()[:KEY_ID_CHARACTERS]


class Encryption:
    """Encrypts and decrypts with the keys of a region."""

    def __init__(self, keys: Keys, *, former: str = "", clear_user_data: bool = False) -> None:
        """`former`: what passwords in journals were encrypted with before regions had a key, the service user's password.

        `clear_user_data`: what users tell their guests is not encrypted, for whoever goes back to a release that cannot read it.
        """
        self._keys = keys
        self._former = former
        self.clear_user_data = clear_user_data

    @property
    def key(self) -> str:
        """The name of the key that encrypts."""
        return key_id(self._keys()[0])

    def seal(self, secret: str) -> str:
        """Encrypted, with the first key."""
        key = self._keys()[0]
        return f"{BEGINS}{key_id(key)}:{_box(key).encrypt(secret.encode()).decode()}"

    def open(self, sealed: str) -> str | None:
        """The secret; None when none of the keys is the one it was encrypted with."""
        found = ENCRYPTED.fullmatch(sealed)
        try:
            if found is None:
                return _former(self._former).decrypt(sealed.encode()).decode()
            keys = {key_id(each): each for each in self._keys()}
            if found[1] not in keys:
                _log.error("a secret was encrypted with the key %s, which this process does not have", found[1])
                return None
            return _box(keys[found[1]]).decrypt(found[2].encode()).decode()
        except InvalidToken:
            _log.error("a secret cannot be decrypted: it is damaged, or the service user's password was changed since")
            return None

    # ------------------------------------------------------------------------------------ what users tell guests

    def user_data(self, clear: str) -> str:
        """As it is to be kept."""
        return clear if self.clear_user_data else self.seal(clear)

    def shown(self, kept: str | None) -> str | None:
        """As its owner said it; None where it cannot be decrypted, which the log says."""
        return self.open(kept) if kept is not None and kept.startswith(BEGINS) else kept

    def decrypted(self, kept: str) -> str:
        """The same for a guest, which is not made without it. Raises Unavailable."""
        clear = self.shown(kept)
        if clear is None:
            raise Unavailable(
                "what was given to the guest cannot be decrypted",
                private=f"give this process the region's keys ([secrets] key_file), {kept[: len(BEGINS) + KEY_ID_CHARACTERS]} among them",
                code="no_key",
            )
        return clear

    def server(self, server: Server) -> Server:
        """The record with its user data in clear, for a guest alone. Raises Unavailable."""
        if server.user_data is None:
            return server
        return msgspec.structs.replace(server, user_data=self.decrypted(server.user_data))

    def files(self, clear: Sequence[InjectedFile]) -> tuple[InjectedFile, ...]:
        """As they are to be kept."""
        return tuple(InjectedFile(each.path, self.user_data(each.contents)) for each in clear)

    def guest(self, spec: GuestSpec) -> GuestSpec:
        """What a host is sent, in clear. Raises Unavailable."""
        return msgspec.structs.replace(
            spec,
            user_data=None if spec.user_data is None else self.decrypted(spec.user_data),
            files=tuple(InjectedFile(each.path, self.decrypted(each.contents)) for each in spec.files),
        )


@lru_cache(maxsize=64)
def _box(key: str) -> Fernet:
    return Fernet(key)


@lru_cache(maxsize=4)
def _former(password: str) -> Fernet:
    key = hashlib.sha256(b"moorage sealed secrets/" + password.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
