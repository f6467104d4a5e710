"""The keys of a region: where they are kept, and a check that all of its processes have the same.

The file has one key in each line, and the first one encrypts.  It is read again when it changes, so keys can be exchanged while
processes run.  A process whose keys are not the region's does not start: no other process could read what it encrypts.
"""

import logging
import os
import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cryptography.fernet import Fernet

from moorage.main.config import Config
from moorage.main.service_clients import service_password
from moorage.model.errors import Invalid
from moorage.model.private_files import may_be_read_by_others, private_directory, private_file
from moorage.operations.encryption import Encryption, key_id
from moorage.sql import Database, Tx
from moorage.store.region import region_keys

DEFAULT = "region-key"
KEYS_MAX = 16
KEY_BYTES_MAX = 64 * KEYS_MAX

_log = logging.getLogger(__name__)


class KeyFile:
    """The keys in a file; read again when the file changes."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises Invalid when it cannot be read, or holds no valid keys."""
        self.path = path
        self._read_at: tuple[int, int, int] | None = None
        self._keys: tuple[str, ...] = ()
        self._reload()

    def __call__(self) -> Sequence[str]:
        """Return the keys; while the file cannot be read, those of the last read."""
        try:
            self._reload()
        except Invalid as wrong:
            _log.error("%s; the keys that it had are used on", wrong.public)
        return self._keys

    @staticmethod
    def make(path: Path, key: str) -> None:
        """Make the file with its first key; a file that exists already, or appears meanwhile, is kept."""
        coming = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        private_file(coming).write_text(f"{key}\n")
        try:
            os.link(coming, path)
        except FileExistsError:
            pass
        finally:
            coming.unlink()

    def write(self, keys: Sequence[str]) -> None:
        """Replace the keys in the file atomically."""
        coming = self.path.with_name(f"{self.path.name}.new")
        private_file(coming).write_text("".join(f"{key}\n" for key in keys))
        os.replace(coming, self.path)
        self._reload()

    def _reload(self) -> None:
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._read_at:
                return
            if may_be_read_by_others(self.path):
                raise Invalid(f"others may read {self.path}, the keys of the region: chmod 600 {self.path}")
            with self.path.open("rb") as file:
                text = file.read(KEY_BYTES_MAX + 1).decode("ascii", "replace")
        except OSError as unreadable:
            raise Invalid(
                f"the keys of the region cannot be read from {self.path} ({unreadable.strerror}): copy the file from where another "
                "process of the region runs, or make the first one with `moorage secrets add-key`"
            ) from unreadable
        keys = checked_keys(text.split(), str(self.path))
        if self._keys and not set(keys) & set(self._keys):
            raise Invalid(f"{self.path} has none of the keys of the region any more")
        self._keys, self._read_at = keys, stamp


def checked_keys(keys: Sequence[str], where: str) -> tuple[str, ...]:
    """Check the keys and return them. Raises Invalid, with a message that does not contain a key. `where` names their place."""
    if not 1 <= len(keys) <= KEYS_MAX:
        raise Invalid(f"{where} has {len(keys)} keys of the region: from 1 to {KEYS_MAX} are possible")
    try:
        for key in keys:
            Fernet(key)
    except ValueError:
        raise Invalid(f"{where} has a key that is none: a key is 32 bytes in URL-safe base64") from None
    return tuple(keys)


def new_key() -> str:
    return Fernet.generate_key().decode()


def key_path(config: Config) -> Path:
    return config.data / (config.secrets.key_file or Path("secrets") / DEFAULT)


def region_keys_of(config: Config, *, made: bool = True) -> KeyFile | tuple[str, ...]:
    """Return the configured keys. `made`: if there are none, make one in the data directory.

    Raises Invalid when the keys cannot be read, or are not valid.
    """
    if config.secrets.keys:
        return checked_keys(config.secrets.keys, "[secrets] keys")
    path = key_path(config)
    if made and not config.secrets.key_file and not path.exists():
        KeyFile.make(private_directory(path.parent) / path.name, new_key())
    return KeyFile(path)


async def open_seals(config: Config, region: Database) -> Encryption:
    """Open the encryption of this process. Raises Invalid when its keys are not the region's."""
    used = await region.read(region_keys.used)
    keys = region_keys_of(config, made=not used)
    all_keys = keys if isinstance(keys, KeyFile) else (lambda: keys)
    seals = Encryption(all_keys, former=service_password(config), clear_user_data=config.secrets.user_data == "clear")
    await know_key(region, seals, all_keys())
    return seals


async def know_key(region: Database, seals: Encryption, keys: Sequence[str]) -> None:
    """Record the key with which this process encrypts. Raises Invalid when the process does not have the region's newest key."""
    mine = {key_id(each) for each in keys}
    while True:
        used = await region.read(region_keys.used)
        if used and used[0] not in mine:
            raise Invalid(
                f"this process does not have the region's key {used[0]}, with which the data that users pass to their guests is encrypted: give "
                "every process the same keys ([secrets] key_file, by default secrets/region-key in the data directory); if that "
                "key is lost for ever, run `moorage secrets reencrypt --lost`"
            )
        if seals.key in used or await region.write(partial(_begin, key=seals.key, after=len(used))):
            return


def _begin(tx: Tx, key: str, after: int) -> bool:
    return region_keys.begin(tx, key, after, time.time_ns() // 1000)
