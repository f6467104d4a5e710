"""A port's `resource_request` in both forms, and the `allocation` that answers it."""

import pytest

from moorage.model.errors import Internal
from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.request_groups import RequestGroup, allocation_of, amounts_held, groups_of, providers_in
from moorage.model.world import Ask, Choice
from moorage.placement.claims import amounts_of, portions

SINGLE = {"resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}, "required": ["CUSTOM_PHYSNET_A"]}
MULTI = {
    "request_groups": [
        {"id": "g-bw", "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}, "required": ["CUSTOM_PHYSNET_A"]},
        {"id": "g-pps", "resources": {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 10}, "required": []},
    ],
    "same_subtree": ["g-bw", "g-pps"],
}
DEVICE, AGENT = ProviderId("device"), ProviderId("agent")


def test_the_older_form_is_one_group_named_by_the_port() -> None:
    groups, together = groups_of(SINGLE, "port")
    assert groups == (RequestGroup("port", {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}, ("CUSTOM_PHYSNET_A",), port="port"),)
    assert together == ()
    assert allocation_of(SINGLE, "port", {"port": DEVICE}) == "device"
    assert providers_in(SINGLE, "port", "device") == {"port": DEVICE}


def test_the_newer_form_names_its_groups_and_same_subtrees() -> None:
    groups, together = groups_of(MULTI, "port")
    assert [group.id for group in groups] == ["g-bw", "g-pps"]
    assert together == (("g-bw", "g-pps"),)
    chosen = {"g-bw": DEVICE, "g-pps": AGENT, "another port's": DEVICE}
    allocation = allocation_of(MULTI, "port", chosen)
    assert allocation == {"g-bw": "device", "g-pps": "agent"}
    assert amounts_held(MULTI, "port", allocation) == {
        (DEVICE, "NET_BW_EGR_KILOBIT_PER_SEC"): 1000,
        (AGENT, "NET_PACKET_RATE_KILOPACKET_PER_SEC"): 10,
    }
    with pytest.raises(Internal):
        allocation_of(MULTI, "port", {"g-bw": DEVICE})


def test_a_port_without_a_guarantee_has_no_group_and_no_allocation() -> None:
    assert groups_of(None, "port") == ((), ())
    assert groups_of({}, "port") == ((), ())
    assert allocation_of(None, "port", {}) is None
    assert amounts_held(None, "port", {"g": "x"}) == {}


def test_groups_on_one_provider_are_one_allocation_of_their_sum() -> None:
    groups = tuple(RequestGroup(name, {"NET_BW_EGR_KILOBIT_PER_SEC": 400}) for name in ("a", "b"))
    ask = Ask(resources={"VCPU": 1}, groups=groups)
    choice = Choice(HostId("h"), "h", CellId("c"), (), {"a": DEVICE, "b": DEVICE})
    assert amounts_of(portions(choice, ask)) == {
        (ProviderId("h"), "VCPU"): 1,
        (DEVICE, "NET_BW_EGR_KILOBIT_PER_SEC"): 800,
    }
