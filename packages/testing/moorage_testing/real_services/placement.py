"""The real Placement alone, with `noauth2`, for tests and benchmarks that need no other service."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from moorage.main.local_cluster.ports import free_port
from moorage_testing.real_services.install import install

SERVE = Path(__file__).parent / "scripts" / "serve.py"
START_DEADLINE_S = 60.0
COMMAND_DEADLINE_S = 120.0
STOP_DEADLINE_S = 10.0
PROBE_PAUSE_S = 0.05


@contextlib.contextmanager
def real_placement_alone(
    root: Path, *, threads: int = 1, started: Callable[[int], None] | None = None
) -> Iterator[str]:
    """Install when needed, make its database under `root`, serve at the root path; the URL. Tokens are `user[:project]`.

    `started` gets the process id.
    """
    python = install()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / "placement.conf").write_text(
        "[DEFAULT]\nuse_stderr = true\n[api]\nauth_strategy = noauth2\n"
        f"[placement_database]\nconnection = sqlite:///{root}/placement.db?timeout=30\n"
    )
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    environment = {**kept, "PYTHONWARNINGS": "ignore", "OS_PLACEMENT_CONFIG_DIR": str(root)}
    log = root / "log"
    with log.open("ab") as out:
        manage = [str(python.parent / "placement-manage"), "--config-dir", str(root), "db", "sync"]
        subprocess.run(manage, stdout=out, stderr=out, env=environment, timeout=COMMAND_DEADLINE_S, check=True)
        port = free_port()
        words = [str(python), str(SERVE), "placement.wsgi.api", str(port), str(threads)]
        process = subprocess.Popen(words, stdout=out, stderr=out, env=environment, start_new_session=True)
    if started is not None:
        started(process.pid)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_DEADLINE_S)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=20).status_code < 500:
                return
        time.sleep(PROBE_PAUSE_S)
    raise RuntimeError(f"the real Placement does not answer; the end of its log:\n{log.read_text()[-3000:]}")
