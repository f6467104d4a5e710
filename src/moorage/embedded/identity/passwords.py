"""Passwords: bcrypt in threads of its own, and a short memory of what has just been proved.

The memory holds keyed digests of (stored hash, password) with a key that never leaves the process: it says that this
password fitted this hash within the last minutes, and a changed password has another hash, hence another entry.
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
THREADS = 2
WAITING_MAX = 1_000


class Passwords:
    """`rounds` is bcrypt's cost: each step doubles the work."""

    def __init__(self, rounds: int = 8) -> None:
        self._rounds = rounds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="bcrypt")
        self._waiting = 0
        self._key = secrets.token_bytes(32)
        self._proved: OrderedDict[bytes, float] = OrderedDict()
        self._nobody = bcrypt.hashpw(_prepared(secrets.token_hex()), bcrypt.gensalt(rounds)).decode()

    async def hash(self, password: str) -> str:
        if not password or len(password) > PASSWORD_MAX_CHARS:
            raise Invalid(f"A password has 1 to {PASSWORD_MAX_CHARS} characters.")
        made = await self._aside(lambda: bcrypt.hashpw(_prepared(password), bcrypt.gensalt(self._rounds)))
        return made.decode()

    async def fits(self, password: str, stored: str | None) -> bool:
        """Whether the password is the one hashed; as slow for nobody (None) as for somebody."""
        if len(password) > PASSWORD_MAX_CHARS:
            return False
        proof = hmac.digest(self._key, f"{stored}\0{password}".encode(), "sha256")
        now = time.monotonic()
        if self._proved.get(proof, 0.0) > now:
            return True
        against = (stored or self._nobody).encode()
        if not await self._aside(lambda: bcrypt.checkpw(_prepared(password), against)) or stored is None:
            return False
        self._proved[proof] = now + REMEMBERED_S
        while len(self._proved) > REMEMBERED_MAX:
            self._proved.popitem(last=False)
        return True

    def close(self) -> None:
        self._threads.shutdown(wait=True)

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
