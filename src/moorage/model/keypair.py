"""A user's key pair, of which we keep the public half."""

from typing import Literal

import msgspec


class KeyPair(msgspec.Struct, frozen=True):
    number: int
    user: str
    name: str
    type: Literal["ssh", "x509"]
    public_key: str
    fingerprint: str
    created_at: int
    updated_at: int | None = None
