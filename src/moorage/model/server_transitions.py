"""The allowed changes of a server's state."""

from collections.abc import Mapping

from moorage.model.errors import Internal
from moorage.model.server import Server, VmState

MAY_BECOME: Mapping[VmState, frozenset[VmState]] = {
    VmState.BUILDING: frozenset({VmState.ACTIVE, VmState.STOPPED, VmState.ERROR, VmState.DELETED}),
    VmState.ACTIVE: frozenset(
        {
            VmState.STOPPED,
            VmState.PAUSED,
            VmState.SUSPENDED,
            VmState.RESCUED,
            VmState.RESIZED,
            VmState.SHELVED,
            VmState.SHELVED_OFFLOADED,
            VmState.SOFT_DELETED,
            VmState.DELETED,
            VmState.ERROR,
        }
    ),
    VmState.STOPPED: frozenset(
        {
            VmState.ACTIVE,
            VmState.RESCUED,
            VmState.RESIZED,
            VmState.SHELVED,
            VmState.SHELVED_OFFLOADED,
            VmState.SOFT_DELETED,
            VmState.DELETED,
            VmState.ERROR,
        }
    ),
    VmState.PAUSED: frozenset(
        {VmState.ACTIVE, VmState.STOPPED, VmState.SHELVED, VmState.SOFT_DELETED, VmState.DELETED, VmState.ERROR}
    ),
    VmState.SUSPENDED: frozenset(
        {VmState.ACTIVE, VmState.STOPPED, VmState.SHELVED, VmState.SOFT_DELETED, VmState.DELETED, VmState.ERROR}
    ),
    VmState.RESCUED: frozenset({VmState.ACTIVE, VmState.SOFT_DELETED, VmState.DELETED, VmState.ERROR}),
    VmState.RESIZED: frozenset({VmState.SOFT_DELETED, VmState.ACTIVE, VmState.STOPPED, VmState.DELETED, VmState.ERROR}),
    VmState.SHELVED: frozenset(
        {VmState.SOFT_DELETED, VmState.SHELVED_OFFLOADED, VmState.ACTIVE, VmState.DELETED, VmState.ERROR}
    ),
    VmState.SHELVED_OFFLOADED: frozenset({VmState.SOFT_DELETED, VmState.ACTIVE, VmState.DELETED, VmState.ERROR}),
    VmState.SOFT_DELETED: frozenset({VmState.ACTIVE, VmState.STOPPED, VmState.DELETED, VmState.ERROR}),
    VmState.ERROR: frozenset(set(VmState)),
    VmState.DELETED: frozenset(),
}
"""State → the states that may follow it, besides itself; checked wherever a record is changed (`checked_change`)."""


def checked_change(before: Server, after: Server) -> Server:
    """Return `after` if its state may follow that of `before`. Raises Internal when it may not: the caller has an error."""
    if after.vm_state is not before.vm_state and after.vm_state not in MAY_BECOME[before.vm_state]:
        raise Internal(
            f"server {before.id} cannot change its state",
            private=f"from {before.vm_state.value} to {after.vm_state.value}",
            code="impossible_state",
        )
    return after
