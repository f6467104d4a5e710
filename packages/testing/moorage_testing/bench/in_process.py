"""The measured process: the cloud that `moorage up` runs, with a line of JSON in and out for the bench.

    {"do": "begin"}   reset every counter
    {"do": "settle"}  once no saga is being executed: counters and CPU since then
    {"do": "deafen"}  the network service refuses every third host from now on; {"do": "hear"} ends that
    {"do": "stop"}    end

Nothing is switched off or replaced; every cloud has these counters.
"""

import asyncio
import os
import resource
import statistics
import sys
import time
from collections import Counter
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from moorage.clients.replies import ServiceResponse
from moorage.main.config import Config
from moorage.main.event_loop import run_loop, settle_memory
from moorage.main.process import set_up_process
from moorage.main.service_clients import admin_password
from moorage.main.up import RunningCloud, start_cloud
from moorage.operations.boot.boot import BOOT
from moorage.operations.registry import SAGAS

QUIET_PERIOD_S = 0.002
DEAF_EVERY = 3
KIB_PER_MIB = 1024


class CounterWatch:
    """Counters since `begin`."""

    def __init__(self, cloud: RunningCloud) -> None:
        self._cloud = cloud
        self._calls: dict[str, Counter[str]] = {}
        self._published: Counter[str] = Counter()
        self._cpu_s = 0.0
        self._binds: dict[str, list[tuple[str, float, float]]] = {}
        self._steps: dict[str, list[float]] = {}
        self._time_binds()
        self._time_steps()
        self.begin()

    def _time_binds(self) -> None:
        """When each PUT that binds a port began and ended; a clock read on either side, nothing else."""
        network = next(each for each in self._cloud.region.clients.services if each.name == "network")
        ask = network.call

        async def timed(method: str, path: str, *, body: Any = None, **more: Any) -> ServiceResponse:
            port = body.get("port", {}) if isinstance(body, dict) else {}
            if method != "PUT" or not port.get("binding:host_id"):
                return await ask(method, path, body=body, **more)
            began = time.perf_counter()
            try:
                return await ask(method, path, body=body, **more)
            finally:
                self._binds.setdefault(path, []).append((port["binding:host_id"], began, time.perf_counter()))

        network.call = timed  # type: ignore[method-assign]

    def _time_steps(self) -> None:
        """How long each step of a boot took, from its beginning to its end."""
        for step in SAGAS[BOOT.name].steps:
            step.do = self._timed(step.name, step.do)

    def _timed(self, name: str, do: Any) -> Any:
        @wraps(do)  # what a step answers is decoded by its annotation
        async def timed(run: Any) -> Any:
            began = time.perf_counter()
            try:
                return await do(run)
            finally:
                self._steps.setdefault(name, []).append((time.perf_counter() - began) * 1000)

        return timed

    def _meters(self) -> dict[str, Any]:
        ours = {"": self._cloud.region.meter}
        return ours | {database.name: database.meter for database in self._cloud.embedded.databases}

    def begin(self) -> None:
        for meter in self._meters().values():
            meter.reset()
        self._calls = {each.name: Counter(each.calls) for each in self._cloud.region.clients.services}
        self._published = Counter(self._cloud.region.bus.published)
        self._binds.clear()
        self._steps.clear()
        self._cpu_s = time.process_time()

    def since(self) -> dict[str, Any]:
        cpu_s = time.process_time() - self._cpu_s
        meters = self._meters()
        ours = meters.pop("")
        calls: Counter[str] = Counter()
        for each in self._cloud.region.clients.services:
            for what, count in each.calls.items():
                calls[f"{each.name}: {what}"] += count - self._calls[each.name][what]
        published: Counter[str] = Counter()
        for subject, count in self._cloud.region.bus.published.items():
            published[_kind(subject)] += count - self._published[subject]
        return {
            "cpu_s": cpu_s,
            "statements": [[*key, count] for key, count in sorted(ours.statements.items())],
            "commits": [[*key, count] for key, count in sorted(ours.commits.items())],
            "embedded": {name: sum(meter.statements.values()) for name, meter in meters.items()},
            "calls": {what: count for what, count in sorted(calls.items()) if count},
            "messages": {kind: count for kind, count in sorted(published.items()) if count},
            "rebinds_ms": [
                (again[1] - before[2]) * 1000
                for binds in self._binds.values()
                for before, again in pairwise(binds)
                if before[0] != again[0]
            ],
            "steps_ms": {name: statistics.median(took) for name, took in self._steps.items()},
            "lost": sum(each.lost for each in self._cloud.region.clients.services),
            "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_MIB,
        }


def _kind(subject: str) -> str:
    """A subject without the names of hosts and conductors in it."""
    words = subject.split(".")
    known = ("heartbeat", "result", "report", "returned", "host", "conductor")
    return next((word for word in words if word in known), words[-1])


async def run(config: Config) -> None:
    began = time.perf_counter()
    cloud = await start_cloud(config)
    took_s = time.perf_counter() - began
    settle_memory()
    watch = CounterWatch(cloud)
    _answer({"ready": True, "pid": os.getpid(), "took_s": took_s, "password": admin_password(config)})
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        asked = msgspec.json.decode(line)["do"]
        if asked == "begin":
            watch.begin()
            _answer({})
        elif asked == "settle":
            await _until_quiet(cloud)
            _answer(watch.since())
        elif asked in {"deafen", "hear"}:
            await _deafen(cloud, asked == "deafen")
            _answer({})
        else:
            break
    await cloud.stop()


async def _deafen(cloud: RunningCloud, deaf: bool) -> None:
    """As if the network service's agents on these hosts were dead: binding there fails (S0.13)."""
    network = cloud.embedded.network
    if network is not None:
        for plan in cloud.plans[::DEAF_EVERY]:
            await network.set_host_alive(plan.host, not deaf)


async def _until_quiet(cloud: RunningCloud) -> None:
    """No saga is being executed. It is observed from outside: a benchmark must not change what it measures by an event of its own."""
    conductor = cloud.region.conductor
    while conductor is not None and conductor.executing:  # noqa: ASYNC110
        await asyncio.sleep(QUIET_PERIOD_S)


def _answer(said: dict[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


def main(path: Path) -> None:
    """As `moorage up` begins, its log included."""
    config = msgspec.json.decode(path.read_bytes(), type=Config)
    set_up_process(config)
    run_loop(run(config))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
