"""What the figures were taken on: processors, load, how long a sync to the disk takes, and CPU time of other processes."""

import os
import statistics
import tempfile
import time
from pathlib import Path

SYNCS = 50
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def fsync_ms(under: Path) -> tuple[float, float]:
    """Median and slowest of some appended and synced blocks of 4 KiB."""
    took: list[float] = []
    with tempfile.TemporaryFile(dir=under) as file:
        for _ in range(SYNCS):
            file.write(b"\0" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took), max(took)


def described(under: Path) -> str:
    median, slowest = fsync_ms(under)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{os.cpu_count()} processors, load average {load}; a synced 4 KiB append takes {median:.2f} ms "
        f"(slowest of {SYNCS}: {slowest:.1f} ms)"
    )


def cpu_s_of_tree(root: int) -> float:
    """CPU seconds, user and system, of a process and all its children, those that have ended too."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(int(each) for each in fields[11:15]) / TICKS_PER_S
    total, left = 0.0, [root]
    while left:
        process = left.pop()
        total += spent.get(process, 0.0)
        left += parents.get(process, [])
    return total
