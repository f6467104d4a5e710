"""Network weighers, multipliers of the configuration and of aggregates, and what the explanation shows of them."""

import msgspec
import pytest
from tests.helpers.world_builder import Cloud

from moorage.main.config_scheduler import Scheduler
from moorage.model.ids import CellId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask, NicRequirement, World
from moorage.scheduler.profile import WEIGHERS, Profile
from moorage.scheduler.rank import rank
from moorage_testing.bench.fleets import FLEETS, compared

SMALL = {"VCPU": 2, "MEMORY_MB": 512}
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"


def first(ask: Ask, world: World, **multipliers: float) -> str:
    return rank(ask, world, Profile().weighing(multipliers)).best[0].name


def nic(*segments: str) -> NicRequirement:
    return NicRequirement("n", tuple(ProviderId(s) for s in segments))


def aggregated(cloud: Cloud, *aggregates: tuple[dict[str, str], list[str]]) -> World:
    picture = cloud.picture()
    picture.set_host_aggregates([(f"a{n}", metadata, hosts) for n, (metadata, hosts) in enumerate(aggregates)])
    return picture.world()


def test_simulated_fleets_hold_more_servers_than_by_spreading_or_packing() -> None:
    found = {fleet.name: counts for fleet, counts in compared(12)}
    assert len(found) == len(FLEETS)
    for name, counts in found.items():
        assert counts["network"] > max(counts["spread"], counts["pack"]), (name, counts)


def test_the_segment_with_more_addresses_is_preferred() -> None:
    world = (
        Cloud()
        .host("large", 64, wired=("low",))
        .host("small", 8, wired=("high",))
        .segment("low", 40)
        .segment("high", 90)
        .world()
    )
    assert first(Ask(resources=SMALL, nics=(nic("low", "high"),)), world) == "small"
    assert first(Ask(resources=SMALL, nics=(nic("low"),)), world) == "large"
    assert first(Ask(resources=SMALL), world) == "large"
    assert first(Ask(resources=SMALL, nics=(nic("low", "high"),)), world, segment_addresses=0) == "large"


def test_the_last_addresses_are_kept_for_servers_that_need_them() -> None:
    cloud = (
        Cloud()
        .host("big", 64, wired=("large",))
        .host("both", 4, wired=("large", "small"))
        .host("little", 8, wired=("small",))
    )
    world = cloud.segment("large", 20, 254).segment("small", 8, 16).world()
    either = Ask(resources=SMALL, nics=(nic("large", "small"),))
    only_addresses = {"segment_addresses": 0.0, "last_addresses": 0.0}
    assert first(either, world, **only_addresses) == "big"
    assert first(either, world, segment_addresses=0) == "little", "20 of 254 are the last tenth; 8 of 16 are not"
    assert first(Ask(resources=SMALL, nics=(nic("large"),)), world, segment_addresses=0) == "big"


def test_bandwidth_is_kept_for_ports_with_guarantees() -> None:
    cloud = Cloud().host("wide", 32, 32768).host("plain", 8)
    world = cloud.device("wide", "nic", {BANDWIDTH: 1_000_000}).world()
    assert first(Ask(resources=SMALL), world) == "plain"
    assert first(Ask(resources=SMALL), world, bandwidth=0) == "wide"
    group = RequestGroup("port", {BANDWIDTH: 100_000}, port="port")
    cloud = Cloud().host("used", 16).host("free", 16)
    cloud.device("used", "nic1", {BANDWIDTH: 1_000_000}, used=800_000).device("free", "nic2", {BANDWIDTH: 1_000_000})
    assert first(Ask(resources=SMALL, groups=(group,)), cloud.world()) == "free"
    assert first(Ask(resources=SMALL), cloud.world()) == "used"


def test_aggregates_set_multipliers_for_their_hosts_and_the_lowest_counts() -> None:
    cloud = Cloud().host("h1", 32, 32768).host("h2", 16, 16384).host("h3", 8)
    ask = Ask(resources=SMALL)
    pulled = {"ram_weight_multiplier": "0", "cpu_weight_multiplier": "0"}
    assert first(ask, cloud.world()) == "h1"
    assert first(ask, aggregated(cloud, (pulled, ["h1"]))) == "h2"
    pushed = {"ram_weight_multiplier": "9", "cpu_weight_multiplier": "9"}
    assert first(ask, aggregated(cloud, (pulled, ["h1"]), (pushed, ["h1"]))) == "h2", "the lowest of both"
    assert first(ask, aggregated(cloud, (pushed, ["h2"]))) == "h2"
    wrong = {"ram_weight_multiplier": "much", "cpu_weight_multiplier": "nan"}
    assert first(ask, aggregated(cloud, (wrong, ["h1"]))) == "h1"
    on = aggregated(cloud, ({"cpu_weight_multiplier": "2"}, ["h3", "h1"]))
    assert first(ask, on, cpu=0, ram=0) == "h1", "a weigher that is off counts where an aggregate says so"


def test_a_move_stays_in_its_cell_unless_requested() -> None:
    """Requests of which no cell is preferred are not touched; a negative multiplier drains a cell, everywhere or host by host (S4.12)."""
    cloud = Cloud().host("here", 8).host("large", 64, 65536, cell="d").host("mid", 32, 32768, cell="e")
    world, moves = cloud.world(), Ask(resources=SMALL, prefer_cell=CellId("c"))
    assert first(Ask(resources=SMALL), world) == "large"
    assert first(Ask(resources=SMALL), world, cross_cell_move=-10_000) == "large"
    assert first(moves, world) == "here"
    assert first(moves, world, cross_cell_move=0) == "large"
    assert first(moves, world, cross_cell_move=-10_000) == "large"
    assert first(Ask(resources=SMALL, prefer_cell=CellId("d")), world, cross_cell_move=-10_000) == "mid"
    drained = aggregated(cloud, ({"cross_cell_move_weight_multiplier": "-1"}, ["here"]))
    assert first(moves, drained) == "large"
    told = rank(moves, world, Profile()).ledger.weights
    assert (told["here"]["cross_cell_move"], told["large"]["cross_cell_move"]) == (10_000.0, 0.0)


def test_staying_in_the_cell_does_not_override_other_weighers() -> None:
    """Sums are float32: with Nova's million, what other weighers say of hosts of one cell would be below its precision."""
    cloud = Cloud().host("less", 1000, 8192).host("more", 1020, 8192).host("away", 4000, 8192, cell="d")
    ask = Ask(resources=SMALL, prefer_cell=CellId("c"))
    only_cpu = {"ram": 0.0, "disk": 0.0}
    assert {first(msgspec.structs.replace(ask, seed=seed), cloud.world(), **only_cpu) for seed in range(20)} == {"more"}


def test_the_explanation_has_the_scores_of_each_weigher() -> None:
    cloud = Cloud().host("h1", 16, wired=("s",)).host("h2", 8, wired=("t",)).segment("s", 200).segment("t", 100)
    ask = Ask(resources=SMALL, nics=(nic("s", "t"),))
    ledger = rank(ask, cloud.world(), Profile()).ledger
    assert list(ledger.weights) == ["h1", "h2"]
    assert ledger.weights["h1"] == {"cpu": 1.0, "segment_addresses": 5.0}
    assert ledger.weights["h2"] == {"cpu": 0.0, "segment_addresses": 0.0}
    alone = rank(Ask(resources=SMALL), Cloud().host("h").world(), Profile())
    assert alone.ledger.weights == {}


def test_every_weigher_has_its_setting() -> None:
    assert Scheduler().multipliers == pytest.approx({each.name: each.multiplier for each in WEIGHERS})
