"""Trial claims: each reduces what the next one can have, and does not change the provider cache."""

from functools import partial

from tests.helpers.world_builder import Cloud

from moorage.model.ids import ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask, GroupAsk, NicRequirement
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial

SMALL = {"VCPU": 2, "MEMORY_MB": 512}
BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
judge = partial(rank, profile=Profile())


def placed(cloud: Cloud, *asks: Ask, disabled: str = "") -> list[str]:
    world = cloud.world()
    before = {name: column.tolist() for name, column in world.free.items()}
    trial = Trial(world, judge)
    trial.disable(disabled)
    found = [trial.place(each) for each in asks]
    assert {name: column.tolist() for name, column in world.free.items()} == before
    assert [judge(asks[0], world).ledger.willing] == [Trial(world, judge).place(asks[0]).ledger.willing]
    return [each.best[0].name if each.best else each.fault() for each in found]


def test_compute_runs_out() -> None:
    cloud = Cloud().host("a", 4).host("b", 2)
    ask = Ask(resources=SMALL)
    assert sorted(placed(cloud, ask, ask, ask)) == ["a", "a", "b"]
    assert placed(cloud, *[ask] * 4)[-1].startswith("No valid host was found. 2 hosts: not enough")
    assert placed(cloud, ask, ask, disabled="a") == ["b", placed(cloud, ask, ask, disabled="a")[1]]
    assert "disabled" in placed(cloud, ask, ask, disabled="a")[1]


def test_addresses_and_bandwidth_run_out() -> None:
    cloud = Cloud().host("a", 64, 65536, wired=("s",)).segment("s", 2)
    routed = Ask(resources=SMALL, nics=(NicRequirement("n", (ProviderId("s"),)),))
    assert placed(cloud, routed, routed, routed)[:2] == ["a", "a"]
    assert "no free address" in placed(cloud, routed, routed, routed)[2]
    cloud = Cloud().host("a", 64, 65536).device("a", "nic", {BANDWIDTH: 1000})
    groups = (RequestGroup("p", {BANDWIDTH: 600}, port="p"),)
    assert placed(cloud, Ask(resources=SMALL, groups=groups), Ask(resources=SMALL)) == ["a", "a"]
    assert "guaranteed bandwidth" in placed(cloud, *[Ask(resources=SMALL, groups=groups)] * 2)[1]


def test_a_server_group_is_kept() -> None:
    cloud = Cloud().host("a", 64, 65536).host("b", 64, 65536)
    apart = Ask(resources=SMALL, group=GroupAsk("g", "anti-affinity"))
    assert sorted(placed(cloud, apart, apart)) == ["a", "b"]
    assert "2 hosts" in placed(cloud, apart, apart, apart)[2]
    together = Ask(resources=SMALL, group=GroupAsk("g", "affinity"))
    assert len(set(placed(cloud, together, together, together))) == 1
