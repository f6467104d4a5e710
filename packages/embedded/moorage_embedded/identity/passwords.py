"""Passwords: bcrypt in threads of its own, and a short memory of what has just been proved.

The memory holds keyed digests of (stored hash, password) with a key that never leaves the process: it says that this
password fitted this hash within the last minutes, and a changed password has another hash, hence another entry.  Who asks the
same question at the same time shares one check, so a fleet that logs in as one user costs one.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import bcrypt

from moorage.model.errors import Invalid, Unavailable

T = TypeVar("T")

PASSWORD_MAX_CHARS = 4096
REMEMBERED_MAX = 10_000
REMEMBERED_S = 300.0
ROUNDS = 12
"""Keystone's default of `password_hash_rounds`: a quarter of a second."""
THREADS = 2
WAITING_MAX = 64
"""Some seconds of work; later callers would have given up before it was done."""


class Passwords:
    """`rounds` is bcrypt's cost: each step doubles the work."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        self._rounds = rounds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="bcrypt")
        self._waiting = 0
        self._key = secrets.token_bytes(32)
        self._proved: OrderedDict[bytes, float] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[bool]] = {}
        self._nobody = b""

    async def hash(self, password: str) -> str:
        """The hash of a password. Raises Invalid for an empty or too long one."""
        if not password or len(password) > PASSWORD_MAX_CHARS:
            raise Invalid(f"A password has 1 to {PASSWORD_MAX_CHARS} characters.")
        made = await self._aside(lambda: bcrypt.hashpw(_prepared(password), bcrypt.gensalt(self._rounds)))
        return made.decode()

    async def fits(self, password: str, stored: str | None) -> bool:
        """Whether the password has this hash; it takes as long for an unknown user (None)."""
        if len(password) > PASSWORD_MAX_CHARS:
            return False
        proof = self._proof(password, stored)
        if self._proved.get(proof, 0.0) > time.monotonic():
            return True
        task = self._asked.get(proof)
        if task is None:
            task = asyncio.create_task(self._check(password, stored, proof))
            self._asked[proof] = task
            task.add_done_callback(lambda _: self._asked.pop(proof, None))
        return await asyncio.shield(task)  # one caller hanging up must not fail the others

    def is_cheap(self, stored: str) -> bool:
        """Whether the hash is of a lower cost than those made today."""
        parts = stored.split("$")
        return len(parts) > 2 and parts[2].isdecimal() and int(parts[2]) < self._rounds

    def remember(self, password: str, stored: str) -> None:
        """Remember the new hash of a password that was just verified."""
        self._proved[self._proof(password, stored)] = time.monotonic() + REMEMBERED_S
        while len(self._proved) > REMEMBERED_MAX:
            self._proved.popitem(last=False)

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _proof(self, password: str, stored: str | None) -> bytes:
        return hmac.digest(self._key, f"{stored}\0{password}".encode(), "sha256")

    async def _check(self, password: str, stored: str | None, proof: bytes) -> bool:
        def check() -> bool:
            if stored is not None:
                return bcrypt.checkpw(_prepared(password), stored.encode())
            if not self._nobody:
                self._nobody = bcrypt.hashpw(_prepared(secrets.token_hex()), bcrypt.gensalt(self._rounds))
            return bcrypt.checkpw(_prepared(password), self._nobody) and False

        fits = await self._aside(check)
        if fits and stored is not None:
            self.remember(password, stored)
        return fits

    async def _aside(self, work: Callable[[], T]) -> T:
        if self._waiting >= WAITING_MAX:
            raise Unavailable("The identity service is busy; try again later.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def _prepared(password: str) -> bytes:
    """bcrypt reads 72 bytes; a digest makes every character of a long password count."""
    return base64.b64encode(hashlib.sha256(password.encode()).digest())
