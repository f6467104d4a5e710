"""What other weights would have decided for recorded decisions equals a full recomputation."""

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.helpers.world_builder import Cloud

from moorage.main.replay import shadow
from moorage.main.shadow_plot import svg_of
from moorage.model.decision_log import Place, Subject
from moorage.model.ids import HostId, ProviderId
from moorage.model.verdict import InventoryState
from moorage.model.world import Ask, Choice, Group, GroupAsk, NicRequirement
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.claims import portions
from moorage.placement.decisions import recorder as recorder_module
from moorage.placement.decisions.recorder import DecisionRecorder, RecorderLimits
from moorage.scheduler import shadow_report
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.shadow_report import ShadowReport

LIMITS = RecorderLimits(64 << 20, 86_400.0)
SEGMENTS = ("s1", "s2")
AS_DECIDED = Profile()
OTHER = Profile().weighing({"ram": -1.0, "cpu": 0.0, "disk": 0.0, "segment_addresses": -5.0, "last_addresses": 0.0})


@pytest.fixture(autouse=True)
def records_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for others to come with them."""
    monkeypatch.setattr(recorder_module, "GATHERED_FOR_S", 0.0)


@dataclass
class Fleet:
    """Hosts by name: memory, and the segment that each is wired to."""

    memory: dict[str, int]
    wired: dict[str, str]
    addresses: dict[str, int]

    @classmethod
    def drawn(cls, draw: random.Random) -> "Fleet":
        names = [f"h{number}" for number in range(8)]
        return cls(
            {name: draw.randrange(1_000, 4_000) for name in names},
            {name: SEGMENTS[place % 2] for place, name in enumerate(names)},
            {segment: draw.randrange(12, 30) for segment in SEGMENTS},
        )

    def picture(self, used: dict[str, int], taken: dict[str, int]) -> ProviderCache:
        """The cache of a process that has read all of it."""
        cloud = Cloud()
        for segment, total in self.addresses.items():
            cloud.segment(segment, total - taken.get(segment, 0), total)
        for name, memory in self.memory.items():
            cloud.host(name, 1_000, memory, wired=(self.wired[name],), used=used.get(name, 0))
        return cloud.picture()


@dataclass
class Counted:
    """The computation from nothing: who is where, and nothing else is remembered from one decision to the next."""

    fleet: Fleet
    places: dict[str, tuple[Ask, Choice]] = field(default_factory=dict)

    def decide(self, server: str, ask: Ask) -> Choice | None:
        used: dict[str, int] = {}
        taken: dict[str, int] = {}
        for each, choice in self.places.values():
            used[choice.name] = used.get(choice.name, 0) + each.resources["MEMORY_MB"]
            for segment in choice.segments:
                if segment is not None:
                    taken[segment] = taken.get(segment, 0) + 1
        picture = self.fleet.picture(used, taken)
        if ask.group is not None:
            mine = [choice.host for each, choice in self.places.values() if each.group is not None]
            picture.groups[ask.group.id] = Group({host: mine.count(host) for host in mine}, mine[0] if mine else None)
        best = rank(ask, picture.world(), OTHER).best
        if not best:
            return None
        self.places[server] = ask, best[0]
        return best[0]

    def follow(self, server: str, decided: Choice, taken: Choice) -> None:
        """A rival was first where it was decided: here too, if this one had chosen the same."""
        ask, mine = self.places.get(server, (None, None))
        if ask is not None and mine is not None and Place.of(mine) == Place.of(decided):
            self.places[server] = ask, taken

    def left(self, segment: str) -> int:
        taken = sum(each == segment for _, choice in self.places.values() for each in choice.segments)
        return self.fleet.addresses[segment] - taken


class Process:
    """A process that decides and records, on a cache that it shares with nobody."""

    def __init__(self, directory: Path, fleet: Fleet, clock: list[float]) -> None:
        self.picture = fleet.picture({}, {})
        self.recorder = DecisionRecorder(directory, multipliers={}, limits=LIMITS, clock=lambda: clock[0])
        self._version = 10

    def settle(self, ask: Ask, choice: Choice, sign: int) -> None:
        for provider, resource, amount in portions(choice, ask):
            stock = self.picture.rows.stock(self.picture.rows.index[provider], resource)
            assert stock is not None
            self._version += 1
            kind, used = stock
            self.picture.settle(
                [InventoryState(provider, resource, amount, used + sign * amount, kind.cap, self._version)]
            )
        if ask.group is not None:
            group = self.picture.groups.setdefault(ask.group.id, Group())
            group.hosts[choice.host] = group.hosts.get(choice.host, 0) + sign
            if not group.hosts[choice.host]:
                del group.hosts[choice.host]
            group.home = next(iter(group.hosts), None)


def an_ask(draw: random.Random) -> Ask:
    segments = tuple(map(ProviderId, SEGMENTS))
    nics = (NicRequirement("net", segments),) if draw.random() < 0.7 else ()
    group = GroupAsk("g", "anti-affinity", max_per_host=2) if draw.random() < 0.2 else None
    return Ask(resources={"MEMORY_MB": draw.randrange(50, 900)}, nics=nics, group=group, seed=draw.getrandbits(32))


def a_day(tmp_path: Path, seed: int, processes: int, count: int = 120) -> tuple[Fleet, Counted, ShadowReport, int, int]:
    """Boots and deletes, decided by one process or another; the shadow's report, and what a count from nothing has."""
    draw, clock = random.Random(seed), [1_000.0]
    fleet = Fleet.drawn(draw)
    directories = [tmp_path / str(number) for number in range(processes)]
    working = [Process(each, fleet, clock) for each in directories]
    counted = Counted(fleet)
    alive: dict[str, tuple[Ask, Choice | None]] = {}
    placed = [0, 0]
    for number in range(count):
        clock[0] += 1.0
        while alive and draw.random() < 0.45:
            clock[0] += 0.01
            gone = draw.choice(sorted(alive))
            ask, choice = alive.pop(gone)
            counted.places.pop(gone, None)
            draw.choice(working).recorder.released(gone)
            if choice is not None:
                for each in working:
                    each.settle(ask, choice, -1)
        clock[0] += 0.01
        one, server, ask = draw.choice(working), f"server{number}", an_ask(draw)
        verdict = rank(ask, one.picture.world(), AS_DECIDED)
        one.recorder.decided(one.picture, ask, verdict, Subject(server, f"operation{number}", 1, "boot"))
        placed[1] += counted.decide(server, ask) is not None
        choice = None
        if verdict.best:
            choice = verdict.best[
                min(len(verdict.best) - 1, draw.choice([0, 0, 0, 1]))
            ]  # a rival was first, now and then
            placed[0] += 1
            counted.follow(server, verdict.best[0], choice)
            one.recorder.taken(server, Place.of(choice))
            for each in working:
                each.settle(ask, choice, +1)
        alive[server] = ask, choice
    for each in working:
        asyncio.run(each.recorder.close())
    report, problems = shadow(directories, OTHER, 0.0, float("inf"), lambda done, total: None)
    assert not problems
    return fleet, counted, report, placed[0], placed[1]


@pytest.mark.parametrize(("seed", "processes"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_a_shadow_equals_a_full_recount(tmp_path: Path, seed: int, processes: int) -> None:
    _, counted, report, then, other = a_day(tmp_path, seed, processes)
    assert report.decisions == report.placements == 120
    assert report.placed == (then, other)
    assert report.elsewhere > 10, "weights that change nothing prove nothing"
    for segment in report.segments:
        assert segment.left[1] == counted.left(segment.name)
        assert min(segment.left) >= min(segment.least) >= 0


def test_a_shadow_with_the_same_weights_changes_nothing(tmp_path: Path) -> None:
    a_day(tmp_path, 5, 1)
    report, _ = shadow([tmp_path / "0"], AS_DECIDED, 0.0, float("inf"), lambda done, total: None)
    assert (report.elsewhere, report.gained, report.missed) == (0, 0, 0)
    assert report.placed[0] == report.placed[1] > 100
    assert report.spread[0] == report.spread[1] > 0
    assert all(each.left[0] == each.left[1] for each in report.segments)
    assert all(each.addresses[0] == each.addresses[1] for each in report.samples)


def decided(one: Process, clock: list[float], ask: Ask, subject: Subject) -> Choice:
    clock[0] += 1.0
    verdict = rank(ask, one.picture.world(), AS_DECIDED)
    one.recorder.decided(one.picture, ask, verdict, subject)
    choice = verdict.best[0]
    one.settle(ask, choice, +1)
    one.recorder.taken(subject.consumer, Place.of(choice))
    return choice


def two_hosts(tmp_path: Path) -> tuple[Process, list[float]]:
    clock = [1_000.0]
    fleet = Fleet({"large": 4_000, "small": 2_000}, {"large": "s1", "small": "s2"}, {"s1": 20, "s2": 20})
    return Process(tmp_path, fleet, clock), clock


def outcome(one: Process, tmp_path: Path) -> ShadowReport:
    asyncio.run(one.recorder.close())
    return shadow([tmp_path], OTHER, 0.0, float("inf"), lambda done, total: None)[0]


def asks(memory: int, **more: object) -> Ask:
    return Ask(resources={"MEMORY_MB": memory}, **more)  # type: ignore[arg-type]


def test_a_server_placed_elsewhere_keeps_the_recorded_host(tmp_path: Path) -> None:
    """Recorded: to the host with most memory. Shadow: to the other; so the move there goes the other way, and its end frees it there."""
    one, clock = two_hosts(tmp_path)
    first = decided(one, clock, asks(1_500), Subject("a", "boot-a", 1, "boot"))
    assert first.name == "large"
    moved = decided(one, clock, asks(1_500, leaves=HostId("large")), Subject("a", "move-a", 1, "move", "migration"))
    assert moved.name == "small"
    clock[0] += 1.0
    one.recorder.released("migration")
    one.settle(asks(1_500), first, -1)
    # In the shadow "small" is free again and "large" holds it, so that what is large fits on neither side only there.
    decided(one, clock, asks(2_800), Subject("b", "boot-b", 1, "boot"))
    report = outcome(one, tmp_path)
    assert report.decisions == 3
    assert report.placed == (3, 2)
    assert (report.missed, report.elsewhere) == (1, 2)


def test_a_reverted_move_returns_to_its_host(tmp_path: Path) -> None:
    one, clock = two_hosts(tmp_path)
    decided(one, clock, asks(1_500), Subject("a", "boot-a", 1, "boot"))
    moved = decided(one, clock, asks(1_500, leaves=HostId("large")), Subject("a", "move-a", 1, "move", "migration"))
    clock[0] += 1.0
    one.recorder.reverted("a", "migration")
    one.settle(asks(1_500), moved, -1)
    verdict = rank(asks(3_800), one.picture.world(), AS_DECIDED)
    assert not verdict.best
    clock[0] += 1.0
    one.recorder.decided(one.picture, asks(3_800), verdict, Subject("b", "boot-b", 1, "boot"))
    report = outcome(one, tmp_path)
    assert (report.gained, report.missed) == (1, 0), (
        "the shadow has it on the small host again, and the large one is empty"
    )


def test_a_lost_claim_is_decided_again_and_counted_once(tmp_path: Path) -> None:
    one, clock = two_hosts(tmp_path)
    verdict = rank(asks(1_500), one.picture.world(), AS_DECIDED)
    for _ in range(3):
        clock[0] += 1.0
        one.recorder.decided(one.picture, asks(1_500), verdict, Subject("a", "boot-a", 1, "boot"))
    one.settle(asks(1_500), verdict.best[0], +1)
    one.recorder.taken("a", Place.of(verdict.best[0]))
    decided(one, clock, asks(500), Subject("b", "boot-b", 1, "boot"))
    report = outcome(one, tmp_path)
    assert (report.decisions, report.placements, report.placed) == (4, 2, (2, 2))
    assert report.elsewhere == 2


def test_only_the_requested_period_counts(tmp_path: Path) -> None:
    a_day(tmp_path, 6, 1, count=50)
    whole, _ = shadow([tmp_path / "0"], OTHER, 0.0, float("inf"), lambda done, total: None)
    middle = (whole.samples[0].at + whole.samples[-1].at) / 2
    ends = [(0.0, middle), (middle + 1e-6, float("inf"))]
    halves = [shadow([tmp_path / "0"], OTHER, *each, lambda done, total: None)[0] for each in ends]
    assert [half.decisions for half in halves] != [0, 50]
    assert sum(half.decisions for half in halves) == whole.decisions == 50


def test_the_plot_is_well_formed_and_shows_both(tmp_path: Path) -> None:
    _, _, report, _, _ = a_day(tmp_path, 7, 1, count=40)
    root = ElementTree.fromstring(svg_of(report, "<other & co>.toml"))
    lines = [each for each in root.iter() if each.tag.endswith("polyline")]
    assert [each.get("class") for each in lines] == ["then", "shadow"] * 3
    assert all(len(str(each.get("points")).split()) == len(report.samples) for each in lines)
    assert any("<other & co>.toml" in (each.text or "") for each in root.iter())
    bars = [each for each in root.iter() if str(each.get("class")).startswith("bar-")]
    assert len(bars) == 2 * len(report.segments) == 4


def test_many_decisions_are_few_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_report, "SAMPLES_MAX", 20)
    _, _, report, _, _ = a_day(tmp_path, 8, 1, count=90)
    assert 10 <= len(report.samples) <= 22
    assert [each.at for each in report.samples] == sorted(each.at for each in report.samples)
    assert report.samples[-1].placed == report.placed
    assert report.samples[-1].spread == report.spread
