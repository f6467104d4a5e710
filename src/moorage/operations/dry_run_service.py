"""The part of the server service that predicts what an operation would do."""

from collections.abc import Sequence

from moorage.model.operation import Accepted
from moorage.operations.context import SagaContext
from moorage.operations.dry_run import dry_run
from moorage.operations.dry_run.dry_run import ServerPlan
from moorage.operations.preview import previewing


class DryRunService:
    """Only reads; writes nothing."""

    context: SagaContext

    async def predict(self, accepted: Sequence[Accepted]) -> tuple[ServerPlan, ...]:
        """Predict each accepted operation: hosts in order, refusals and calls. Nothing is written."""
        return await dry_run.plan(previewing(self.context), accepted)
