"""Runs programs of the machine without a shell and with a time limit; a program that takes longer is killed and waited for."""

import asyncio
import contextlib
import logging

from moorage.model.errors import HostFailed

COMMAND_S = 30.0
DISK_S = 3_600.0
"""Limit for copying a whole disk; the verb's own deadline usually ends it before."""
SAID_CHARACTERS_MAX = 500

_log = logging.getLogger(__name__)


async def run(*words: str, limit_s: float = COMMAND_S, code: str = "guest_failed", given: str | None = None) -> str:
    """Run a program and return its output. `given`: its input. Raises HostFailed with the program's error, which only operators see."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as failure:
        raise HostFailed("a program is missing on this host", private=f"{words[0]}: {failure}", code=code) from failure
    try:
        async with asyncio.timeout(limit_s):
            out, complained = await process.communicate(None if given is None else given.encode())
    except TimeoutError as late:
        raise HostFailed("a program of this host took too long", private=" ".join(words), code=code) from late
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        complaint = complained.decode(errors="replace").strip()[-SAID_CHARACTERS_MAX:]
        full = "No space left" in complaint
        public = "the host's disk is full" if full else "the host could not do it"
        raise HostFailed(public, private=f"{' '.join(words)}: {complaint}", code="host_full" if full else code)
    return out.decode(errors="replace")
