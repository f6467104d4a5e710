"""QEMU may run under a user of its own, as in distributions' packages. libvirt gives it each file of a guest, and no directory above them.

All that a role makes is its own user's alone, so directories of ours get the group of QEMU's user, who may search them, and not list them;
nobody else may do either. Directories of others are left as they are: where QEMU cannot pass, the operator is told.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed

UNPRIVILEGED_FAULTS = "proc/sys/vm/unprivileged_userfaultfd"
HOSTS = "hosts"
"""The directory of hosts in a data directory."""


def qemu_user(capabilities: ET.Element, virt_type: str) -> tuple[int, int] | None:
    """Return user and group of guests' processes, from libvirt's capabilities. None: it is root, or libvirt does not say."""
    for model in capabilities.iterfind("host/secmodel"):
        if model.findtext("model") == "dac":
            label = model.findtext(f"baselabel[@type='{virt_type}']") or ""
            user, _, group = label.partition(":")
            numbers = [each.lstrip("+") for each in (user, group)]
            if all(each.isdigit() for each in numbers) and int(numbers[0]):
                return int(numbers[0]), int(numbers[1])
    return None


class QemuAccess:
    """Of one host. `user`: QEMU's, and its group; None: it may do everything."""

    def __init__(self, directory: Path, room: Path, instances_path: str) -> None:
        """`directory`: the host's in the data directory. `room`: where its guests are."""
        self.user: tuple[int, int] | None = None
        directory = directory.resolve()
        data = directory.parents[1] if directory.parent.name == HOSTS else directory
        self._ours = {data, room, *([Path(instances_path).resolve()] if instances_path else [])}

    def may_fetch_memory(self, root: Path = Path("/")) -> bool:
        """Whether the kernel lets QEMU fetch memory when its guest misses it (userfaultfd(2)): root always, others by a setting."""
        return self.user is None or all_may_fetch_memory(root)

    def open_way(self, to: Path) -> Path | None:
        """Let QEMU's user search the directories of ours down to this one. Returns the first one that it cannot pass."""
        if self.user is None:
            return None
        for each in [*reversed(to.parents), to]:
            try:
                if not may_search(each, *self.user):
                    if not self._is_ours(each):
                        return each
                    os.chown(each, -1, self.user[1])
                    os.chmod(each, stat.S_IMODE(each.stat().st_mode) | stat.S_IXGRP)
            except FileNotFoundError:
                return None
        return None

    def open_ways(self, directories: Iterable[Path]) -> None:
        """Raises HostFailed (`guest_failed`) where QEMU cannot pass."""
        for each in directories:
            if (closed := self.open_way(each)) is not None:
                raise HostFailed("the host's QEMU cannot reach the guest's files", private=self.why(closed))

    def why(self, closed: Path) -> str:
        assert self.user is not None
        return f"QEMU's user {self.user[0]} may not search {closed}"

    def _is_ours(self, directory: Path) -> bool:
        return any(directory == each or each in directory.parents for each in self._ours)


def directories_of(record: GuestRecord, place: Path, images: Path) -> Iterator[Path]:
    """Those in which QEMU opens files of the guest."""
    yield place
    yield images
    for volume in record.spec.volumes:
        data: dict[str, Any] = volume.connection.get("data", volume.connection)
        if (path := str(data.get("device_path") or "")).startswith("/"):
            yield Path(path).parent


def all_may_fetch_memory(root: Path = Path("/")) -> bool:
    """Whether the kernel lets every user fetch memory when it is missed."""
    try:
        return (root / UNPRIVILEGED_FAULTS).read_text().strip() != "0"
    except FileNotFoundError:  # of a kernel before 5.2, which asks for no right
        return True


def may_search(directory: Path, user: int, group: int) -> bool:
    """Whether a process with this user and group can search the directory; other groups of the user are not looked at."""
    found = directory.stat()
    if found.st_uid == user:
        return bool(found.st_mode & stat.S_IXUSR)
    return bool(found.st_mode & (stat.S_IXGRP if found.st_gid == group else stat.S_IXOTH))
