"""The control group of a trial host's libvirt daemon: where the machine lets nobody make one, there is none, and it is gone in the end."""

import subprocess
from pathlib import Path

import pytest

from moorage.main.local_cluster.control_groups import ControlGroup, controllers_line, make_group, mount_script

MOUNT = "31 23 0:29 / {at} rw,relatime - cgroup cgroup rw,{controllers}\n"
UNIFIED = "41 23 0:38 / {at} rw,relatime - cgroup2 cgroup2 rw\n"


def a_machine(room: Path, *hierarchies: str) -> Path:
    """Directories in the place of hierarchies, and the file that lists them among others; one is mounted over, and not seen."""
    lines = UNIFIED.format(at=room) + MOUNT.format(at=room / "memory", controllers="memory")
    lines += MOUNT.format(at=room / "over", controllers="cpu")
    for each in hierarchies:
        (room / each).mkdir()
        (room / each / "cgroup.procs").touch()
        lines += MOUNT.format(at=room / each, controllers=each)
    listed = room / "mountinfo"
    listed.write_text(lines)
    return listed


def test_a_group_in_each_hierarchy_of_processors(tmp_path: Path) -> None:
    group = make_group("one", mounts=a_machine(tmp_path, "cpu", "cpuacct"))
    assert group is not None
    assert group.hierarchies == "cpu cpuacct"
    assert controllers_line(group.hierarchies) == 'cgroup_controllers = ["cpu", "cpuacct"]\n'
    assert all((tmp_path / each / "moorage-one").is_dir() for each in ("cpu", "cpuacct"))


def test_controllers_that_share_a_hierarchy(tmp_path: Path) -> None:
    group = make_group("one", mounts=a_machine(tmp_path, "cpu,cpuacct"))
    assert group is not None
    assert controllers_line(group.hierarchies) == 'cgroup_controllers = ["cpu", "cpuacct"]\n'
    assert "mount -t cgroup" in mount_script(group.hierarchies, "$$")


def test_a_polite_group_has_the_shares_of_polite_processes(tmp_path: Path) -> None:
    mounts = a_machine(tmp_path, "cpu")
    shares = {}
    for niceness in (0, 15):
        group = make_group(f"nice{niceness}", niceness=niceness, mounts=mounts)
        assert group is not None
        shares[niceness] = int((group.directories["cpu"] / "cpu.shares").read_text())
    assert 25 < shares[0] / shares[15] < 32, "the kernel's table has 1024 and 36"


@pytest.mark.parametrize("hierarchies", [(), ("cpuacct",)])
def test_a_machine_without_the_controller(tmp_path: Path, hierarchies: tuple[str, ...]) -> None:
    assert make_group("one", mounts=a_machine(tmp_path, *hierarchies)) is None
    assert controllers_line("") == "cgroup_controllers = []\n"
    assert mount_script("", "1") == ""
    assert not (tmp_path / "cpuacct/moorage-one").exists()


def test_a_machine_that_lets_nobody_make_groups(tmp_path: Path) -> None:
    mounts = a_machine(tmp_path, "cpuacct", "cpu")
    (tmp_path / "cpu/moorage-one").touch()  # in the place of a file system that is only read
    assert make_group("one", mounts=mounts) is None
    assert not (tmp_path / "cpuacct/moorage-one").exists(), "half a group is none"


def test_it_goes_with_the_groups_below_it_and_kills_who_stays(tmp_path: Path) -> None:
    """The directory is an ordinary one, so whoever was killed is taken out of its file here, and not by a kernel."""
    group = ControlGroup({"cpu": tmp_path / "group"})
    (tmp_path / "group/machine/guest").mkdir(parents=True)
    group.remove(0)
    assert not (tmp_path / "group").exists()
    (tmp_path / "group").mkdir()
    with subprocess.Popen(["sleep", "600"]) as stays:
        (tmp_path / "group/cgroup.procs").write_text(f"{stays.pid}\n")
        with pytest.raises(OSError, match="not empty"):
            group.remove(0)
        assert stays.wait(30) == -9
