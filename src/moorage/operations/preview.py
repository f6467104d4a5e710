"""A request that is looked at and not carried out: it goes the way of the real one up to its first write (N12)."""

from collections.abc import Sequence
from dataclasses import replace

from moorage.model.operation import Accepted
from moorage.operations.context import SagaContext


class Previewed(Exception):
    """Here the operations would be written: nothing was, and who asked for the preview is told what they are."""

    def __init__(self, accepted: Sequence[Accepted]) -> None:
        super().__init__("nothing was written")
        self.accepted = tuple(accepted)


def previewing(context: SagaContext) -> SagaContext:
    """The same packages for a request that ends with `Previewed`; pools of routed networks are not drawn into placement for it."""
    return replace(context, preview=True, draw_segments=None, redraw_segments=None, notification_writer=None)
