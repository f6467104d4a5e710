"""Directories and files that only their owner may read: Moorage stores passwords, tenants' data and guests' metadata.

Every role makes all its files private (`set_up_process` in `main`).  The functions of this module do the same for the most sensitive files,
for any process, and also correct the modes of files from earlier releases.
"""

import os
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
"""The bits of a file mode for everybody but the owner."""
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
BESIDE_A_DATABASE = ("-wal", "-shm", "-journal")


def private_directory(path: Path) -> Path:
    """Return the directory. If it, or parents of it, are missing, they are made for their owner only; an existing one is
    not changed.

    Raises NotADirectoryError when the path is a file.
    """
    missing: list[Path] = []
    at = path
    while not at.exists():
        missing.append(at)
        at = at.parent
    for each in reversed(missing):
        each.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no directory")
    return path


def private_file(path: Path) -> Path:
    """Return the file, private to its owner; make it empty if it is missing. A file of another user is not changed."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        _narrow(file, FILE_MODE)
    finally:
        os.close(file)
    return path


def private_database(path: Path) -> None:
    """Make a SQLite file private before it is opened: files that SQLite makes beside it get its mode; older ones are corrected."""
    private_directory(path.absolute().parent)
    private_file(path)
    for end in BESIDE_A_DATABASE:
        with suppress(FileNotFoundError):
            file = os.open(f"{path}{end}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _narrow(file, FILE_MODE)
            finally:
                os.close(file)


def may_be_read_by_others(path: Path) -> bool:
    """Tell whether other users may read or change it. A file of root may be readable by the group through which we read it."""
    status = path.stat()
    lent = status.st_uid == 0 and os.geteuid() != 0
    return bool(status.st_mode & (0o037 if lent else OTHERS))


def _narrow(file: int, mode: int) -> None:
    status = os.fstat(file)
    if status.st_mode & OTHERS and status.st_uid == os.geteuid():
        os.fchmod(file, mode)
