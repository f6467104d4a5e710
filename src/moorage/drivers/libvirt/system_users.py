"""Users of this machine under whom servers of the host run that guests speak to: what guests say is parsed without root's rights.

What such a server reads after its start is a file of its user, in a directory that all may search: those of ours let nobody else pass.
"""

import grp
import pwd
from dataclasses import dataclass

from moorage.model.errors import HostFailed


@dataclass(frozen=True)
class SystemUser:
    name: str
    uid: int
    gid: int
    group: str


def system_user(name: str) -> SystemUser:
    """Raises HostFailed (`vif_not_plugged`) for one that is not there."""
    try:
        found = pwd.getpwnam(name)
        return SystemUser(name, found.pw_uid, found.pw_gid, grp.getgrgid(found.pw_gid).gr_name)
    except KeyError as unknown:
        why = f"the user {name} or its group: {unknown}"
        raise HostFailed("the host lacks a user for a server of its own", private=why, code="vif_not_plugged") from None


def has_user(name: str) -> bool:
    try:
        system_user(name)
    except HostFailed:
        return False
    return True
