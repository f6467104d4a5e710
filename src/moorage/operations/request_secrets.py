"""Encrypts the secrets of a request before it is accepted, once every conductor that may execute it can decrypt them."""

from typing import TypeVar

from moorage.model.errors import Unavailable
from moorage.model.guest import InjectedFile
from moorage.operations.context import SagaContext
from moorage.operations.encryption import DECRYPTED_SINCE

TextT = TypeVar("TextT")
"""A text, or a marker that there is none."""


async def encrypted(
    context: SagaContext, user_data: TextT | str, files: tuple[InjectedFile, ...]
) -> tuple[TextT | str, tuple[InjectedFile, ...]]:
    """Return both as journals and records keep them. While a conductor of an earlier release runs, they stay in clear."""
    seals = context.seals
    if seals is None or not (user_data or files) or not await _all_decrypt(context):
        return user_data, files
    return seals.user_data(user_data) if isinstance(user_data, str) and user_data else user_data, seals.files(files)


async def _all_decrypt(context: SagaContext) -> bool:
    try:
        await context.dispatcher.choose(DECRYPTED_SINCE)
    except Unavailable:
        return False
    return True
