"""Finds free ports for tests and benchmarks that no other process takes before the service listens there.

The kernel gives ports of its ephemeral range to every connection that is opened on the machine, so a port of that range that is free
now may be in use when the service starts.  The ports of this module are below that range, and each process picks from a row of
its own, which it holds by a lock on a file until it ends.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOWEST, PORTS_OF_A_PROCESS = 10_500, 250
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_FROM = 32_768
"""Start of the ephemeral range if the kernel does not tell it."""


class PortRow:
    """The ports that this process picks from, in turn; none if every row is taken."""

    def __init__(self, folder: Path) -> None:
        self._lock, self._ports = _held(folder)

    def next(self) -> int | None:
        """Return the next port on which no process listens now; None: there is none."""
        for port in itertools.islice(self._ports, PORTS_OF_A_PROCESS):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            return port
        return None


def _held(folder: Path) -> tuple[int, Iterator[int]]:
    """Lock the first row that no running process holds."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(LOWEST, _ephemeral_from() - PORTS_OF_A_PROCESS, PORTS_OF_A_PROCESS):
        lock = os.open(folder / str(at), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return lock, itertools.cycle(range(at, at + PORTS_OF_A_PROCESS))
    return -1, iter(())


def _ephemeral_from() -> int:
    try:
        return int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_FROM


_rows: dict[int, PortRow] = {}


def free_ports(count: int) -> list[int]:
    """Return `count` different ports; a port is returned again only after all others of this process."""
    process = os.getpid()
    if process not in _rows:  # a fork has the lock of its parent, and needs ports of its own
        _rows[process] = PortRow(Path(tempfile.gettempdir()) / f"moorage-ports-{os.getuid()}")
    ports = [_rows[process].next() for _ in range(count)]
    return [port for port in ports if port is not None] if None not in ports else _of_the_kernel(count)


def free_port() -> int:
    return free_ports(1)[0]


def _of_the_kernel(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
