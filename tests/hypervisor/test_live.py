"""Guests that change hosts while they run: two libvirt daemons, each with an agent's driver, and between them libvirt, by TLS."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.helpers.libvirt_host import KEEP, READ, UEFI_DISK, ImageFiles, a_spec, a_volume, says
from tests.helpers.libvirt_host import types as types_on
from tests.helpers.live_pair import a_host, certified, ends, running, sent, started, when
from tests.helpers.real_guests import ONE, types

from moorage.drivers.libvirt.carrier import MigrationAddress
from moorage.drivers.libvirt.disks import EPHEMERALS
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.main.local_cluster.libvirt_daemon import Daemon
from moorage.model.errors import HostFailed
from moorage.model.guest import EphemeralDisk, GuestSpec, MoveTarget, PowerState
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.live_migration import LiveState
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor
TWO: dict[str, Any] = {"ephemeral_gib": 2, "ephemerals": (EphemeralDisk(1), EphemeralDisk(1, "ext2"))}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    made = [Daemon(tmp_path_factory.mktemp("daemon"), number, f"127.0.0.{number}") for number in (2, 3)]
    certified(tmp_path_factory.mktemp("pki"), made, [each.address for each in made])
    with running(made):
        yield made


@pytest.fixture
async def pair(
    daemons: list[Daemon], tmp_path: Path, images: ImageFiles
) -> AsyncIterator[tuple[LibvirtDriver, LibvirtDriver]]:
    first, second = (a_host(each, tmp_path / f"host{each.number}", images, live_post_copy=True) for each in daemons)
    async with started(daemons, (first, second)):
        yield first, second


@pytest.mark.hypervisor_ci
async def test_it_goes_on_there_with_its_disks_and_its_console(
    pair: tuple[LibvirtDriver, LibvirtDriver], tmp_path: Path
) -> None:
    first, second = pair
    volume = a_volume(tmp_path, "vol-1")
    spec = a_spec(ONE, drive=InstanceMetadata(ONE, name="web", hostname="web.local"), **TWO)
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: ready")
    await first.attach_volume(ONE, volume)
    await says(first, ONE, "GUEST: disk vdd ")
    await types(
        first,
        "echo kept >/mnt/disk/kept; echo raw >/dev/vdb; echo two >/dev/vdc; sync; cd /run; echo wro$((1+1))",
        "wro2",
    )

    there = msgspec.structs.replace(spec, volumes=(volume,))
    await sent(first, second, there, "move")
    await when(first, "move", lambda now: now.state is LiveState.SWITCHED)
    assert (await second.live_status(ONE, "move")).state is LiveState.ARRIVED
    assert (await first.guests(), await first.arrivals()) == ({}, {ONE})
    assert await second.guests() == {ONE: PowerState.RUNNING}
    with pytest.raises(HostFailed, match="has arrived"):
        await second.drop_live(ONE, "move")
    assert await second.land_live(there, "move") is PowerState.RUNNING
    await types(
        second,
        "pwd; cat /mnt/disk/kept; head -c 3 /dev/vdb; echo; head -c 3 /dev/vdc; echo; echo con$((40+2))",
        "con42",
    )
    text = await second.console_output(ONE, None)
    assert text.count("GUEST: kernel") == 1, "it goes on, and does not boot"
    assert {"/run", "kept", "raw", "two"} <= {line.strip() for line in text.splitlines()}
    await second.detach_volume(ONE, "vol-1")
    await _its_daemon_dies_before_it_forgets_it(first, await second.move_target())
    await first.destroy_guest(ONE)
    assert await first.arrivals() == frozenset()

    # It is started from its own disk there, and goes back.
    await second.reboot(ONE, hard=True)
    await says(second, ONE, "GUEST: boot number 2")
    await says(second, ONE, "GUEST: ready", 2)
    await sent(second, first, spec, "back")
    await when(second, "back", lambda now: now.state is LiveState.SWITCHED)
    assert await first.land_live(spec, "back") is PowerState.RUNNING
    for _ in range(2):  # it is lost there: what it left is a guest again where it was
        await first.destroy_guest(ONE)
        assert await second.return_guest(ONE, "back") is PowerState.SHUTDOWN
    await second.power_on(ONE)
    await says(second, ONE, "GUEST: boot number 3")


async def _its_daemon_dies_before_it_forgets_it(first: LibvirtDriver, to: MoveTarget) -> None:
    """The domain is there, and off; only the other host knows that it goes on there."""
    record = first._records.find(ONE)
    assert record is not None
    xml = first._described(record, await first._plug(record))
    await first._link.ask(lambda connection: connection.defineXML(xml))
    record.departed, record.leaving, record.leaving_by = False, to, "move"
    first._records.keep(record)
    await first.close()
    await first.start()
    assert await first.guests() == {ONE: PowerState.SHUTDOWN}
    with pytest.raises(HostFailed) as left:
        await first.power_on(ONE)
    assert left.value.code == "guest_not_found", "it would run twice"
    assert (await first.live_status(ONE, "move")).state is LiveState.SWITCHED
    assert (await first.guests(), await first.arrivals()) == ({}, {ONE})


async def test_it_is_slow_and_stays_or_is_forced(
    pair: tuple[LibvirtDriver, LibvirtDriver], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = pair
    first._settings = msgspec.structs.replace(first._settings, live_mib_per_s=1)
    spec = a_spec(ONE, root_gib=0)
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: ready")
    target = await sent(first, second, spec, "one")
    now = await when(first, "one", lambda now: now.progress is not None and now.progress.disk_processed > 0)
    assert now.progress is not None
    assert now.progress.disk_total > 0
    assert await second.guests() == {ONE: PowerState.PAUSED}
    with pytest.raises(HostFailed, match="sent elsewhere"):
        await first.send_live(ONE, target, "other")
    with pytest.raises(HostFailed, match="not arrived"):
        await second.land_live(spec, "one")
    for _ in range(2):
        assert await first.abort_live(ONE, "one") is PowerState.RUNNING
    assert (await first.live_status(ONE, "one")).state is LiveState.ABORTED
    for _ in range(2):
        assert await second.drop_live(ONE, "one") is PowerState.NOSTATE
    assert (await first.guests(), await second.guests()) == ({ONE: PowerState.RUNNING}, {})

    # The place is taken away while it is sent: nothing arrives.
    await sent(first, second, spec, "two")
    await when(first, "two", lambda now: now.progress is not None and now.progress.disk_processed > 0)
    assert await second.drop_live(ONE, "two") is PowerState.NOSTATE
    await ends(first, "two", LiveState.FAILED)
    assert (await first.guests(), await second.guests()) == ({ONE: PowerState.RUNNING}, {})

    # Its agent goes, and another one finds it under way; then it is forced.
    await sent(first, second, spec, "three")
    await when(first, "three", lambda now: now.progress is not None and now.progress.disk_processed > 0)
    await first.close()
    await first.start()
    await when(first, "three", lambda now: now.progress is not None and now.progress.disk_processed > 0)
    assert await first.guests() == {ONE: PowerState.RUNNING}
    await first.force_live(ONE, "three", post_copy=False)
    assert await first.guests() == {ONE: PowerState.PAUSED}
    await first.abort_live(ONE, "three")
    await ends(first, "three", LiveState.NONE)
    assert await first.guests() == {ONE: PowerState.RUNNING}, "what was stopped for the move goes on"
    await second.drop_live(ONE, "three")

    # Forced, it stands still until all is there, and then goes on there.
    first._settings = msgspec.structs.replace(first._settings, live_mib_per_s=20)
    await sent(first, second, spec, "four")
    await when(first, "four", lambda now: now.progress is not None and now.progress.disk_processed > 0)
    await first.force_live(ONE, "four", post_copy=False)
    await ends(first, "four", LiveState.SWITCHED)
    assert await second.land_live(spec, "four") is PowerState.RUNNING
    await types(second, "echo con$((40+2))", "con42")
    await first.destroy_guest(ONE)

    # Back, and before all of its memory is there.
    second._settings = msgspec.structs.replace(second._settings, live_mib_per_s=20)
    caplog.set_level(logging.INFO)
    await sent(second, first, spec, "five")
    await second.force_live(ONE, "five", post_copy=True)
    await ends(second, "five", LiveState.SWITCHED)
    assert "before all of its memory is there" in caplog.text
    assert await first.land_live(spec, "five") is PowerState.RUNNING
    await types(first, "echo con$((40+3))", "con43")


@pytest.mark.parametrize("arrives", [False, True])
async def test_daemons_die_while_it_is_sent(
    pair: tuple[LibvirtDriver, LibvirtDriver], daemons: list[Daemon], arrives: bool
) -> None:
    """Of the source, just before the switch or just after it; it returns, and its agent asks where the guest is."""
    first, second = pair
    first._settings = msgspec.structs.replace(first._settings, live_mib_per_s=30)
    spec = a_spec(ONE, root_gib=0)
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: ready")
    await sent(first, second, spec, "move")
    if arrives:
        deadline = time.monotonic() + PATIENCE_S
        while (await second.live_status(ONE, "move")).state is not LiveState.ARRIVED:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)
    else:
        await when(first, "move", lambda now: now.progress is not None and now.progress.memory_processed > 0)
    daemons[0].kill()
    await asyncio.to_thread(daemons[0].start)
    await ends(first, "move", LiveState.SWITCHED if arrives else LiveState.FAILED)
    power = {ONE: PowerState.RUNNING}
    assert (await first.guests(), await second.guests()) == (
        ({}, power) if arrives else (power, {ONE: PowerState.PAUSED})
    )
    await types(second if arrives else first, "echo con$((40+2))", "con42")


async def test_it_goes_there_while_it_is_off_and_comes_back(pair: tuple[LibvirtDriver, LibvirtDriver]) -> None:
    """Another size, carried by the network; the old one stays where it was until somebody decides."""
    first, second = pair
    await first.start_guest(a_spec(ONE, **TWO))
    await says(first, ONE, "GUEST: boot number 1")
    await says(first, ONE, "GUEST: ready")
    to = await second.move_target()
    for _ in range(2):
        assert await first.send_guest(ONE, to, "move", PATIENCE_S) is PowerState.SHUTDOWN
    assert (await first.arrivals(), await second.arrivals()) == (frozenset(), {ONE})
    larger = a_spec(ONE, root_gib=2, **TWO)
    for _ in range(2):
        assert await second.take_guest(larger, "move") is PowerState.SHUTDOWN
    assert await second.arrivals() == frozenset()
    await second.power_on(ONE)
    assert all((second.room / "guests" / ONE / "d1" / name).exists() for name in EPHEMERALS[:2])
    text = await says(second, ONE, "GUEST: boot number 2")
    assert text.count("GUEST: kernel") == 2, "what it wrote to its console came with it"
    assert f"GUEST: disk vda {2 << 21}" in await says(second, ONE, "GUEST: disk vda", 2)
    await second.destroy_guest(ONE)
    assert await first.return_guest(ONE, "move") is PowerState.SHUTDOWN
    assert not (first.room / "guests" / ONE / "sending").is_dir()
    wrong = MigrationAddress.of(to)
    for other in ({"key": "0" * 64}, {"certificate": "0" * 64}, {"port": 1}):
        with pytest.raises(HostFailed) as refused:
            await first.send_guest(ONE, msgspec.structs.replace(wrong, **other).target(), "again", 0)
        assert refused.value.code == "host_unreachable", other
    assert await second.arrivals() == frozenset()


async def test_firmware_and_the_agent_in_the_guest_go_with_it(
    pair: tuple[LibvirtDriver, LibvirtDriver], daemons: list[Daemon]
) -> None:
    """What the firmware keeps is there afterwards, also after a start from there; and the agent answers the other daemon."""
    first, second = pair
    properties = {"hw_firmware_type": "uefi", "hw_qemu_guest_agent": "yes"}
    spec = GuestSpec(ONE, "web", 1, 256, 1, image=UEFI_DISK, image_properties=properties)
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: ready")
    await types_on(first, ONE, KEEP, "ke1pt")
    await first.freeze_guest(ONE, "still", PATIENCE_S)
    with pytest.raises(HostFailed, match="quiesced"):
        await sent(first, second, spec, "move")
    await first.thaw_guest(ONE, "still")
    await sent(first, second, spec, "move")
    await when(first, "move", lambda now: now.state is LiveState.SWITCHED)
    assert await second.land_live(spec, "move") is PowerState.RUNNING
    await types_on(second, ONE, READ, "here re1ad")
    await second.freeze_guest(ONE, "why", PATIENCE_S)
    await second.thaw_guest(ONE, "why")
    await second.set_admin_password(ONE, "there")
    await second.reboot(ONE, hard=True)
    await says(second, ONE, "GUEST: ready", 2)
    await types_on(second, ONE, READ, "here re1ad")
