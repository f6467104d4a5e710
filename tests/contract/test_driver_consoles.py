"""What a guest wrote to its console, as `virtlogd` keeps it; no hypervisor is needed."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.told_domain import ONE, ToldDriver, told_driver

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.life import CONSOLE_MAX_BYTES


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToldDriver]:
    made = told_driver(tmp_path / "host", monkeypatch)
    yield made
    made._records.close()


@pytest.fixture
def log(driver: ToldDriver) -> Path:
    return driver._records.place(driver._records.of(ONE)) / disks.CONSOLE


def written(log: Path, content: bytes) -> None:
    log.write_bytes(content)


async def test_what_is_in_older_files_belongs_to_it(driver: ToldDriver, log: Path) -> None:
    """A new file is begun every 2 MiB: it does not seem that the guest has written nothing before."""
    assert await driver.console_output(ONE, None) == ""
    older = [log.with_name(f"{log.name}.{number}") for number in range(3)]
    for file, text in zip((log, *older), ("newest\n", "newer\n", "old\n", "oldest\n"), strict=True):
        file.write_text(text)
    assert await driver.console_output(ONE, None) == "oldest\nold\nnewer\nnewest\n"
    assert await driver.console_output(ONE, 2) == "newer\nnewest\n"
    os.unlink(log)  # the new file is not there yet
    assert await driver.console_output(ONE, 1) == "newer\n"
    older[0].write_text("x" * CONSOLE_MAX_BYTES)
    assert await driver.console_output(ONE, None) == "x" * CONSOLE_MAX_BYTES


async def test_a_line_ends_where_the_guest_ended_it(driver: ToldDriver, log: Path) -> None:
    written(log, b"one\r\n10%\r20%\r\x0b\xc2\x85done\r\nlogin: ")
    assert await driver.console_output(ONE, 2) == "10%\r20%\r\x0b\x85done\r\nlogin: "
    assert await driver.console_output(ONE, 0) == ""
