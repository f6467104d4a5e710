"""The preview of a request: it is processed like the real one up to its first write, and is not carried out (N12)."""

from collections.abc import Sequence
from dataclasses import replace

from moorage.model.operation import Accepted
from moorage.operations.context import SagaContext


class Previewed(Exception):
    """Raised in place of the write that would accept the operations; nothing was written."""

    def __init__(self, accepted: Sequence[Accepted]) -> None:
        super().__init__("nothing was written")
        self.accepted = tuple(accepted)


def previewing(context: SagaContext) -> SagaContext:
    """The same context for a preview: pools of routed networks are not copied into placement."""
    return replace(context, preview=True, draw_segments=None, redraw_segments=None, notification_writer=None)
