"""How a role begins: its data directory is its own user's alone. (`moorage.__main__` does the same for whatever is made from then on.)"""

import os
import stat
from pathlib import Path

from moorage.model.errors import Invalid
from moorage.model.private_files import DIRECTORY_MODE, OTHERS, private_directory


def keep_private(data: Path) -> None:
    """Said by every role, and every command that makes databases, before it makes a file there.

    Raises Invalid when the data directory cannot be made, or is one that everybody writes to.
    """
    try:
        status = private_directory(data).stat()
        if status.st_mode & stat.S_ISVTX:
            raise Invalid(f"everybody may write to {data}: name a directory of its own as data_dir (--data-dir)")
        if status.st_mode & OTHERS:
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
