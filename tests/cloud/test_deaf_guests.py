"""A guest that ignores its power button is switched off, whatever deadline commands have: the wait is not taken out of the deadline."""

from pathlib import Path

import pytest
from tests.helpers.agent_host import HOST, SERVER, command_context, guest, place

from moorage.bus.guest_payloads import PowerOff, Reboot, waits_s
from moorage.bus.memory import MemoryBus
from moorage.bus.move_payloads import SendGuest
from moorage.bus.verbs import Verb
from moorage.drivers.fault_injection import FaultSettings
from moorage.main.config import Compute
from moorage.model.guest import MoveTarget, PowerState

GRACEFUL_S = 2.0
DEADLINE_S = 1.5


async def test_a_stop_takes_as_long_as_the_guest_was_given(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path, FaultSettings(deaf=True)) as at:
        await at.caller.start_guest(HOST, command_context(), guest())
        context = command_context(2, patience_s=DEADLINE_S)
        assert await at.caller.power_off(HOST, context, SERVER, GRACEFUL_S) is PowerState.SHUTDOWN
        assert await at.host.driver.guests() == {SERVER: PowerState.SHUTDOWN}


async def test_so_does_a_guest_that_is_sent_away(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path, FaultSettings(deaf=True)) as at:
        await at.caller.start_guest(HOST, command_context(), guest())
        target = MoveTarget("127.0.0.1", str(tmp_path / "other"))
        (tmp_path / "other").mkdir()
        context, payload = command_context(2, patience_s=DEADLINE_S), SendGuest(target, "a-move", GRACEFUL_S)
        sent = await at.caller.change_guest(HOST, context, SERVER, Verb.SEND_GUEST, payload)
        assert sent is PowerState.SHUTDOWN


@pytest.mark.parametrize(
    ("payload", "wait_s"), [(None, 0.0), (PowerOff(), 60.0), (PowerOff(-5.0), 0.0), (Reboot(hard=True), 0.0)]
)
def test_what_a_host_is_told_to_wait(payload: PowerOff | Reboot | None, wait_s: float) -> None:
    assert waits_s(payload) == wait_s


def test_the_default_deadline_is_a_power_offs_own() -> None:
    """Both are 60 s: without the wait in addition nothing is left to switch the guest off in."""
    assert Compute().host_deadline_s == PowerOff().graceful_s
