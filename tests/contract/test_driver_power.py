"""How the libvirt driver switches guests off that do not take part, or not at once; no hypervisor is needed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.told_domain import ONE, ToldDriver, ToldFailure, told_driver

from moorage.drivers.libvirt import core
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage_testing.waiting import PATIENCE_S


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToldDriver]:
    made = told_driver(tmp_path / "host", monkeypatch)
    yield made
    made._records.close()


@pytest.mark.parametrize("failure", [ToldFailure("no agent"), HostFailed("no answer", code="hypervisor_slow")])
async def test_a_guest_that_cannot_be_asked_to_shut_down_is_switched_off(
    driver: ToldDriver, failure: Exception
) -> None:
    """Its agent may hang, or be made to: its owner could neither stop, resize nor rescue it, and who evicts it neither."""
    driver.domain.fails["shutdown"] = failure
    assert await driver.power_off(ONE, 0.3) is PowerState.SHUTDOWN
    assert driver.domain.asked == ["shutdown", "off"]


async def test_a_daemon_that_is_out_switches_nothing_off(driver: ToldDriver) -> None:
    driver.domain.fails["shutdown"] = HostFailed("no answer", code="hypervisor_out")
    with pytest.raises(HostFailed):
        await driver.power_off(ONE, 0.3)
    assert driver.domain.power is PowerState.RUNNING


async def test_a_guest_that_boots_is_asked_again(driver: ToldDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not notice its power button yet, and whoever switches it off would wait for all of the time it has for that."""
    monkeypatch.setattr(core, "SHUTDOWN_EVERY_S", 0.05)
    driver.domain.deaf_for = 2
    assert await driver.power_off(ONE, PATIENCE_S) is PowerState.SHUTDOWN
    assert driver.domain.asked == ["shutdown"] * 3
