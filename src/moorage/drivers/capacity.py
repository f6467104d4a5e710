"""What a host reports to have of one resource class: as its settings say, or as it is usual where they say nothing."""

from typing import Literal

from moorage.model.guest import ResourceInventory

RESERVED_RAM_MIB = 512
VCPU_RATIO = 4.0


def inventory(
    total: int, reserved: int | None, ratio: float | None, *, usual: tuple[int, float] = (0, 1.0)
) -> ResourceInventory:
    """`reserved` and `ratio`: as set; None: not set, so `usual` counts until somebody sets another value through Placement."""
    initial: list[Literal["reserved", "allocation_ratio"]] = []
    if reserved is None:
        initial.append("reserved")
    if ratio is None:
        initial.append("allocation_ratio")
    return ResourceInventory(
        total,
        usual[0] if reserved is None else reserved,
        usual[1] if ratio is None else ratio,
        max_unit=total,
        initial=tuple(initial),
    )
