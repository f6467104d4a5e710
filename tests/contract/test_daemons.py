"""Daemons that continue without the agent."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

from moorage.drivers.libvirt import daemons

SLEEPS = "import sys, time; print('ready', flush=True); time.sleep(600)"


def started(*words: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", SLEEPS, *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


async def test_a_process_is_found_by_its_marker_not_its_pid(tmp_path: Path) -> None:
    process, file = await asyncio.to_thread(started, "--mark=ours"), tmp_path / "pid"
    try:
        assert daemons.pid_of(file, "--mark=ours") == process.pid, "it has written no number yet"
        file.write_text(f"{process.pid}\n")
        assert daemons.pid_of(file, "--mark=ours") == process.pid
        assert daemons.pid_of(file, "--mark=other") is None, "another process has the number now"
        # Nobody waits for it, so it stays in the table of processes: that is no reason to wait.
        began = time.monotonic()
        await daemons.end(process.pid)
        assert time.monotonic() - began < daemons.ENDS_WITHIN_S
        assert daemons.pid_of(file, "--mark=ours") is None
        await daemons.end(process.pid)
    finally:
        assert await asyncio.to_thread(process.wait) == -signal.SIGTERM
        assert process.stdout is not None
        process.stdout.close()


async def test_files_are_replaced_atomically_and_only_when_changed(tmp_path: Path) -> None:
    file = tmp_path / "conf"
    assert daemons.write(file, "one", 0o600)
    assert not daemons.write(file, "one", 0o600)
    assert daemons.write(file, "two", 0o600)
    assert (file.read_text(), oct(file.stat().st_mode)[-3:]) == ("two", "600")
