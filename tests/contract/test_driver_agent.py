"""What the libvirt driver asks of the agent in a guest, and what it writes down first; the agent itself is in tests/hypervisor."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import pytest
from typing_extensions import override

from moorage.drivers.libvirt import daemons, guest_agent, thawing
from moorage.drivers.libvirt.disks import ROOT
from moorage.drivers.libvirt.guest_agent import GuestAgent
from moorage.drivers.libvirt.records import GuestRecord
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.snapshots import Snapshots
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, MoveTarget, PowerState, Quiesce
from moorage.model.ids import ImageId, ServerId

ONE = ServerId("11111111-0000-4000-8000-000000000000")
T = TypeVar("T")


class AgentClock(SystemClock):
    ahead_s = 0.0

    @override
    def now(self) -> float:
        return super().now() + self.ahead_s


class AskedDriver(Snapshots, GuestAgent):
    """Without a daemon: what it is asked is noted, and answered as told."""

    def __init__(self, room: Path) -> None:
        self.clock = AgentClock()
        super().__init__(room, Libvirt(), self.clock, hostname="host", images=None)
        self.asked: list[str] = []
        self.written: list[str] = []
        """The purpose in the record at each of these moments."""
        self.fails: dict[str, str] = {}
        """What is asked → the code of its failure."""
        self.begun: list[str] = []
        self.power = PowerState.RUNNING

    @override
    async def _ask(self, server: ServerId, work: Callable[[Any], T], limit_s: float = 30.0) -> T:
        domain = AskedDomain()
        value = work(domain)
        for each in domain.asked:
            self.asked.append(each)
            self.written.append(self._records.of(server).frozen_for)
            if each in self.fails:
                raise HostFailed("no", private="why", code=self.fails[each])
        return value

    @override
    async def _power(self, server: ServerId) -> PowerState:
        return self.power

    @override
    async def _thaw_later(self, record: GuestRecord) -> None:
        self.begun.append(record.frozen_for)

    @override
    async def _settle_overlay(self, record: GuestRecord) -> None:
        self.asked.append("settle")


class AskedDomain:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def agentSetResponseTimeout(self, limit_s: int, flags: int) -> None:  # noqa: N802
        assert 0 < limit_s < 60

    def fsFreeze(self, points: object, flags: int) -> None:  # noqa: N802
        self.asked.append("freeze")

    def fsThaw(self, points: object, flags: int) -> None:  # noqa: N802
        self.asked.append("thaw")

    def setUserPassword(self, user: str, password: str, flags: int) -> None:  # noqa: N802
        self.asked.append(f"{user}={password}")

    def XMLDesc(self) -> str:  # noqa: N802
        return "<domain/>"

    def snapshotCreateXML(self, xml: str, flags: int) -> None:  # noqa: N802
        self.asked.append("still copy" if flags & 64 else "copy")


LIBRARY = SimpleNamespace(
    libvirtError=type("FakeError", (Exception,), {}),
    VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY=16,
    VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA=4,
    VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC=128,
    VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE=64,
)


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AskedDriver]:
    async def copied(disk: Path, to: Path) -> None:
        await asyncio.to_thread(shutil.copyfile, disk, to)

    monkeypatch.setattr("moorage.drivers.libvirt.disks.copy_flat", copied)
    for module in ("guest_agent", "snapshots"):
        monkeypatch.setattr(f"moorage.drivers.libvirt.{module}.library", lambda: LIBRARY)
    made = AskedDriver(tmp_path)
    made._records.open()
    spec = GuestSpec(ONE, "web", 1, 512, 1, image_properties={"hw_qemu_guest_agent": "yes"})
    record = made._records.keep(GuestRecord(spec, made=True))
    made._records.place(record).mkdir()
    (made._records.place(record) / ROOT).write_bytes(b"disk")
    yield made
    made._records.close()


def of_image(driver: AskedDriver, **properties: str) -> None:
    record = driver._records.of(ONE)
    record.spec = msgspec.structs.replace(record.spec, image_properties=properties)


async def test_it_is_written_down_before_it_is_still(driver: AskedDriver) -> None:
    await driver.freeze_guest(ONE, "one", 60)
    assert (driver.asked, driver.written, driver.begun) == (["freeze"], ["one"], ["one"])
    with pytest.raises(HostFailed) as other:
        await driver.freeze_guest(ONE, "other", 60)
    assert other.value.code == "already_frozen"
    driver.clock.ahead_s = 61.0
    with pytest.raises(HostFailed) as late:
        await driver.thaw_guest(ONE, "one")
    assert late.value.code == "not_frozen"
    await driver.freeze_guest(ONE, "other", 60)
    for _ in range(2):
        await driver.thaw_guest(ONE, "other")
    assert driver.asked == ["freeze", "freeze", "thaw"]
    with pytest.raises(HostFailed) as late:
        await driver.freeze_guest(ONE, "other", 60)
    assert late.value.code == "not_frozen"


async def test_who_fails_to_be_still_is_thawed(driver: AskedDriver) -> None:
    driver.fails = {"freeze": "guest_failed"}
    with pytest.raises(HostFailed) as failed:
        await driver.freeze_guest(ONE, "one", 60)
    assert failed.value.code == "quiesce_failed"
    assert driver.asked == ["freeze", "thaw"]
    assert driver._records.of(ONE).frozen_for == ""
    driver.fails |= {"thaw": "guest_failed"}
    with pytest.raises(HostFailed):
        await driver.freeze_guest(ONE, "two", 60)
    assert driver._records.of(ONE).frozen_for == "two", "it may be still, and is thawed as soon as it can be"
    assert driver.begun == ["one", "two", "two"]
    assert not driver._is_still(driver._records.of(ONE))


async def test_a_guest_that_leaves_is_not_made_still(driver: AskedDriver) -> None:
    driver._records.of(ONE).leaving = MoveTarget("elsewhere")
    with pytest.raises(HostFailed) as refused:
        await driver.freeze_guest(ONE, "one", 60)
    assert (refused.value.code, driver.asked) == ("guest_busy", [])


async def test_an_agent_is_asked_of_images_that_have_one(driver: AskedDriver) -> None:
    of_image(driver)
    for call in (driver.freeze_guest(ONE, "one", 60), driver.set_admin_password(ONE, "x")):
        with pytest.raises(HostFailed) as without:
            await call
        assert without.value.code == "no_guest_agent"
    driver.power = PowerState.PAUSED
    with pytest.raises(HostFailed) as paused:
        await driver.set_admin_password(ONE, "x")
    assert paused.value.code == "guest_not_running"
    assert driver.asked == []


@pytest.mark.parametrize(
    ("properties", "user"),
    [({}, "root"), ({"os_type": "windows"}, "Administrator"), ({"os_type": "windows", "os_admin_user": "me"}, "me")],
)
async def test_whose_password(driver: AskedDriver, properties: dict[str, str], user: str) -> None:
    of_image(driver, hw_qemu_guest_agent="yes", **properties)
    await driver.set_admin_password(ONE, "secret")
    assert driver.asked == [f"{user}=secret"]


@pytest.mark.parametrize(
    ("quiesce", "fails", "asked"),
    [
        (Quiesce.NO, {}, ["settle", "copy", "settle"]),
        (Quiesce.TRY, {}, ["settle", "still copy", "settle"]),
        (Quiesce.TRY, {"still copy": "guest_failed"}, ["settle", "still copy", "thaw", "settle", "copy", "settle"]),
        (Quiesce.MUST, {}, ["settle", "still copy", "settle"]),
    ],
)
async def test_copies_begin_still(
    driver: AskedDriver, quiesce: Quiesce, fails: dict[str, str], asked: list[str]
) -> None:
    driver.fails = fails
    await driver.take_snapshot(ONE, ImageId("copy"), quiesce)
    assert driver.asked == asked
    assert driver._records.of(ONE).frozen_for == ""
    if "still copy" in asked:
        assert driver.written[0] != "", "a daemon that dies within the call leaves a record that says so"


@pytest.mark.parametrize(("code", "says"), [("guest_failed", "quiesce_failed"), ("hypervisor_out", "hypervisor_out")])
async def test_a_copy_that_must_be_still_and_cannot_be(driver: AskedDriver, code: str, says: str) -> None:
    driver.fails = {"still copy": code}
    with pytest.raises(HostFailed) as failed:
        await driver.take_snapshot(ONE, ImageId("copy"), Quiesce.MUST)
    assert failed.value.code == says
    assert "copy" not in driver.asked
    of_image(driver)
    with pytest.raises(HostFailed) as failed:
        await driver.take_snapshot(ONE, ImageId("copy"), Quiesce.MUST)
    assert failed.value.code == "quiesce_failed"


def test_who_thaws_later_looks_whether_it_is_for_the_same_purpose(tmp_path: Path) -> None:
    record = GuestRecord(GuestSpec(ONE, "web", 1, 512, 1), frozen_for="one")
    file = tmp_path / "guest.json"
    assert not thawing.is_still_for(file, "one")
    file.write_bytes(msgspec.json.encode(record))
    assert thawing.is_still_for(file, "one")
    assert not thawing.is_still_for(file, "other")
    file.write_text("{")
    assert thawing.is_still_for(file, "one"), "rather once too often"
    file.unlink()
    assert thawing.wait_and_thaw("qemu:///nowhere", ONE, "one", "0", str(file)) == 0


async def test_who_thaws_runs_on_without_the_driver_and_ends_with_the_purpose(driver: AskedDriver) -> None:
    record = driver._records.of(ONE)
    record.frozen_for, record.frozen_until = "one", driver.clock.now() + 600
    mark = str(driver._record_of(record))
    await GuestAgent._thaw_later(driver, record)
    first = daemons.pid_of(guest_agent.NO_FILE, mark)
    assert first is not None
    assert os.getsid(first) == first, "no terminal and no group of ours ends it"
    await GuestAgent._thaw_later(driver, record)
    second = daemons.pid_of(guest_agent.NO_FILE, mark)
    assert second not in {None, first}, "there is one of them"
    await driver.thaw_guest(ONE, "one")
    assert daemons.pid_of(guest_agent.NO_FILE, mark) is None
