"""How long `moorage up` takes to serve, from the command to an answer, in a data directory it knows."""

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from moorage.main.local_cluster.ports import free_ports
from moorage_testing.bench.table import BenchRow, Table

WARM_S = 3.0
DEADLINE_S = 60.0
STARTS = 3


def start_up(table: Table) -> None:
    with tempfile.TemporaryDirectory(prefix="moorage-up-") as room:
        took = [_once(Path(room)) for _ in range(STARTS + 1)]
    table.add(BenchRow("moorage up, a new data directory", took[0], "s"))
    table.add(
        BenchRow("moorage up, warm, until it answers", sorted(took[1:])[STARTS // 2], "s", WARM_S, note="8 hosts")
    )


def _once(room: Path) -> float:
    words = ["--data-dir", str(room / "data"), "--no-clouds-yaml", "--log-level", "error"]
    ports = dict(zip(("compute", "placement", "identity", "image", "network", "volume"), free_ports(6), strict=True))
    for name, port in ports.items():
        words += [f"--{name}-port", str(port)]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "moorage", "up", *words], stdout=subprocess.DEVNULL)
    try:
        while time.perf_counter() - began < DEADLINE_S:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{ports['compute']}/healthcheck", timeout=5.0).status_code == 200:
                    return time.perf_counter() - began
            if process.poll() is not None:
                raise RuntimeError(f"moorage up ended with {process.returncode}")
            time.sleep(0.01)
        raise RuntimeError("moorage up does not answer")
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
