"""Runs programs of the machine without a shell and with a time limit; a program that takes longer is killed and waited for."""

import asyncio
import contextlib
import logging
import math

from moorage.model.errors import HostFailed

COMMAND_S = 30.0
DISK_S = 3_600.0
"""Limit for copying a whole disk; the verb's own deadline usually ends it before."""
SAID_CHARACTERS_MAX = 500
UNTRUSTED = frozenset({"qemu-img"})
"""Programs that parse what users uploaded: a small file may ask for any amount of memory and of work."""
UNTRUSTED_BYTES = 1 << 30
"""Of address space, as in Nova."""

_log = logging.getLogger(__name__)


async def run(*words: str, limit_s: float = COMMAND_S, code: str = "guest_failed", given: str | None = None) -> str:
    """Run a program and return its output. `given`: its input. Raises HostFailed with the program's error, which only operators see."""
    try:
        process = await asyncio.create_subprocess_exec(
            *_limited(words, limit_s),
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


def _limited(words: tuple[str, ...], limit_s: float) -> tuple[str, ...]:
    """The program with limits of memory and processor time. A program that waits uses none, so it may take as much as it may take time."""
    if words[0] not in UNTRUSTED:
        return words
    return "prlimit", f"--as={UNTRUSTED_BYTES}", f"--cpu={math.ceil(limit_s)}", "--core=0", "--", *words
