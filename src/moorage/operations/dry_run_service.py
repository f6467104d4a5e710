"""The doors for dry runs."""

from collections.abc import Sequence
from typing import Any, Protocol

from moorage.model.operation import Accepted
from moorage.operations.context import SagaContext
from moorage.operations.dry_run import dry_run
from moorage.operations.dry_run.dry_run import Foreseen
from moorage.operations.preview import previewing


class DryRunDoorsProtocol(Protocol):
    def preview(self) -> Any:
        """The same doors, through which nothing is begun: what would be is raised as `Previewed`."""
        ...

    async def foreseen(self, accepted: Sequence[Accepted]) -> tuple[Foreseen, ...]: ...


class DryRunService:
    context: SagaContext

    async def foreseen(self, accepted: Sequence[Accepted]) -> tuple[Foreseen, ...]:
        return await dry_run.foreseen(previewing(self.context), accepted)
