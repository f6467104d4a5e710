"""Encrypts user data, injected files and passwords for journals and records, with the region's key.

`user_data`, injected files and administrators' passwords are encrypted when a request is accepted, and stay encrypted
in every record, journal and copy. They are decrypted when a guest is made and when they are shown. A value names its
key, so keys can be exchanged while everything runs (`moorage secrets rotate`): the first key encrypts, every key
decrypts. Values of earlier releases are in clear and are read as they are: no base64 text begins like an encrypted
value.
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
"""Conductors that know this saga can decrypt values: both came with the same release."""

Keys = Callable[[], Sequence[str]]
"""Returns the region's current keys, each 32 bytes in URL-safe base64; the first encrypts."""

_log = logging.getLogger(__name__)


def key_id(key: str) -> str:
    """A name for the key that does not reveal it."""
    return hashlib.sha256(b"moorage key/" + key.encode()).hexdigest()[:KEY_ID_CHARACTERS]


class Encryption:
    """Encrypts and decrypts with the keys of a region."""

    def __init__(self, keys: Keys, *, former: str = "", clear_user_data: bool = False) -> None:
        """`former`: the service user's password; it encrypted passwords in journals before regions had a key.

        `clear_user_data`: user data are not encrypted, so that an earlier release can read them after a downgrade.
        """
        self._keys = keys
        self._former = former
        self.clear_user_data = clear_user_data

    @property
    def key(self) -> str:
        """The name of the key that encrypts."""
        return key_id(self._keys()[0])

    def seal(self, secret: str) -> str:
        """Encrypt the secret with the first key."""
        key = self._keys()[0]
        return f"{BEGINS}{key_id(key)}:{_box(key).encrypt(secret.encode()).decode()}"

    def open(self, sealed: str) -> str | None:
        """Return the secret, or None when none of the keys can decrypt it."""
        match = ENCRYPTED.fullmatch(sealed)
        try:
            if match is None:
                return _former(self._former).decrypt(sealed.encode()).decode()
            keys = {key_id(each): each for each in self._keys()}
            if match[1] not in keys:
                _log.error("a secret was encrypted with the key %s, which this process does not have", match[1])
                return None
            return _box(keys[match[1]]).decrypt(match[2].encode()).decode()
        except InvalidToken:
            _log.error("a secret cannot be decrypted: it is damaged, or the service user's password was changed since")
            return None

    # ------------------------------------------------------------------------------------------------- user data

    def user_data(self, clear: str) -> str:
        """Return the user data as a record keeps it: encrypted, unless the settings say otherwise."""
        return clear if self.clear_user_data else self.seal(clear)

    def shown(self, kept: str | None) -> str | None:
        """Return the user data in clear for its owner, or None when it cannot be decrypted; the log says why."""
        return self.open(kept) if kept is not None and kept.startswith(BEGINS) else kept

    def decrypted(self, kept: str) -> str:
        """Return the user data in clear for a guest. Raises Unavailable when it cannot be decrypted: the guest is not
        made without it.
        """
        clear = self.shown(kept)
        if clear is None:
            raise Unavailable(
                "what was given to the guest cannot be decrypted",
                private=f"give this process the region's keys ([secrets] key_file), {kept[: len(BEGINS) + KEY_ID_CHARACTERS]} among them",
                code="no_key",
            )
        return clear

    def server(self, server: Server) -> Server:
        """Return the record with its user data in clear, to make a guest. Raises Unavailable when they cannot be
        decrypted.
        """
        if server.user_data is None:
            return server
        return msgspec.structs.replace(server, user_data=self.decrypted(server.user_data))

    def files(self, clear: Sequence[InjectedFile]) -> tuple[InjectedFile, ...]:
        """Return the injected files as a journal keeps them: with encrypted content."""
        return tuple(InjectedFile(each.path, self.user_data(each.contents)) for each in clear)

    def guest(self, spec: GuestSpec) -> GuestSpec:
        """Return the specification in clear, as a host is sent it. Raises Unavailable when a secret cannot be
        decrypted.
        """
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
