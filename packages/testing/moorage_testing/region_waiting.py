"""Worlds in which a boot finds no host at first, and sleeps until there is room."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from typing_extensions import override

from moorage.model.ids import ProviderId
from moorage.model.waiting import Wait
from moorage.operations.boot.boot import Boot
from moorage.saga import Line, Run, Saga
from moorage.saga.journal import Failed
from moorage.sql import Tx
from moorage.store.region import waiting
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.region_prepared import PreparedRegion

MORE_THAN_THERE_IS = 16
NEVER_US = 2**62


def waiting_boot(boot: Boot) -> Boot:
    """The same, asked to wait for as long as it takes."""
    return msgspec.structs.replace(boot, wait=Wait(NEVER_US, 3_600.0))


class FullRegion(PreparedRegion):
    """A prepared region whose hosts have no vCPU left, from the beginning or after an attempt failed, until the boot is woken."""

    def __init__(self, small: SmallRegion, make: Callable[[], Awaitable[Any]], *, after_failure: bool = False) -> None:
        super().__init__(small, make)
        self._small = small
        self._after_failure = after_failure
        self.world = WaitingWorld(small)

    @override
    async def __call__(self) -> Any:
        self.world.fill(False)
        await super().__call__()
        await self._small.region.write(lambda tx: tx.run(waiting.waiting_servers.delete()))
        self.world.begin(full=not self._after_failure, fills=self._after_failure)
        return self.world

    @override
    def save(self) -> Any:
        return super().save(), self.world.is_full, self.world.fills

    @override
    def restore(self, saved: Any) -> Any:
        region, is_full, fills = saved
        super().restore(region)
        self.world.begin(full=is_full, fills=fills)
        return self.world


class WaitingWorld:
    """A small region, and whether it is full."""

    def __init__(self, small: SmallRegion) -> None:
        self._small = small
        self.is_full = self.fills = False
        """Whether it is full, and whether the first attempt that fails fills it."""
        self.woken_times = 0

    def begin(self, *, full: bool, fills: bool) -> None:
        """`fills`: with the first attempt that fails."""
        self.fills = fills
        self.fill(full)

    def fill(self, full: bool) -> None:
        """As if somebody else were about to claim all there is, or had given it up."""
        if full == self.is_full:
            return
        self.is_full = full
        picture = self._small.engine.picture
        parts = [(ProviderId(host), "VCPU", MORE_THAN_THERE_IS) for host in picture.slots]
        picture.pend(parts, +1 if full else -1)

    async def woken(self) -> None:
        """What it lacked is free; and while it slept it held its ports and its quota, and nothing of a host."""
        held = await self.held()
        assert (held["claims"], held["used"], held["rows"], held["cell"], held["waiting"]) == (0, 0, 0, False, 1), held
        assert held["quota"]["instances"] == 1, held
        assert all(device and not host for _, host, device in held["ports"] if device), held
        self.fills = False
        self.fill(False)
        self.woken_times += 1

    @property
    def context(self) -> Any:
        return self._small.context

    def transact(self, work: Callable[[Any], Any], /) -> Awaitable[Any]:
        return self._small.transact(work)

    def on_commit(self, tx: Tx, saga: Saga[Any, Any], run: Run[Any, Any], lines: Sequence[Line]) -> None:
        """The notifications of each commit; the first failure fills the region."""
        self._small.on_commit(tx, saga, run, lines)
        if self.fills and any(isinstance(each, Failed) for each in lines):
            self.fills = False
            self.fill(True)

    async def settle(self) -> None:
        await self._small.settle()

    async def held(self) -> dict[str, Any]:
        """As in any small region, and who waits."""
        rows = await self._small.region.read(waiting.listed)
        return {**await self._small.held(), "waiting": len(rows)}
