"""While a simulation runs, time and chance are its own: every clock the code reads is virtual, every random byte is from the seed.

Python's modules are changed from outside, and put back; the product has no branch for it.
"""

import datetime as datetimes
import os
import platform
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from types import FunctionType, ModuleType
from typing import Any

import bcrypt
from typing_extensions import override

from moorage.model import ids
from moorage_testing.simulation.clock import SimulatedMachine, machine_here
from moorage_testing.simulation.loop import VirtualLoop

_REAL_DATETIME = datetimes.datetime
_REAL_RANDOM = random.Random
_REAL_TIME, _REAL_MONOTONIC = time.time, time.monotonic
Bound = tuple[tuple[Any, ...] | None, dict[str, Any] | None]


@dataclass
class _Found:
    """What of the project's modules must be changed while a simulation runs."""

    functions: list[FunctionType]
    """With one of the machine's clocks as a default."""
    dice: list[random.Random]
    datetimes: list[ModuleType]
    uuids: list[ModuleType]


_found: dict[int, _Found] = {}
"""By the number of modules there were."""


SALT = b"$2b$04$abcdefghijklmnopqrstuu"
"""The cheapest; simulated passwords protect nothing."""
_REAL_CHECKPW, _REAL_HASHPW = bcrypt.checkpw, bcrypt.hashpw


@cache
def _fits(password: bytes, against: bytes) -> bool:
    return _REAL_CHECKPW(password, against)


@lru_cache(maxsize=1_000)
def _hashed(password: bytes, salt: bytes) -> bytes:
    return _REAL_HASHPW(password, salt)


def hash_is_fixed() -> bool:
    """Sets of strings are walked in one order only when the interpreter was started with PYTHONHASHSEED=0."""
    return os.environ.get("PYTHONHASHSEED") == "0"


class _VirtualDatetime(datetimes.datetime):
    """`datetime`, but for what it takes to be now."""

    @classmethod
    @override
    def now(cls, tz: datetimes.tzinfo | None = None) -> "_VirtualDatetime":
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    @override
    def utcnow(cls) -> "_VirtualDatetime":
        return cls.fromtimestamp(time.time(), datetimes.UTC).replace(tzinfo=None)


class Chance:
    """Everything that the product draws from while a simulation runs."""

    def __init__(self, found: Sequence[random.Random]) -> None:
        self.bytes = _REAL_RANDOM(0)
        self._found = found
        """Dice that modules have had since they were imported."""
        self._made: list[random.Random] = []
        """Those that were made since, without a seed of their own."""

    def begin(self, seed: str) -> None:
        """From here on it is a function of this seed."""
        dice = _REAL_RANDOM(seed)
        self.bytes.seed(dice.getrandbits(128))
        for each in (*self._found, *self._made):
            each.seed(self.bytes.getrandbits(128))
        random.seed(dice.getrandbits(128))
        ids._randomness.forget()  # pyright: ignore[reportPrivateUsage]

    def keep(self, dice: random.Random) -> int:
        """They have no seed of their own: what they begin with."""
        self._made.append(dice)
        return self.bytes.getrandbits(128)


@contextmanager
def determined(loop: VirtualLoop, seed: str, elsewhere: SimulatedMachine) -> Iterator[Chance]:
    """Everything between is a function of the seed; `elsewhere`: whose clock is read outside all processes."""
    found = _searched_modules()
    chance = Chance(found.dice)

    def now() -> float:
        return machine_here(elsewhere).now()

    def random_bytes(count: int) -> bytes:
        return chance.bytes.randbytes(count)

    state = random.getstate()
    patches: list[tuple[Any, str, Any]] = [
        (time, "time", now),
        (time, "time_ns", lambda: int(now() * 1e9)),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "perf_counter", loop.time),
        (time, "perf_counter_ns", lambda: int(loop.time() * 1e9)),
        (time, "clock_gettime", _clock_gettime(loop, now)),
        (os, "urandom", random_bytes),
        (random, "_urandom", random_bytes),
        (uuid, "uuid4", lambda: uuid.UUID(bytes=random_bytes(16), version=4)),
        (platform, "node", lambda: machine_here(elsewhere).name),
        (bcrypt, "checkpw", lambda password, against: _fits(bytes(password), bytes(against))),
        (bcrypt, "gensalt", lambda *_: SALT),
        (bcrypt, "hashpw", lambda password, salt: _hashed(bytes(password), bytes(salt))),
    ]
    patches += [(module, "datetime", _VirtualDatetime) for module in found.datetimes]
    patches += [(module, "uuid4", lambda: uuid.UUID(bytes=random_bytes(16), version=4)) for module in found.uuids]
    patches.append((random, "Random", _dice_of(chance)))
    defaults = _bound_clocks(found.functions, {_REAL_TIME: now, _REAL_MONOTONIC: loop.time})
    before = [(where, name, getattr(where, name)) for where, name, _ in patches]
    for where, name, value in patches:
        setattr(where, name, value)
    for function, _, bound in defaults:
        function.__defaults__, function.__kwdefaults__ = bound
    chance.begin(seed)
    try:
        yield chance
    finally:
        for where, name, value in before:
            setattr(where, name, value)
        for function, bound, _ in defaults:
            function.__defaults__, function.__kwdefaults__ = bound
        random.setstate(state)
        ids._randomness.forget()  # pyright: ignore[reportPrivateUsage]


def _searched_modules() -> _Found:
    if len(sys.modules) not in _found:
        modules = [module for name, module in sys.modules.items() if name.startswith("moorage.")]
        values = [value for module in modules for value in vars(module).values()]
        functions: dict[int, FunctionType] = {}
        for value in values:
            for each in [value, *(vars(value).values() if isinstance(value, type) else ())]:
                if isinstance(each, FunctionType) and _has_a_clock(each):
                    functions[id(each)] = each
        _found[len(sys.modules)] = _Found(
            list(functions.values()),
            [value for value in values if isinstance(value, _REAL_RANDOM)],
            [module for module in modules if getattr(module, "datetime", None) is _REAL_DATETIME],
            [module for module in modules if hasattr(module, "uuid4")],
        )
    return _found[len(sys.modules)]


def _has_a_clock(function: FunctionType) -> bool:
    said = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return any(each is _REAL_TIME or each is _REAL_MONOTONIC for each in said)


def _bound_clocks(functions: list[FunctionType], instead: dict[Any, Any]) -> list[tuple[FunctionType, Bound, Bound]]:
    """(function, its defaults, the same with virtual clocks)."""

    def swap(value: Any) -> Any:
        return instead[value] if value is _REAL_TIME or value is _REAL_MONOTONIC else value

    found: list[tuple[FunctionType, Bound, Bound]] = []
    for each in functions:
        plain, named = each.__defaults__, each.__kwdefaults__
        swapped = None if plain is None else tuple(map(swap, plain))
        swapped_named = None if named is None else {name: swap(value) for name, value in named.items()}
        found.append((each, (plain, named), (swapped, swapped_named)))
    return found


def _dice_of(chance: Chance) -> type[random.Random]:
    """`random.Random` that is seeded by the simulation where it would be by the system."""

    class SeededRandom(_REAL_RANDOM):
        def __init__(self, x: Any = None) -> None:
            super().__init__(chance.keep(self) if x is None else x)

    return SeededRandom


def _clock_gettime(loop: VirtualLoop, now: Callable[[], float]) -> Callable[[int], float]:
    boot = getattr(time, "CLOCK_BOOTTIME", -1)

    def clock_gettime(which: int) -> float:
        if which == time.CLOCK_REALTIME:
            return now()
        return loop.now if which == boot else loop.time()

    return clock_gettime
