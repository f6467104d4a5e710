"""Directories and files that nobody but their owner may read: what Moorage keeps is passwords, tenants' data and what guests are told.

Every role gives up the rights of others for all that it makes (`set_up_process` in `main`); what holds most says it again here,
whoever runs it, and takes those rights from what an earlier release left.
"""

import os
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
"""The bits of a mode by which anybody but the owner may do something."""
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
    """The file, empty if it was missing, and the owner's alone. One of another user stays as it is."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        _narrow(file, FILE_MODE)
    finally:
        os.close(file)
    return path


def private_database(path: Path) -> None:
    """Before SQLite opens it: what SQLite makes beside a file has that file's mode; what an earlier release made has not."""
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
    """Whether somebody besides us may read or change it. A file of root's may be lent to the group by which we read it."""
    status = path.stat()
    lent = status.st_uid == 0 and os.geteuid() != 0
    return bool(status.st_mode & (0o037 if lent else OTHERS))


def _narrow(file: int, mode: int) -> None:
    status = os.fstat(file)
    if status.st_mode & OTHERS and status.st_uid == os.geteuid():
        os.fchmod(file, mode)
