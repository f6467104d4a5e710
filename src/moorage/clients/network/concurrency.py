"""Several calls to the network service at once."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from moorage.model.errors import Problem, Unavailable, UnknownOutcome

T = TypeVar("T")


async def all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all calls and return their results in order.

    If calls fail, it raises the most important error after all have ended: a refusal, else UnknownOutcome, else Unavailable.
    """
    waiting = list(calls)
    if len(waiting) == 1:
        return [await waiting[0]]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    problems = [answer for answer in answers if isinstance(answer, BaseException)]
    if problems:
        raise min(problems, key=_urgency)
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def _urgency(problem: BaseException) -> int:
    if not isinstance(problem, Problem):
        return 0
    return 3 if isinstance(problem, UnknownOutcome) else 4 if isinstance(problem, Unavailable) else 1
