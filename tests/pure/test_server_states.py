"""The table of server states covers every state, and statuses can be turned round."""

import pytest

from moorage.model.server import MAY_BECOME, TaskState, VmState, states_of, status_of


def test_every_state_says_what_it_may_become() -> None:
    assert set(MAY_BECOME) == set(VmState)


def test_nothing_leaves_deleted() -> None:
    assert MAY_BECOME[VmState.DELETED] == frozenset()


@pytest.mark.parametrize("state", list(VmState))
def test_a_status_filter_finds_the_state_it_was_shown_for(state: VmState) -> None:
    assert state in states_of(status_of(state, None))[0]


def test_a_reboot_shows() -> None:
    assert status_of(VmState.ACTIVE, TaskState.REBOOTING_HARD) == "HARD_REBOOT"
    assert states_of("REBOOT") == ((VmState.ACTIVE,), (TaskState.REBOOTING,))


def test_an_unknown_status_is_no_state() -> None:
    assert states_of("FLYING") == ((), None)
