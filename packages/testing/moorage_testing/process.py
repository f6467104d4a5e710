"""One `moorage …` process on a free port, for tests and benchmarks; its output goes to a file next to its data."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from moorage.main.local_cluster.ports import free_port

START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 60.0
PROBE_PAUSE_S = 0.02


@contextlib.contextmanager
def moorage_process(*words: str) -> Iterator[str]:
    """Start `moorage WORDS --port N`; return the URL once it answers. It must end by itself when asked to. Raises
    RuntimeError when it does not answer in time.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        command = [sys.executable, "-m", "moorage", *words, "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            deadline = time.monotonic() + START_DEADLINE_S
            while True:
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(url + "/")
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"moorage does not answer:\n{Path(log.name).read_text()[-3000:]}")
                time.sleep(PROBE_PAUSE_S)
            yield url
        finally:
            process.terminate()
            process.wait(STOP_DEADLINE_S)
