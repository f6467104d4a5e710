"""Makes a role's data directory private to its user. (`moorage.__main__` does the same for all files that are made later.)"""

import os
import stat
from pathlib import Path

from moorage.model.errors import Invalid
from moorage.model.private_files import DIRECTORY_MODE, OTHERS, private_directory

SEARCHED_MODE = DIRECTORY_MODE | stat.S_IXGRP
"""Where QEMU runs under a user of its own, its group may search for guests' files (drivers/libvirt/qemu_access.py)."""


def keep_private(data: Path) -> None:
    """Make the data directory, and remove the access of other users. Every role and every command that makes databases calls this first.

    Raises Invalid when the directory cannot be made or changed, or when everybody may write to it.
    """
    try:
        status = private_directory(data).stat()
        if status.st_mode & stat.S_ISVTX:
            raise Invalid(f"everybody may write to {data}: name a directory of its own as data_dir (--data-dir)")
        if status.st_mode & OTHERS and stat.S_IMODE(status.st_mode) != SEARCHED_MODE:
            os.chmod(data, DIRECTORY_MODE)
    except PermissionError as failure:
        raise Invalid(
            f"others may read what is kept in {data}, and it is not ours to say that they may not: "
            f"give it to the user that runs Moorage (chown), or choose another directory with data_dir (--data-dir)"
        ) from failure
    except OSError as failure:
        raise Invalid(
            f"state cannot be kept in {data} ({failure.strerror or failure}): choose another directory with data_dir (--data-dir)"
        ) from failure
