"""The doors for dry runs."""

from collections.abc import Sequence
from typing import Any, Protocol

from moorage.model.operation import Accepted
from moorage.operations import dry_run
from moorage.operations.dry_run import Foreseen
from moorage.operations.previewed import previewing
from moorage.operations.rooms import Rooms


class DryRunDoorsProtocol(Protocol):
    def preview(self) -> Any:
        """The same doors, through which nothing is begun: what would be is raised as `Previewed`."""
        ...

    async def foreseen(self, accepted: Sequence[Accepted]) -> tuple[Foreseen, ...]: ...


class DryRunDoors:
    rooms: Rooms

    async def foreseen(self, accepted: Sequence[Accepted]) -> tuple[Foreseen, ...]:
        return await dry_run.foreseen(previewing(self.rooms), accepted)
