"""A bounded memory of what was asked a moment ago; who asks for the same thing at the same time waits for one answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class AnswerCache(Generic[ValueT]):
    """Answers by key, each good for `life_s`; the oldest go when there are more than `most`."""

    def __init__(self, clock: Callable[[], float], *, life_s: float, most: int) -> None:
        """`clock`: seconds that never go back."""
        self._clock = clock
        self._life_s = life_s
        self._most = most
        self._found: dict[str, tuple[float, asyncio.Future[ValueT]]] = {}

    async def get(self, key: str, fetch: Callable[[], Awaitable[ValueT]]) -> ValueT:
        """Return the cached value, or the result of `fetch`; a failure is raised to all waiting callers and not cached."""
        known = self._found.get(key)
        if known is not None and known[0] > self._clock():
            return await asyncio.shield(known[1])
        answer = asyncio.ensure_future(fetch())
        self._found.pop(key, None)
        self._found[key] = (self._clock() + self._life_s, answer)
        while len(self._found) > self._most:
            del self._found[next(iter(self._found))]
        try:
            return await asyncio.shield(answer)
        finally:
            if answer.done() and (answer.cancelled() or answer.exception() is not None):
                self._drop(key, answer)
            elif not answer.done():  # we were cancelled, and others may wait
                answer.add_done_callback(lambda done: self._drop(key, done) if _failed(done) else None)

    def forget(self, key: str) -> None:
        self._found.pop(key, None)

    def _drop(self, key: str, answer: "asyncio.Future[ValueT]") -> None:
        known = self._found.get(key)
        if known is not None and known[1] is answer:
            del self._found[key]


def _failed(answer: "asyncio.Future[ValueT]") -> bool:
    return answer.cancelled() or answer.exception() is not None
