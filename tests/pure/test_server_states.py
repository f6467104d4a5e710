"""The table of server states covers every state, and statuses can be turned round."""

import pytest

from moorage.model.errors import Internal
from moorage.model.server import TaskState, VmState
from moorage.model.server_status import states_of, status_of
from moorage.model.server_transitions import MAY_BECOME, checked_change
from moorage_testing.region_fixture import a_server


@pytest.mark.parametrize("state", list(VmState))
def test_a_record_changes_into_what_its_state_may_become_and_nothing_else(state: VmState) -> None:
    before = a_server(vm_state=state)
    for wanted in VmState:
        after = a_server(vm_state=wanted)
        if wanted is state or wanted in MAY_BECOME[state]:
            assert checked_change(before, after) is after
        else:
            with pytest.raises(Internal) as refused:
                checked_change(before, after)
            assert refused.value.private == f"from {state.value} to {wanted.value}"


def test_deleted_is_final_and_every_other_state_may_become_deleted_or_error() -> None:
    assert MAY_BECOME[VmState.DELETED] == frozenset()
    for state in set(VmState) - {VmState.DELETED, VmState.ERROR}:
        assert {VmState.DELETED, VmState.ERROR} <= MAY_BECOME[state]


@pytest.mark.parametrize("state", list(VmState))
def test_a_status_filter_finds_the_states_shown_with_it(state: VmState) -> None:
    assert state in states_of(status_of(state, None))[0]


def test_a_reboot_shows() -> None:
    assert status_of(VmState.ACTIVE, TaskState.REBOOTING_HARD) == "HARD_REBOOT"
    assert states_of("REBOOT") == ((VmState.ACTIVE,), (TaskState.REBOOTING,))


def test_an_unknown_status_is_no_state() -> None:
    assert states_of("FLYING") == ((), None)
