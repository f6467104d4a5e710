"""Live migrations of guests that share a volume with others, or that stand still since their disk has no space."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.helpers.libvirt_host import a_spec, a_volume, says, types
from tests.helpers.live_pair import sent, when
from tests.helpers.real_guests import ONE, TWO, call
from tests.hypervisor.test_full_disks import FILL, grow
from tests.hypervisor.test_live import daemons, pair

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.guest import PowerState
from moorage.model.live_migration import LiveState
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor
__all__ = ["daemons", "pair"]


@pytest.fixture(scope="module", autouse=True)
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small file system, which is there before the daemons begin: each has mounts of its own."""
    place = tmp_path_factory.mktemp("small")
    call("mount", "-t", "tmpfs", "-o", "size=8m,mode=0777", "tmpfs", str(place))
    yield place
    call("umount", "--lazy", str(place))


@pytest.fixture
def small(mounted: Path) -> Path:
    """Empty, and of 8 MiB."""
    for each in mounted.iterdir():
        each.unlink()
    call("mount", "-o", "remount,size=8m", str(mounted))
    return mounted


async def test_a_guest_moves_with_a_volume_that_another_one_has_too(
    pair: tuple[LibvirtDriver, LibvirtDriver], tmp_path: Path
) -> None:
    first, second = pair
    volume = a_volume(tmp_path, "both")
    volume = msgspec.structs.replace(volume, connection={**volume.connection, "multiattach": True})
    spec = a_spec(ONE, volumes=(volume,))
    await first.start_guest(spec)
    await first.start_guest(a_spec(TWO, volumes=(volume,)))
    await says(first, ONE, "GUEST: ready")
    await says(first, TWO, "GUEST: ready")
    await sent(first, second, spec, "move")
    await when(first, "move", lambda now: now.state is LiveState.SWITCHED)
    assert await second.land_live(spec, "move") is PowerState.RUNNING
    await first.destroy_guest(ONE)
    await types(second, ONE, "echo shared >/dev/vdb; sync; echo wro$((1+1))", "wro2")
    await types(first, TWO, "head -c 7 /dev/vdb; echo re$((0+1))ad", "shared")


@pytest.mark.parametrize("owner_paused", [False, True])
async def test_a_guest_without_space_goes_on_where_it_came_to(
    pair: tuple[LibvirtDriver, LibvirtDriver], small: Path, *, owner_paused: bool
) -> None:
    first, second = pair
    spec = a_spec(ONE, volumes=(a_volume(small, "vol-1", 32),))
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: ready")
    await types(first, ONE, FILL + " echo beg$((0+1))n", "beg1n")
    assert await first._when(ONE, {PowerState.PAUSED}, PATIENCE_S)
    if owner_paused:
        await first.pause(ONE)
    await sent(first, second, spec, "move")
    await when(first, "move", lambda now: now.state is LiveState.SWITCHED)
    await second.land_live(spec, "move")
    assert await second._when(ONE, {PowerState.PAUSED}, PATIENCE_S)
    await first.destroy_guest(ONE)
    grow(small)
    if owner_paused:
        await second._resume_stopped()
        assert await second.guests() == {ONE: PowerState.PAUSED}
        assert await second.unpause(ONE) is PowerState.RUNNING
    else:
        assert await second._when(ONE, {PowerState.RUNNING}, PATIENCE_S)
    await says(second, ONE, "fil1ed")
