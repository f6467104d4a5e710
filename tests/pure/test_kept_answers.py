"""The cache of the metadata service: short, bounded, and one request for concurrent callers."""

import asyncio

import pytest

from moorage.api.metadata.cache import AnswerCache
from moorage.model.errors import Unavailable


class Asked:
    """Counts questions; each waits until it is let go."""

    def __init__(self) -> None:
        self.count = 0
        self.go = asyncio.Event()
        self.fails = False

    async def __call__(self) -> int:
        self.count += 1
        await self.go.wait()
        if self.fails:
            raise Unavailable("out")
        return self.count


async def test_concurrent_and_later_callers_share_one_request() -> None:
    now, asked = [0.0], Asked()
    kept: AnswerCache[int] = AnswerCache(lambda: now[0], life_s=15.0, most=10)
    waiting = [asyncio.create_task(kept.get("a", asked)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    asked.go.set()
    assert await asyncio.gather(*waiting[1:]) == [1, 1, 1, 1]
    now[0] = 14.9
    assert await kept.get("a", asked) == 1
    now[0] = 15.1
    assert await kept.get("a", asked) == 2
    kept.forget("a")
    assert await kept.get("a", asked) == 3


async def test_failures_are_not_cached() -> None:
    asked = Asked()
    kept: AnswerCache[int] = AnswerCache(lambda: 0.0, life_s=15.0, most=10)
    asked.go.set()
    asked.fails = True
    with pytest.raises(Unavailable):
        await kept.get("a", asked)
    asked.fails = False
    assert await kept.get("a", asked) == 2


async def test_cancelled_requests_are_not_cached() -> None:
    asked = Asked()
    kept: AnswerCache[int] = AnswerCache(lambda: 0.0, life_s=15.0, most=10)
    waiting = asyncio.create_task(kept.get("a", asked))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    asked.fails = True
    asked.go.set()
    for _ in range(5):
        await asyncio.sleep(0)
    asked.fails = False
    assert await kept.get("a", asked) == 2


async def test_the_oldest_entries_are_removed() -> None:
    asked = Asked()
    asked.go.set()
    kept: AnswerCache[int] = AnswerCache(lambda: 0.0, life_s=15.0, most=2)
    for key in "abc":
        await kept.get(key, asked)
    assert await kept.get("c", asked) == 3
    assert await kept.get("a", asked) == 4
