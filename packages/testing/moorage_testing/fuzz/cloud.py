"""The cloud that is fuzzed: `moorage up` in a process and a directory of its own, with a bus that others reach."""

import asyncio
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.main.config import Config, read_config
from moorage.main.local_cluster.nats import NatsServer
from moorage.main.local_cluster.ports import free_ports
from moorage.main.local_cluster.postgres import start_postgres

READY_S = 180.0
STOP_S = 60.0
SERVICES = ("identity", "image", "network", "volume", "compute", "placement", "metadata", "console", "webconsole")
BROKEN = (
    "Traceback (most recent call last)",
    "unexpected failure",
    "a handler of ",
    "Task exception was never retrieved",
)
"""Lines of a log that show a fault of Moorage."""
CHAINED = ("the direct cause of", "During handling of")
NEXT_RECORD = re.compile(r"\d{4}-\d\d-\d\d |WARNING:|INFO:|ERROR:")
SHOWN_LINES = 14


@dataclass
class FuzzedCloud:
    """A running one, seen from outside."""

    config: Config
    process_id: int
    log: Path | None = None
    bus: str = ""

    def memory_mib(self) -> float:
        for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def breaks(self) -> list[str]:
        """Faults in the log: each kind once, with how often."""
        if self.log is None:
            return []
        return faults_of(self.log.read_text(errors="replace").splitlines())


def faults_of(lines: list[str]) -> list[str]:
    """Tracebacks and other lines that show a fault; those that end with the same line count as one kind."""
    kinds: Counter[str] = Counter()
    shown: dict[str, str] = {}
    for n, line in enumerate(lines):
        before = "".join(lines[max(0, n - 3) : n])
        if not any(each in line for each in BROKEN) or (
            line.lstrip().startswith("Traceback") and any(each in before for each in (*BROKEN, *CHAINED))
        ):
            continue
        end = n + 1
        while end < len(lines) and end < n + SHOWN_LINES * 4 and not NEXT_RECORD.match(lines[end]):
            end += 1
        place = next((each.strip() for each in reversed(lines[n:end]) if each.lstrip().startswith('File "')), "")
        kind = f"{place} {lines[end - 1][:80]}"
        kinds[kind] += 1
        shown.setdefault(
            kind, "\n".join([*lines[n : min(end, n + 3)], "…", *lines[max(n + 3, end - SHOWN_LINES) : end]])
        )
    return [f"{count} times: {shown[kind]}" for kind, count in kinds.most_common()]


_TICKS_PER_S = 100


@contextmanager
def cloud(room: Path, *, hosts: int = 4, postgres: bool = False) -> Iterator[FuzzedCloud]:
    """Started, and stopped in the end; on PostgreSQL, or on SQLite. Raises RuntimeError when it does not come up."""
    with ExitStack() as stack:
        nats = stack.enter_context(NatsServer())
        databases = ""
        if postgres:
            server = start_postgres()
            stack.callback(server.stop)
            region, *cells = (server.create_database(name) for name in ("region", "cell1", "cell2"))
            databases = f'database = "{region}"\n'
            cells_said = "".join(
                f'[[cells]]\nname = "cell{n}"\ndatabase = "{url}"\n\n' for n, url in enumerate(cells, start=1)
            )
        else:
            cells_said = ""
        ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
        file, log = room / "moorage.toml", room / "up.log"
        file.write_text(
            f'data_dir = "{room / "data"}"\nlog_level = "warning"\n\n[bus]\nurl = "{nats.url}"\n\n[hosts]\ncount = {hosts}\n\n'
            + f'[region]\ndurability = "process"\n{databases}\n{cells_said}[compute]\nvif_plugging_timeout = 0\n\n[webconsole]\nlogins_per_minute = 1000000\n\n'
            + "".join(f"[api.{name}]\nport = {port}\n\n" for name, port in ports.items())
        )
        file.chmod(0o600)
        with log.open("wb") as out:
            words = [sys.executable, "-m", "moorage", "up", "--config", str(file), "--no-clouds-yaml"]
            process = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=room)
        try:
            _wait(process, log)
            yield FuzzedCloud(read_config(file), process.pid, log, nats.url)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while "Moorage is up" not in (output := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the cloud did not start:\n{output[-3_000:]}")
        time.sleep(0.05)


async def quiet(found: FuzzedCloud, patience_s: float) -> None:
    """Until the process does little, or for so long at the most."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = found.cpu_s()
        await asyncio.sleep(0.5)
        if found.cpu_s() - before < 0.1:
            return


def raise_file_limit(many: int) -> None:
    """As far as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < many:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(many, hard) if hard != resource.RLIM_INFINITY else many, hard))
