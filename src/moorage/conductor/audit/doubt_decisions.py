"""Reads from a doubtful server's claim and guest what its older record must say (RULES §26).

The claim names the host and, by its amounts, the flavor; the guest tells the state. Where they do not tell, a person decides: a wrong
flavor would let the claim of a running guest go, and a record that is still shelved or soft-deleted would cost the guest.
"""

from collections.abc import Mapping

import msgspec

from moorage.model import guest_requests
from moorage.model.guest import PowerState
from moorage.model.ids import ProviderId
from moorage.model.migration import MigrationStatus
from moorage.model.server import Server, VmState
from moorage.operations.unshelve_input import needs_of_server
from moorage.store.region.placement.claim_statements import Key

BY_POWER = {
    PowerState.RUNNING: VmState.ACTIVE,
    PowerState.SHUTDOWN: VmState.STOPPED,
    PowerState.CRASHED: VmState.STOPPED,
    PowerState.PAUSED: VmState.PAUSED,
    PowerState.SUSPENDED: VmState.SUSPENDED,
}
KEPT = frozenset({VmState.RESCUED, VmState.ERROR})
"""What a guest's power does not tell."""


class MoveOver(msgspec.Struct, frozen=True):
    """A record whose move, if it names one, has ended."""

    record: Server
    status: MigrationStatus | None = None
    """How its move ended; None: it names none."""


def move_over(record: Server, host: str, provider: str, held: Mapping[Key, int]) -> MoveOver | None:
    """The record after its move, by the host of its claim and the flavor that this is for; None: the claim does not tell."""
    moved = record.moved
    if record.vm_state is VmState.BUILDING:
        return None
    if moved is None:
        return MoveOver(record) if _is_claimed(record, provider, held) else None
    stays = MoveOver(msgspec.structs.replace(record, moved=None), MigrationStatus.CONFIRMED)
    back = msgspec.structs.replace(record, moved=None, flavor=moved.flavor, disk_config=moved.disk_config)
    ends = [stays] if host == record.host else []
    if host == moved.host and moved.cell in (None, record.cell) and not moved.readdressed:
        ends.append(MoveOver(back, MigrationStatus.REVERTED))
    fitting = [each for each in ends if _is_claimed(each.record, provider, held)]
    return fitting[0] if len(fitting) == 1 else None


def _is_claimed(record: Server, provider: str, held: Mapping[Key, int]) -> bool:
    needs = needs_of_server(record, settled=not any(guest_requests.stands_for(name) for _, name in held))
    return all(held.get((ProviderId(provider), name), 0) == amount for name, amount in needs.resources.items())


def with_power(record: Server, power: PowerState) -> Server | None:
    """The record in the state of its guest: on a host it is neither shelved nor soft-deleted any more. None: the guest has none."""
    state = record.vm_state if record.vm_state in KEPT else BY_POWER.get(power)
    if state is None:
        return None
    return msgspec.structs.replace(
        record, vm_state=state, power_state=int(power), task_state=None, shelved=None, soft_deleted_at=None
    )
