"""Two conductors decide and claim on one database, each with its own files: every decision is replayed with the same answer (N11)."""

import random
from functools import partial
from pathlib import Path

from moorage.main.replay import replay_all, shadow
from moorage.model.decision_log import Subject
from moorage.model.ids import CellId, ProviderId, SegmentId, ServerId, new_uuid
from moorage.model.resources import Inventory
from moorage.model.verdict import Claimed, Shortage
from moorage.model.world import Ask, NicRequirement
from moorage.placement.decisions.recorder import DecisionRecorder, RecorderLimits
from moorage.placement.engine import Engine
from moorage.placement.inventory import HostInventory, SegmentReport, set_enabled
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx
from moorage.store.region import aggregates
from moorage.store.region.placement import placement_metadata
from moorage.store.region.placement.claim_statements import Owner
from moorage.store.region.tables import region_metadata

SEGMENTS = tuple(SegmentId(new_uuid()) for _ in range(2))
LIMITS = RecorderLimits(1 << 26, 86_400.0)
DECISIONS = 60


async def conductor(database: Database, directory: Path) -> Engine:
    recorder = DecisionRecorder(directory, multipliers={}, limits=LIMITS)
    ranker = partial(rank, profile=Profile())
    engine = Engine(database, ranker, aggregates=aggregates.for_placement, recorder=recorder, every_s=3600)
    await engine.start()
    return engine


async def boot(engine: Engine, server: str, ask: Ask) -> str:
    """As a boot does; the decision that counted."""
    subject = Subject(server, new_uuid(), 1, "boot")
    verdict = engine.decide(ask, subject)
    for _ in range(5):
        for choice in verdict.best:
            owner = Owner(server, "p", "u", operation=subject.operation, attempt=1)

            def work(tx: Tx, owner: Owner = owner, choice: object = choice) -> Claimed | Shortage:
                answer = engine.claim(tx, owner, choice, ask, replace=False)  # type: ignore[arg-type]
                if isinstance(answer, Shortage):
                    tx.refuse(answer)
                return answer

            with engine.holding(choice, ask):
                answer = await engine._region.write(work)
            if isinstance(answer, Claimed):
                engine.claimed(answer)
                return verdict.ledger.decision
            engine.lost(answer)
        verdict = await engine.decide_fresh(ask, subject)
        if not verdict.best:
            break
    return verdict.ledger.decision


async def test_decisions_of_two_conductors_are_made_again(database: Database, tmp_path: Path) -> None:
    await database.create(region_metadata)
    await database.create(placement_metadata)
    directories = [tmp_path / "one", tmp_path / "two"]
    pair = [await conductor(database, each) for each in directories]
    draw, alive, ids = random.Random(1), list[str](), list[str]()
    for number in range(6):
        inventories = {"VCPU": Inventory(16), "MEMORY_MB": Inventory(1_500 + 300 * number)}
        await pair[0].report_host(HostInventory(host=f"host{number}", cell=CellId("c"), inventories=inventories))
    reports = [
        SegmentReport(segment=each, name=f"s{at}", total=20, hosts=tuple(f"host{n}" for n in range(at, 6, 2)))
        for at, each in enumerate(SEGMENTS)
    ]
    await pair[0].report_segments(reports)
    await pair[1].catch_up()
    for number in range(DECISIONS):
        one = draw.choice(pair)
        match draw.randrange(5):
            case 0 if alive:
                gone = alive.pop(draw.randrange(len(alive)))
                one.settle(await database.write(partial(one.release, consumer=gone)))
            case 1:
                host = one.host_named(f"host{draw.randrange(6)}")
                assert host is not None
                enabled = draw.random() < 0.7
                await database.write(lambda tx, host=host, enabled=enabled: set_enabled(tx, host, enabled))  # type: ignore[misc]
            case 2:
                await one.catch_up()
            case _:
                one.count_failure(one.picture.host_ids[0], failed=draw.random() < 0.5)
        ask = Ask(
            resources={"VCPU": 1, "MEMORY_MB": draw.randrange(50, 600)},
            nics=(NicRequirement("n", tuple(map(ProviderId, SEGMENTS))),) if draw.random() < 0.6 else (),
            seed=number,
        )
        server = ServerId(new_uuid())
        ids.append(await boot(one, server, ask))
        alive.append(server)
    for engine in pair:
        await engine.close()
    report = replay_all(directories, lambda done, total: None)
    assert report.decisions >= DECISIONS
    assert (report.same, report.problems, report.lost) == (report.decisions, (), 0)
    assert len(set(ids)) == DECISIONS
    same, _ = shadow(directories, Profile(), 0.0, float("inf"), lambda done, total: None)
    assert (same.elsewhere, same.gained, same.missed) == (0, 0, 0)
    other, _ = shadow(directories, Profile().weighing({"ram": -1.0}), 0.0, float("inf"), lambda done, total: None)
    assert other.placements == DECISIONS
    assert other.elsewhere > 0
