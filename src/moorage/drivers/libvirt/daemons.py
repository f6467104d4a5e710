"""Servers of the host that run on when its agent stops: found again by their pid file, or by the word that they were started with."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

ENDS_WITHIN_S, LOOK_EVERY_S = 5.0, 0.02


def pid_of(pid_file: Path, mark: str) -> int | None:
    """Of the process that was started with this word: a number that another process has meanwhile is not it; one that just started has written none."""
    try:
        candidates = [int(pid_file.read_text())]
    except (OSError, ValueError):
        candidates = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    for pid in candidates:
        if mark.encode() in _command_line(pid):
            return pid
    return None


def _command_line(pid: int) -> list[bytes]:
    """That it was started with; none of one that is dead."""
    with contextlib.suppress(OSError):
        if content := Path(f"/proc/{pid}/cmdline").read_bytes():
            return content.split(b"\0")
    return []


async def end(pid: int) -> None:
    """Until it is gone, or dead and not yet taken note of by its parent: another one could not have its address before."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(int(ENDS_WITHIN_S / LOOK_EVERY_S)):
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                return
            if not _command_line(pid):
                return
            await asyncio.sleep(LOOK_EVERY_S)


def write(file: Path, content: str, mode: int = 0o644, owner: int = -1) -> bool:
    """Whole. Whether it is other than before. `owner`: the user whose file it is; -1: ours."""
    if file.exists() and file.read_text() == content and owner in {-1, file.stat().st_uid}:
        return False
    coming = file.with_name(f"{file.name}.coming")
    coming.unlink(missing_ok=True)
    with os.fdopen(os.open(coming, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as out:
        out.write(content)
        os.fchown(out.fileno(), owner, -1)
    os.replace(coming, file)
    return True
