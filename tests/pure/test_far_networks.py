"""Which networks of its guests' routers a host makes without having guests of them."""

import pytest

from moorage.drivers.libvirt import far_networks as module
from moorage.drivers.libvirt.far_networks import FarNetwork, far_networks, routes_into_tunnels
from moorage.drivers.libvirt.tunnels import gateway_mac, routed_mac
from moorage.model.guest import VifData
from moorage.model.ids import NetworkId, PortId
from moorage.model.port_description import PortDescription
from moorage.model.route_description import RoutedSubnet, RouterDescription

A, B, C, D = (NetworkId(each * 8) for each in "abcd")
PORT = PortId("port")
HERE = [VifData(PORT, A, "fa:16:3e:00:00:01", "bridge", mtu=1400, segmentation_id=7)]


def a_router(*subnets: tuple[NetworkId, int | None]) -> RouterDescription:
    return RouterDescription(
        "router", tuple(RoutedSubnet(network, "10.0.0.0/24", "10.0.0.1", number, 1450) for network, number in subnets)
    )


def found(router: RouterDescription, *inhabited: NetworkId) -> list[FarNetwork]:
    return far_networks(HERE, {PORT: PortDescription(PORT, 1, routers=(router,))}, inhabited)


def test_the_others_of_the_router_where_somebody_is() -> None:
    router = a_router((A, 7), (B, 8), (C, None), (D, 9))
    assert found(router, A, B, C) == [FarNetwork(B, 8, 1450)]
    assert found(router, A) == []
    assert found(a_router((A, 7)), A, B) == []
    assert far_networks(HERE, {}, (A, B)) == []
    assert found(router, B, D)[0].bridge == "mrgbbbbbbbb"


def test_they_are_so_many_at_the_most(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "FAR_MAX", 1)
    assert len(found(a_router((A, 7), (B, 8), (D, 9)), B, D)) == 1
    assert "2 other networks, of which 1" in caplog.text


def test_a_router_routes_into_tunnels_that_are_in_tunnels() -> None:
    assert routes_into_tunnels(a_router((A, 7), (B, 8)))
    assert not routes_into_tunnels(a_router((A, 7), (A, 7)))
    assert not routes_into_tunnels(a_router((A, 7), (B, None)))


def test_no_host_has_the_mac_of_a_gateway() -> None:
    assert routed_mac("one") != routed_mac("two")
    assert routed_mac("one")[:8] != gateway_mac("one")[:8]
