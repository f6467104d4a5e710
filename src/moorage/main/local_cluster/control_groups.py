"""A control group of its own for a libvirt daemon, below which it makes those of its guests: processors are then shared out among them.

    <hierarchy>/moorage-<name>            the group, which is the root of what the daemon sees
    <hierarchy>/moorage-<name>/own        whoever entered it
    <hierarchy>/moorage-<name>/machine    libvirt's, with a group for each guest

Hierarchies are those of control groups of version 1 that have the controllers `cpu` and `cpuacct`; no other controller is touched, so
what the machine counts and limits by them holds for guests too.
"""

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("cpu", "cpuacct")
OWN, MACHINE = "own", "machine"
ENDS_WITHIN_S, LOOK_EVERY_S = 30.0, 0.05
SHARES, LESS_EACH = 1024, 1.25
"""Of a process with niceness 0, and by what factor each step has less (sched(7))."""
OWN_PROCESSES = 4
"""Like so many processes those who entered a group compete with the guests in it: agents, services and databases run beside them."""
SHARES_MIN = 2
"""Of the kernel."""
ENTER = 'for each in {groups}; do echo $$ >"$each/cgroup.procs" || exit; done; exec unshare --cgroup "$@"'
MOUNT = """\
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
for each in {hierarchies}; do
  mkdir "/sys/fs/cgroup/$each"
  mount -t cgroup -o "$each" cgroup "/sys/fs/cgroup/$each"
  mkdir -p "/sys/fs/cgroup/$each/{own}"
  [ ! -e "/sys/fs/cgroup/$each/{own}/cpu.shares" ] || echo {shares} >"/sys/fs/cgroup/$each/{own}/cpu.shares"
  echo {process} >"/sys/fs/cgroup/$each/{own}/cgroup.procs"
done
"""


@dataclass(frozen=True)
class ControlGroup:
    """Processes enter it, and see it as the root of all groups."""

    directories: dict[str, Path]
    """By hierarchy, which is named by its controllers."""

    @property
    def hierarchies(self) -> str:
        return " ".join(self.directories)

    def enter(self) -> list[str]:
        """The words before a command that begins in the group."""
        return ["sh", "-c", ENTER.format(groups=shlex.join(map(str, self.directories.values()))), "sh"]

    def processes(self) -> set[int]:
        """Those in it, and in groups below it."""
        found: set[int] = set()
        for directory in self.directories.values():
            for each in directory.rglob("cgroup.procs"):
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    found.update(map(int, each.read_text().split()))
        return found

    def remove(self, within_s: float = ENDS_WITHIN_S) -> None:
        """Remove it with the groups below it, and kill whoever has not left it by then. Raises OSError when one of them stays."""
        if self._are_still_there(within_s):
            for process in self.processes() - {0}:  # of another namespace for processes
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._are_still_there(within_s)
        for directory in self.directories.values():
            for each in groups_below(directory):
                each.rmdir()
            with contextlib.suppress(FileNotFoundError):
                directory.rmdir()

    def _are_still_there(self, within_s: float) -> bool:
        ends = time.monotonic() + within_s
        while self.processes():
            if time.monotonic() > ends:
                return True
            time.sleep(LOOK_EVERY_S)
        return False


def groups_below(directory: Path) -> list[Path]:
    """The deepest first, as they can be removed."""
    return sorted((each for each in directory.rglob("*") if each.is_dir()), reverse=True)


def make_group(
    name: str, *, processes: int = 1, niceness: int = 0, mounts: Path = Path("/proc/self/mountinfo")
) -> ControlGroup | None:
    """Make a group that competes for processors like so many processes. None: the machine has no controller `cpu` of version 1, or
    does not let us make groups."""
    found = dict(_hierarchies(mounts))
    if not any("cpu" in each.split(",") for each in found):
        return None
    shares = max(SHARES_MIN, round(processes * SHARES / LESS_EACH**niceness))
    made: dict[str, Path] = {}
    try:
        for hierarchy, at in found.items():
            directory = at / f"moorage-{name}"
            directory.mkdir(exist_ok=True)
            made[hierarchy] = directory
            if "cpu" in hierarchy.split(","):
                (directory / "cpu.shares").write_text(str(shares))
    except OSError:  # a file system that is only read, in a container, or no rights
        ControlGroup(made).remove()
        return None
    return ControlGroup(made)


def _hierarchies(mounts: Path) -> Iterator[tuple[str, Path]]:
    """Hierarchies with our controllers, and where each is; one that is mounted over is not there (proc_pid_mountinfo(5))."""
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        at = Path(before.split()[4])
        held = [each for each in options.split(",") if each in CONTROLLERS]
        if kind == "cgroup" and held and (at / "cgroup.procs").exists():
            yield ",".join(held), at


def mount_script(hierarchies: str, process: str) -> str:
    """Commands of a shell that show the group of whoever entered it as all groups there are, in its namespace for mounts.

    `process`: who leaves the root, in which guests' groups would compete with each single process.
    """
    if not hierarchies:
        return ""
    return MOUNT.format(hierarchies=hierarchies, own=OWN, process=process, shares=OWN_PROCESSES * SHARES)


def controllers_line(hierarchies: str) -> str:
    """The line of qemu.conf by which the daemon makes groups of these hierarchies, and no others."""
    names = ", ".join(f'"{each}"' for each in hierarchies.replace(",", " ").split())
    return f"cgroup_controllers = [{names}]\n"
