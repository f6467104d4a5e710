"""What it costs to keep decisions: CPU of a boot with and without, bytes, and how fast they are made again (N11).

The parts are measured on fleets of three sizes, in memory; a boot on a whole cloud, in turns, the least of each.
"""

import asyncio
import math
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moorage.main.config_scheduler import Scheduler
from moorage.main.replay import replay_all, shadow
from moorage.model.decision_log import Place, Subject
from moorage.model.ids import ProviderId, new_uuid
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.world import Ask, NicRequirement
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.claims import portions
from moorage.placement.decisions.recorder import DecisionRecorder, RecorderLimits
from moorage.placement.decisions.segment_file import files_in
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.store.region.placement.change_feed import ProviderChanges
from moorage_testing.bench.clouds import backing, cloud
from moorage_testing.bench.table import BenchRow, Table

FLEETS = (100, 1_000, 10_000)
SEGMENTS, DECISIONS = 64, 2_000
HOSTS, BOOTS, IN_FLIGHT, ROUNDS = 20, 400, 32, 3
BOOT_TIMES_MORE, DECISION_BYTES_MAX, REPLAYED_PER_S = 1.05, 1_000, 500
PLENTY = RecorderLimits(1 << 30, 86_400.0)
ASK = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


class _Row(SimpleNamespace):
    """As a statement's answer has it."""

    @property
    def _mapping(self) -> dict[str, Any]:
        return {"class": getattr(self, "resource", None), **self.__dict__}


def _stock(provider: str, resource: str, cap: int) -> _Row:
    portion = {"min_unit": 1, "max_unit": cap, "step": 1}
    numbers = {"total": cap, "reserved": 0, "ratio": 1.0, "cap": cap, "used": 0, "version": 1, **portion}
    return _Row(provider=provider, resource=resource, **numbers)


def fleet(hosts: int) -> ProviderCache:
    """Equal hosts, each wired to one of 64 segments."""
    segments = [new_uuid() for _ in range(SEGMENTS)]
    names = [new_uuid() for _ in range(hosts)]
    rows: dict[str, list[_Row]] = {key: [] for key in ("providers", "whole", "traits", "aggregates", "hosts")}
    facts = {"zone": "nova", "physnets": None, "level": 3, "kind": None, "forced_down": False, "cell_disabled": False}
    for number, uuid in enumerate([*segments, *names]):
        place = {"parent": None, "root": uuid, "generation": 1, "version": 1, "changed": 1, "updated_at": 0}
        rows["providers"].append(_Row(uuid=uuid, name=f"p{number}", **place))
        aggregate = uuid if number < SEGMENTS else segments[number % SEGMENTS]
        rows["aggregates"].append(_Row(provider=uuid, aggregate=aggregate))
        if number < SEGMENTS:
            rows["whole"].append(_stock(uuid, IPV4_ADDRESS, 4_000))
        else:
            rows["whole"] += [
                _stock(uuid, name, cap) for name, cap in (("DISK_GB", 4_000), ("MEMORY_MB", 262_144), ("VCPU", 64))
            ]
            rows["hosts"].append(_Row(provider=uuid, host=f"h{number}", node=f"h{number}", cell="cell1", **facts))
    picture = ProviderCache()
    picture.apply(ProviderChanges(1, everything=True, **rows))  # type: ignore[arg-type]
    return picture


def _spent(picture: ProviderCache, recorder: DecisionRecorder | None) -> tuple[float, float]:
    """CPU of all decisions with their claims: of the process, and of this thread in the recorder."""
    segments, profile, mine = tuple(picture.world().segments), Profile(), 0.0
    began = time.process_time()
    for number in range(DECISIONS):
        ask = Ask(resources=ASK, nics=(NicRequirement("n", segments),), project=f"{number % 7:032}", seed=number)
        verdict = rank(ask, picture.world(), profile)
        server = f"{number:036}"
        if recorder is not None:
            at = time.thread_time()
            recorder.decided(picture, ask, verdict, Subject(server, server, 1, "boot"))
            recorder.taken(server, Place.of(verdict.best[0]))
            mine += time.thread_time() - at
        parts = portions(verdict.best[0], ask)
        picture.pend([(ProviderId(provider), resource, amount) for provider, resource, amount in parts], +1)
    if recorder is not None:
        asyncio.run(recorder.close())
    return time.process_time() - began, mine


def in_memory(table: Table) -> None:
    """Of one decision, by the size of the fleet. Raises RuntimeError when a replay differs."""
    for hosts in FLEETS:
        with tempfile.TemporaryDirectory() as room:
            plain, _ = _spent(fleet(hosts), None)
            recorder = DecisionRecorder(Path(room), multipliers={}, limits=PLENTY)
            recorded, mine = _spent(fleet(hosts), recorder)
            files = files_in([Path(room)])
            size = sum(each.stat().st_size for each in files)
            began = time.process_time()
            report = replay_all([Path(room)], lambda done, total: None)
            replayed = report.decisions / (time.process_time() - began)
            began = time.process_time()
            shadow([Path(room)], Profile().weighing({"ram": -1.0}), 0.0, math.inf, lambda done, total: None)
            followed = report.decisions / (time.process_time() - began)
        if report.same != DECISIONS:
            raise RuntimeError(f"{report.same} of {DECISIONS} decisions had the same answer")
        name = f"{hosts:,} hosts × {SEGMENTS} segments"
        table.add(BenchRow(f"to record a decision, where it is made, {name}", mine / DECISIONS * 1e6, "µs"))
        table.add(BenchRow("  with packing and writing, beside it", (recorded - plain) / DECISIONS * 1e6, "µs"))
        note = "with the columns at the beginning of each file"
        table.add(BenchRow("  on disk", size / DECISIONS, "bytes", DECISION_BYTES_MAX, note=note))
        table.add(BenchRow("  made again, CPU", replayed, "/s", REPLAYED_PER_S, "at least"))
        table.add(BenchRow("  by other weights, CPU", followed, "/s"))


async def decisions(table: Table) -> None:
    """A boot with and without, and the parts."""
    best = {"kept": math.inf, "not kept": math.inf}
    for _ in range(ROUNDS):
        for name, room in (("not kept", 0), ("kept", 128 << 20)):
            with backing("sqlite") as found:
                changes = {"scheduler": Scheduler(decisions_bytes_max=room)}
                async with cloud(found, hosts=HOSTS, changes=changes) as running:
                    best[name] = min(best[name], (await running.boot(BOOTS, in_flight=IN_FLIGHT)).cpu_ms)
    table.add(BenchRow("CPU per boot, decisions not kept", best["not kept"], "ms"))
    table.add(BenchRow("CPU per boot, decisions kept", best["kept"], "ms", BOOT_TIMES_MORE * best["not kept"]))
    in_memory(table)
