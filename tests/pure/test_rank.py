"""Ranking: the right hosts, the right reasons for the others, and properties that no filter may break."""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.world_builder import Cloud

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.verdict import FAULT_CHARACTERS_MAX, LEDGER_BYTES_MAX, cause_of_host, fault_message, pack_codes
from moorage.model.world import Ask, Group, GroupAsk, NicRequirement, Unfit, World
from moorage.model.world_snapshot import photo_of, world_of
from moorage.scheduler.filters.aggregates import matches
from moorage.scheduler.filters.network import choose_segments
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank

SMALL = {"VCPU": 2, "MEMORY_MB": 512}


def best(ask: Ask, world: World) -> list[str]:
    return sorted(choice.name for choice in rank(ask, world, Profile()).best)


def nic(*segments: str) -> NicRequirement:
    return NicRequirement("n", tuple(ProviderId(s) for s in segments))


def test_more_room_comes_first_and_the_answer_can_be_replayed() -> None:
    world = Cloud().host("small", 4).host("large", 16, 16384).host("none", 1).world()
    verdict = rank(Ask(resources=SMALL), world, Profile())
    assert [choice.name for choice in verdict.best] == ["large", "small"]
    assert "none: 2 VCPU asked, 1 of 1 free" in verdict.explain()
    equal = Cloud()
    for number in range(50):
        equal.host(f"h{number}")
    answers = {
        tuple(c.name for c in rank(Ask(resources=SMALL, seed=7), equal.world(), Profile()).best) for _ in range(3)
    }
    assert len(answers) == 1
    assert len(next(iter(answers))) == 32


def test_a_disabled_cell_takes_nobody_from_elsewhere() -> None:
    """Its own servers move about in it; one that may leave it does."""
    a, b = CellId("a"), CellId("b")
    world = Cloud().host("h1", cell="a", cell_disabled=True).host("h2", cell="b").world()
    assert best(Ask(resources=SMALL), world) == ["h2"]
    assert best(Ask(resources=SMALL, host="h1"), world) == []
    assert best(Ask(resources=SMALL, cells=(a,)), world) == ["h1"]
    assert best(Ask(resources=SMALL, prefer_cell=a), world) == ["h2"]
    assert best(Ask(resources=SMALL, prefer_cell=a, cells=(a,)), world) == ["h1"]
    assert best(Ask(resources=SMALL, prefer_cell=b, cells=(a,)), world) == []
    assert best(Ask(resources=SMALL, host="h1", staying=True), world) == ["h1"]
    text = rank(Ask(resources=SMALL), world, Profile()).explain()
    assert "h1: its cell a is disabled by an administrator" in text
    assert best(Ask(resources=SMALL), world_of(photo_of(world))) == ["h2"]


def test_each_cause_is_named_with_its_numbers() -> None:
    cloud = Cloud().host("h1", wired=("s1",)).host("h2", wired=("s2",), zone="z2", physnets="pub").host("h3", level=1)
    picture = cloud.segment("s1", 0, 254).segment("s2", 3).picture()
    picture.set_alive("h3", False)
    world = picture.world()
    assert best(Ask(resources=SMALL, nics=(nic("s1", "s2"),)), world) == ["h2"]
    text = rank(Ask(resources=SMALL, nics=(nic("s1"),)), world, Profile()).explain()
    assert "h1: s1 has 0 of 254 addresses free" in text
    assert "h2: not wired to s1" in text
    many = rank(Ask(resources=SMALL, nics=(nic("s1", "s3", "s4", "s5"),)), world, Profile()).explain()
    assert "h2: not wired to any of the network's 4 segments" in many
    assert "h3: not heard from" in text
    picture.set_alive("h3", True)
    assert best(Ask(resources={}, min_level=3), world) == ["h1", "h2"]
    assert best(Ask(resources={}, availability_zone="z2"), world) == ["h2"]
    assert best(Ask(resources={}, host="h3"), world) == ["h3"]
    assert best(Ask(resources={}, node="h1.local"), world) == ["h1"]
    assert best(Ask(resources={}, not_on=(HostId("h1"),)), world) == ["h2", "h3"]
    assert best(Ask(resources={}, same_host=(HostId("h1"),)), world) == ["h1"]
    assert best(Ask(resources={}, different_host=(HostId("h1"),)), world) == ["h2", "h3"]
    assert best(Ask(resources={}, nics=(NicRequirement("n", physnets=("other",)),)), world) == ["h1", "h3"]
    assert best(Ask(resources={"VGPU": 1}), world) == []


def test_a_cell_that_refuses_a_server_has_a_reason() -> None:
    """Who may know sees which volume and which cell; the owner's fault has the cause alone."""
    cloud = Cloud().host("h1").host("h2", cell="d").host("h3", cell="e").host("h4", cell="e")
    unfit = {
        CellId("d"): Unfit("its cell is not linked"),
        CellId("e"): Unfit("a volume is out of reach", "v1 is in zone z"),
    }
    ask = Ask(resources=SMALL, cells_unfit=unfit, not_on=(HostId("h1"),))
    verdict = rank(ask, cloud.world(), Profile())
    assert verdict.best == ()
    assert "h2: cell d: its cell is not linked" in verdict.explain()
    assert "h4: cell e: a volume is out of reach (v1 is in zone z)" in verdict.explain()
    assert verdict.fault() == (
        "No valid host was found. 3 hosts: its cell is not linked; a volume is out of reach; 1 host: tried before"
    )
    assert best(msgspec.structs.replace(ask, not_on=()), cloud.world()) == ["h1"]
    staying = msgspec.structs.replace(ask, host="h2", staying=True, not_on=())
    assert best(staying, cloud.world()) == ["h2"]


def test_two_nics_on_one_segment_need_two_addresses() -> None:
    world = Cloud().host("h1", wired=("s1",)).host("h2", wired=("s1", "s2")).segment("s1", 1).segment("s2", 1).world()
    verdict = rank(Ask(resources=SMALL, nics=(nic("s1", "s2"), nic("s1", "s2"))), world, Profile())
    assert [(c.name, sorted(map(str, c.segments))) for c in verdict.best] == [("h2", ["s1", "s2"])]


def test_addresses_come_from_the_emptiest_segment() -> None:
    """The one with the most left, so that segments fill alike; whichever was named first."""
    world = (
        Cloud().host("h", wired=("low", "high", "mid")).segment("low", 2).segment("high", 9).segment("mid", 5).world()
    )
    for order in (("low", "high", "mid"), ("high", "mid", "low"), ("mid", "low", "high")):
        (only,) = rank(Ask(resources=SMALL, nics=(nic(*order),)), world, Profile()).best
        assert only.segments == ("high",)
    (both,) = rank(Ask(resources=SMALL, nics=(nic("low", "high"), nic("mid", "high"))), world, Profile()).best
    assert both.segments == ("high", "high")
    world.segments[ProviderId("high")].free = 3
    assert choose_segments(Ask(resources={}, nics=(nic("low", "high"), nic("mid", "high"))), world, 0) == (
        "high",
        "mid",
    )


def test_traits_aggregates_and_groups() -> None:
    picture = Cloud().host("h1", traits=("CUSTOM_A",)).host("h2", traits=("CUSTOM_B",)).host("h3").picture()
    world = picture.world()
    assert best(Ask(resources={}, required=("CUSTOM_A",)), world) == ["h1"]
    assert best(Ask(resources={}, forbidden=("CUSTOM_A",)), world) == ["h2", "h3"]
    assert best(Ask(resources={}, required=("CUSTOM_NEVER_SEEN",)), world) == []
    picture.set_host_aggregates(
        [("mine", {"filter_tenant_id": "p1, p2", "ssd": "true"}, ["h1"]), ("zone", {"availability_zone": "z"}, ["h2"])]
    )
    world = picture.world()
    assert best(Ask(resources={}, project="other"), world) == ["h2", "h3"]
    assert best(Ask(resources={}, project="p2"), world) == ["h1", "h2", "h3"]
    spec = {"aggregate_instance_extra_specs:ssd": "true"}
    assert best(Ask(resources={}, project="p1", extra_specs=spec), world) == ["h1"]
    assert best(Ask(resources={}, availability_zone="z"), world) == ["h2"]
    group = picture.groups.setdefault("g", Group())
    group.hosts[HostId("h2")] = 1
    apart = Ask(resources={}, project="p1", group=GroupAsk("g", "anti-affinity"))
    assert best(apart, picture.world()) == ["h1", "h3"]
    soft = rank(Ask(resources={}, project="p1", group=GroupAsk("g", "soft-affinity")), picture.world(), Profile())
    assert soft.best[0].name == "h2"
    group.home = HostId("h2")
    assert best(Ask(resources={}, project="p1", group=GroupAsk("g", "affinity")), picture.world()) == ["h2"]


def test_a_no_fits_its_ledger_and_its_fault() -> None:
    cloud = Cloud()
    for number in range(3000):
        cloud.host(f"a-host-with-a-rather-long-name-{number}", 1)
    verdict = rank(Ask(resources=SMALL), cloud.world(), Profile())
    assert len(msgspec.json.encode(verdict.ledger)) <= LEDGER_BYTES_MAX
    assert verdict.counts() == {"not enough vCPUs": 3000}
    ledger = verdict.ledger
    assert (len(ledger.misses), ledger.others, ledger.coded, ledger.left_out) == (50, {}, 3000, 0)
    roll = cloud.world().roll()
    for host in (roll.names[0], roll.names[-1], "a-host-with-a-rather-long-name-1234"):
        told = cause_of_host(msgspec.structs.replace(ledger, misses=()), roll.names, roll.digest, host)
        assert told == "not enough vCPUs"
    assert verdict.fault() == "No valid host was found. 3000 hosts: not enough vCPUs"
    long = fault_message({f"a cause that takes many words {n}": n for n in range(40)})
    assert len(long) <= FAULT_CHARACTERS_MAX
    assert fault_message({}) == "No valid host was found. There are no hosts."


def test_the_cause_names_only_what_hosts_are_short_of() -> None:
    """A segment offers addresses and nothing else, and is no host."""
    world = Cloud().host("h1", vcpus=1).segment("s1", 1).world()
    assert rank(Ask(resources=SMALL), world, Profile()).counts() == {"not enough vCPUs": 1}


def test_nova_operators_of_extra_specs() -> None:
    assert matches("8", ">= 4")
    assert matches("8", "= 8")
    assert not matches("3", "= 4")
    assert matches("a, b", "<or> b <or> c")
    assert not matches("x", "s== y")


_host = st.tuples(st.integers(1, 6), st.sets(st.sampled_from(["s1", "s2"])))


@settings(max_examples=60, deadline=None)
@given(st.lists(_host, min_size=1, max_size=8), st.integers(1, 6), st.integers(0, 2), st.booleans())
def test_adding_a_host_never_hurts_and_order_does_not_matter(
    hosts: list[tuple[int, set[str]]], vcpus: int, free: int, wants_nic: bool
) -> None:
    def world(order: list[int]) -> World:
        cloud = Cloud().segment("s1", free, 2).segment("s2", 1, 2)
        for index in order:
            cloud.host(f"h{index}", hosts[index][0], wired=tuple(hosts[index][1]))
        return cloud.world()

    ask = Ask(resources={"VCPU": vcpus}, nics=(nic("s1", "s2"),) if wants_nic else ())
    everybody = list(range(len(hosts)))
    whole = best(ask, world(everybody))
    shuffled = random.Random(vcpus).sample(everybody, len(everybody))
    assert best(ask, world(shuffled)) == whole
    fewer = best(ask, world(everybody[:-1]))
    assert set(fewer) <= set(whole)
    expected = [
        f"h{n}"
        for n, (have, wired) in enumerate(hosts)
        if have >= vcpus and (not wants_nic or ("s1" in wired and free > 0) or "s2" in wired)
    ]
    assert whole == sorted(expected)


def test_the_nearest_miss_is_where_the_least_would_have_to_change() -> None:
    """Not who passed the most filters: each reason counts one, an amount the part of it that is missing."""
    world = (
        Cloud()
        .host("nothing fits", 0, 0, traits=("CUSTOM_FAST",), zone="west")
        .host("elsewhere", 8, zone="east", traits=("CUSTOM_FAST",))
        .host("elsewhere and slow", 8, zone="east")
        .host("almost", 3, traits=("CUSTOM_FAST",), zone="west")
        .host("half", 2, traits=("CUSTOM_FAST",), zone="west")
        .host("slow, elsewhere and small", 1, zone="east")
        .world()
    )
    ask = Ask(resources={"VCPU": 4, "MEMORY_MB": 512}, required=("CUSTOM_FAST",), availability_zone="west")
    ledger = rank(ask, world, Profile()).ledger
    assert [miss.host for miss in ledger.misses] == [
        "almost",
        "half",
        "elsewhere",
        "nothing fits",
        "elsewhere and slow",
        "slow, elsewhere and small",
    ]
    slow = next(miss for miss in ledger.misses if miss.host == "elsewhere and slow")
    assert (slow.filter, len(slow.also)) == ("availability_zone", 1)
    few = rank(ask, world, Profile(misses=2)).ledger
    assert [miss.host for miss in few.misses] == ["almost", "half"]
    assert {host for hosts in few.others.values() for host in hosts} == set(world.names) - {"almost", "half"}
    assert rank(ask, world, Profile(misses=0)).ledger.misses == ()


def test_each_of_many_refused_hosts_has_its_cause() -> None:
    """Of more hosts than are named, within 16 KiB; who has other hosts by now is told nothing."""
    cloud, dice = Cloud(), random.Random(5)
    wrong: dict[str, str] = {}
    for _ in range(5000):
        name = f"host-{dice.getrandbits(40):x}"
        kind = dice.choice(("zone", "trait", "cpus"))
        traits = () if kind == "trait" else ("CUSTOM_FAST",)
        cloud.host(name, 1 if kind == "cpus" else 8, traits=traits, zone="east" if kind == "zone" else "west")
        wrong[name] = kind
    world = cloud.world()
    ask = Ask(resources=SMALL, required=("CUSTOM_FAST",), availability_zone="west")
    ledger = rank(ask, world, Profile()).ledger
    assert len(msgspec.json.encode(ledger)) <= LEDGER_BYTES_MAX
    assert (ledger.coded, ledger.left_out) == (5000, 0)
    alone = msgspec.structs.replace(ledger, misses=())
    roll = world.roll()
    words = {"zone": "not in availability zone west", "cpus": "not enough vCPUs"}
    for name in dice.sample(sorted(wrong), 300):
        told = cause_of_host(alone, roll.names, roll.digest, name)
        assert told == words.get(wrong[name], told)
        assert told is not None
    assert cause_of_host(alone, roll.names, roll.digest, "unheard of") is None
    other = cloud.host("one more").world().roll()
    assert cause_of_host(alone, other.names, other.digest, roll.names[0]) is None


def test_codes_that_do_not_fit_are_counted() -> None:
    codes = random.Random(1).randbytes(4000)
    packed, count = pack_codes(codes, 1000)
    assert len(packed) <= 1000
    assert 700 <= count < 4000
    assert pack_codes(codes, 0) == ("", 0)
