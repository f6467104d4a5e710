"""The text form of tokens: one for each token, and no other is valid."""

import pytest

from moorage.model.errors import Unauthenticated
from moorage_embedded.identity.tokens import Claims, Seal


def test_a_token_has_one_encoding() -> None:
    seal = Seal(b"key")
    texts = [seal.seal(Claims("u" * 16 * n, ("password",), "", "", 1.0, 2.0, ("a",))) for n in range(3)]
    token = next(text for text in texts if len(text) % 4)
    assert seal.open(token).audit_ids == ("a",)
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = last[last.index(token[-1]) ^ 1]  # only in bits behind the end
    for changed in (
        token[:20] + "!" + token[20:],
        token + "\n",
        "\n" + token,
        token + "=",
        token + "!",
        token[:-1] + other,
    ):
        with pytest.raises(Unauthenticated):
            seal.open(changed)
