"""The user of QEMU in a trial set with real guests, and what it may search and read in the set's directory.

A guest that escapes from QEMU has this user's rights, which are those to other guests' files of the set, and not root's.
"""

import grp
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from moorage.drivers.libvirt.qemu_access import may_search
from moorage.drivers.libvirt.system_users import SystemUser, has_user, system_user
from moorage.model.errors import Invalid

NAMES = ("libvirt-qemu", "qemu")
"""In Debian's package of libvirt, and in Fedora's of QEMU."""
PACKAGE = "libvirt-daemon-system"
SEARCHED, READ = 0o710, 0o640


def qemu_user() -> SystemUser:
    """Return the distribution's user for QEMU, with the group of the same name if there is one. Raises Invalid when it has none."""
    name = next(filter(has_user, NAMES), None)
    if name is None:
        raise Invalid(f"this machine has no user for QEMU ({' or '.join(NAMES)}): install {PACKAGE}")
    found = system_user(name)
    try:  # Debian's is in the group `kvm` first, with people
        return replace(found, gid=grp.getgrnam(name).gr_gid, group=name)
    except KeyError:
        return found


def let_in(user: SystemUser, directories: Iterable[Path], files: Iterable[Path] = ()) -> None:
    """Let the user's group search these directories and read these files; all others may do neither."""
    for mode, paths in ((SEARCHED, directories), (READ, files)):
        for each in paths:
            os.chown(each, -1, user.gid)
            os.chmod(each, mode)


def check_way(user: SystemUser, to: Path) -> None:
    """Raises Invalid when the user cannot search a directory above this one."""
    for each in reversed(to.parents):
        if not may_search(each, user.uid, user.gid):
            raise Invalid(
                f"guests run as {user.name}, which may not search {each}: choose a directory elsewhere (--directory /var/lib/moorage-set)"
            )
