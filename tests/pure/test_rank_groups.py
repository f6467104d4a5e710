"""Request groups: the right devices, the right reasons, and the same answer as an exhaustive search on random fleets."""

import itertools
import random
import time
from collections.abc import Iterator

import pytest
from tests.helpers.world_builder import Cloud

from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask, Choice
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider import Provider
from moorage.placement.claims import amounts_of, portions
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank

EGR, IGR, PPS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC"
A, B, NORMAL, DIRECT = "CUSTOM_PHYSNET_A", "CUSTOM_PHYSNET_B", "CUSTOM_VNIC_TYPE_NORMAL", "CUSTOM_VNIC_TYPE_DIRECT"
SMALL = {"VCPU": 1}


def bw(id: str, kbps: int, *traits: str) -> RequestGroup:
    return RequestGroup(id, {EGR: kbps}, traits or (A, NORMAL), port=id)


def one_host(*free: int, traits: tuple[str, ...] = (A, NORMAL)) -> ProviderCache:
    cloud = Cloud().host("h").device("h", "h:ovs", {PPS: 100}, traits=(NORMAL,))
    for number, kbps in enumerate(free):
        cloud.device(
            "h", f"h:ovs:br{number}", {EGR: 10_000, IGR: 10_000}, below="h:ovs", traits=traits, used=10_000 - kbps
        )
    return cloud.picture()


def why(picture: ProviderCache, *groups: RequestGroup, **more: object) -> str:
    verdict = rank(Ask(resources=SMALL, groups=groups, **more), picture.world(), Profile())  # type: ignore[arg-type]
    assert not verdict.best
    return verdict.explain()


def test_each_group_gets_the_provider_that_has_its_resources() -> None:
    world = one_host(3_000, 6_000).world()
    verdict = rank(Ask(resources=SMALL, groups=(bw("a", 5_000), bw("b", 2_000))), world, Profile())
    assert verdict.best[0].providers == {"a": "h:ovs:br1", "b": "h:ovs:br0"}
    pps = RequestGroup("c", {PPS: 10}, (NORMAL,), port="a")
    together = Ask(resources=SMALL, groups=(bw("a", 5_000), pps), same_subtree=(("a", "c"),))
    assert rank(together, world, Profile()).best[0].providers == {"a": "h:ovs:br1", "c": "h:ovs"}


def test_each_cause_is_named_with_its_numbers() -> None:
    picture = one_host(3_000, 2_000)
    assert f"{EGR}: 5000 asked, at most 3000 free on one device" in why(picture, bw("a", 5_000))
    assert "not enough guaranteed bandwidth on any one device" in why(picture, bw("a", 5_000))
    assert "no device on physical network B for vnic type normal" in why(picture, bw("a", 1, B, NORMAL))
    assert "1 × no device for a port with a guarantee" in why(picture, bw("a", 1, A, DIRECT))
    assert "not enough on its devices for all groups together" in why(picture, *(bw(n, 1_800) for n in "abc"))
    assert f"{EGR}: 5400 asked in all, 5000 free on all its devices" in why(picture, *(bw(n, 1_800) for n in "abc"))
    scattered = one_host(3_000, 2_000, 1_500)
    assert "not enough on its devices for all groups together" in why(scattered, *(bw(n, 1_800) for n in "abc"))
    assert f"{EGR}: 1800 + 1800 + 1800 asked, 3000, 2000, 1500 free" in why(scattered, *(bw(n, 1_800) for n in "abc"))
    three = tuple(bw(n, 100) for n in "abc")
    assert "group_policy isolate" in why(picture, *three, group_policy="isolate")
    two = (RequestGroup("x", {EGR: 3_000}, (A,)), RequestGroup("y", {EGR: 2_000}, (A,)))
    assert "same_subtree" in why(picture, *two, same_subtree=(("x", "y"),))
    assert "offers CUSTOM_X" in why(picture, RequestGroup("1", {"CUSTOM_X": 1}))


def test_claims_under_way_are_named_in_reasons() -> None:
    picture = one_host(3_000)
    picture.pend([(ProviderId("h:ovs:br0"), EGR, 2_500)], +1)
    assert "at most 500 free on one device, 2500 held by claims under way" in why(picture, bw("a", 1_000))
    picture.pend([(ProviderId("h:ovs:br0"), EGR, 2_500)], -1)
    assert rank(Ask(resources={}, groups=(bw("a", 1_000),)), picture.world(), Profile()).best


def test_each_group_is_checked_for_its_own_portion() -> None:
    cloud = Cloud().host("h").device("h", "d", {EGR: 10_000}, traits=(A, NORMAL), max_unit=1_000, step=100)
    world = cloud.picture().world()
    assert rank(Ask(resources={}, groups=(bw("a", 900), bw("b", 900))), world, Profile()).best
    for wrong in (1_100, 950):
        verdict = rank(Ask(resources={}, groups=(bw("a", wrong),)), world, Profile())
        assert not verdict.best
        assert "in portions it gives away" in verdict.explain()


def test_a_virtual_function_is_of_the_device_that_has_the_bandwidth() -> None:
    cloud = Cloud().host("h").device("h", "h:nic", {})
    for name, kbps, functions in (("ens1", 10_000, 0), ("ens2", 1_000, 8), ("ens3", 10_000, 1)):
        cloud.device("h", f"h:nic:{name}", {EGR: kbps}, below="h:nic", traits=(A, DIRECT))
        cloud.device("h", f"h:pci:{name}", {"SRIOV_NET_VF": functions} if functions else {}, traits=(A,))
    world = cloud.picture().world()

    def ask(*ports: str) -> Ask:
        groups = tuple(bw(port, 5_000, A, DIRECT) for port in ports)
        vfs = tuple(RequestGroup(f"{port}:vf", {"SRIOV_NET_VF": 1}, (A,), port=port) for port in ports)
        return Ask(resources={}, groups=groups + vfs, same_device=tuple((port, f"{port}:vf") for port in ports))

    assert rank(ask("p"), world, Profile()).best[0].providers == {"p": "h:nic:ens3", "p:vf": "h:pci:ens3"}
    verdict = rank(ask("p", "q"), world, Profile())
    assert not verdict.best
    assert "no virtual function free on a device with the bandwidth" in verdict.explain()


def test_eight_equal_groups_over_eight_equal_devices_are_decided_quickly() -> None:
    picture = one_host(*[1_000] * 8)
    world = picture.world()
    eight = tuple(bw(f"g{n}", 1_000) for n in range(8))
    began = time.process_time()
    assert rank(Ask(resources={}, groups=eight, group_policy="isolate"), world, Profile()).best
    nine = (*eight, bw("g8", 1_000))
    assert not rank(Ask(resources={}, groups=nine), world, Profile()).best
    uneven = one_host(*range(5_010, 5_090, 10)).world()
    sixteen = tuple(bw(f"g{n}", 2_600) for n in range(16))
    assert "all groups together" in rank(Ask(resources={}, groups=sixteen[:9]), uneven, Profile()).explain()
    assert time.process_time() - began < 5.0  # a product would take days


def test_several_placements_on_one_host_are_offered_when_hosts_are_few() -> None:
    best = rank(Ask(resources={}, groups=(bw("a", 1_000),)), one_host(3_000, 2_000, 1_000).world(), Profile()).best
    assert [choice.providers["a"] for choice in best] == ["h:ovs:br0", "h:ovs:br1", "h:ovs:br2"]


def test_child_providers_follow_their_host() -> None:
    picture = one_host(5_000)
    cloud = Cloud().host("h2").device("h", "late", {EGR: 20_000}, traits=(A, NORMAL))
    changes = {**cloud.rows, "gone": ["h:ovs:br0"]}
    from moorage.store.region.placement.change_feed import ProviderChanges

    picture.apply(ProviderChanges(2, **changes))  # type: ignore[arg-type]
    best = rank(Ask(resources={}, groups=(bw("a", 20_000),)), picture.world(), Profile()).best
    assert [choice.providers["a"] for choice in best] == ["late"]
    assert not rank(Ask(resources={}, groups=(bw("a", 1, A, NORMAL),), host="h2"), picture.world(), Profile()).best
    picture.apply(ProviderChanges(3, gone=["late"]))
    assert not rank(Ask(resources={}, groups=(bw("a", 1),)), picture.world(), Profile()).best


# --------------------------------------------------------------------------------------- everything tried, as a judge


def _could(provider: Provider, group: RequestGroup) -> bool:
    for resource, amount in group.resources.items():
        stock = provider.stocks.get(resource)
        if stock is None or not stock.min_unit <= amount <= stock.max_unit or amount % stock.step:
            return False
    return set(group.required) <= provider.traits and not set(group.forbidden) & provider.traits


def _upwards(tree: dict[ProviderId, Provider], uuid: ProviderId) -> Iterator[ProviderId]:
    here: ProviderId | None = uuid
    while here is not None:
        yield here
        here = tree[here].parent


def allowed(picture: ProviderCache, ask: Ask, choice: Choice) -> bool:
    """Whether the choice breaks nothing, judged from the definition."""
    tree = picture.trees[ProviderId(choice.host)]
    for (provider, resource), amount in amounts_of(portions(choice, ask)).items():
        stock = tree[provider].stocks.get(resource)
        if stock is None or stock.used + amount > stock.cap:
            return False
    for group in ask.groups:
        if not _could(tree[choice.providers[group.id]], group):
            return False
    if ask.group_policy == "isolate" and len(set(choice.providers.values())) < len(ask.groups):
        return False
    for together in ask.same_subtree:
        uuids = {choice.providers[id] for id in together}
        if not any(all(top in _upwards(tree, uuid) for uuid in uuids) for top in uuids):
            return False
    return True


def oracle(picture: ProviderCache, ask: Ask, host: str) -> set[tuple[ProviderId, ...]]:
    """All assignments of providers to groups, in the order of the groups."""
    tree = picture.trees[ProviderId(host)]
    found = set()
    for way in itertools.product(*([p for p in tree if _could(tree[p], g)] for g in ask.groups)):
        providers = {group.id: provider for group, provider in zip(ask.groups, way, strict=True)}
        if allowed(picture, ask, Choice(HostId(host), host, "c", (), providers)):  # type: ignore[arg-type]
            found.add(way)
    return found


def random_cloud(dice: random.Random) -> tuple[ProviderCache, list[str]]:
    cloud, names = Cloud(), [f"h{n}" for n in range(dice.randint(1, 5))]
    for host in names:
        cloud.host(host, dice.randint(1, 3))
        places: list[str | None] = [None]
        for number in range(dice.randint(0, 5)):
            traits = tuple(t for t in (A, B, NORMAL, DIRECT) if dice.random() < 0.6)
            classes = {c: dice.choice((1, 2, 3, 4)) for c in (EGR, PPS, "VCPU") if dice.random() < 0.6}
            step = dice.choice((1, 1, 1, 2))
            name = f"{host}:{number}"
            cloud.device(
                host, name, classes, below=dice.choice(places), traits=traits, used=dice.choice((0, 0, 1)), step=step
            )
            places.append(name)
    return cloud.picture(), names


def random_ask(dice: random.Random) -> Ask:
    groups = []
    for number in range(dice.randint(1, 4)):
        resources = {c: dice.choice((1, 1, 2)) for c in (EGR, PPS, "VCPU") if dice.random() < 0.45}
        required = tuple(t for t in (A, NORMAL) if dice.random() < 0.4)
        forbidden = tuple(t for t in (B, DIRECT) if dice.random() < 0.1)
        if not resources and not required:
            resources = {EGR: 1}
        groups.append(RequestGroup(f"g{number}", resources, required, forbidden))
    ids = [group.id for group in groups]
    together = (tuple(dice.sample(ids, dice.randint(2, len(ids)))),) if len(ids) > 1 and dice.random() < 0.5 else ()
    policy = "isolate" if dice.random() < 0.4 else "none"
    cpus = {"VCPU": dice.randint(1, 2)}
    return Ask(
        resources=cpus, groups=tuple(groups), same_subtree=together, group_policy=policy, seed=dice.getrandbits(32)
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_search_equals_exhaustive_search(seed: int) -> None:
    """Hosts that will do, hosts refused and every offered way, on random fleets: 100 % agreement."""
    dice = random.Random(seed)
    met = {"some": 0, "none": 0}
    for _ in range(150):
        picture, hosts = random_cloud(dice)
        ask = random_ask(dice)
        able = {host for host in hosts if oracle(picture, ask, host)}
        verdict = rank(ask, picture.world(), Profile(placed=32))
        assert {choice.name for choice in verdict.best} == able
        assert verdict.ledger.willing == len(able)
        assert sum(verdict.ledger.counts.values()) == len(hosts) - len(able)
        for choice in verdict.best:
            assert tuple(choice.providers[group.id] for group in ask.groups) in oracle(picture, ask, choice.name)
        met["some" if able else "none"] += 1
    assert min(met.values()) > 20, met
