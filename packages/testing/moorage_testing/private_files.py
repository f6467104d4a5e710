"""What of a directory others may read: nothing is what it should be."""

from pathlib import Path

from moorage.model.private_files import OTHERS


def open_to_others(directory: Path) -> list[str]:
    """The directory and all below it that anybody but the owner may do something with, with their modes."""
    found = []
    for path in (directory, *sorted(directory.rglob("*"))):
        mode = path.lstat().st_mode
        if not path.is_symlink() and mode & OTHERS:
            found.append(f"{mode & 0o777:04o} {path.relative_to(directory)}")
    return found
