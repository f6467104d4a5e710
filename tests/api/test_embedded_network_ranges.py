"""Ranges that no subnet may have: those that Neutron refuses, those that no host can route, and those that an operator forbids."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.embedded_network_cloud import Cloud, cloud, cloud_over

from moorage.main.config import Config, checked
from moorage.main.config_services import NetworkConfig
from moorage.model.errors import Invalid
from moorage_embedded.network.app import NetworkSettings

__all__ = ["cloud"]


async def made(cloud: Cloud, cidr: str, token: str = "member", **said: Any) -> tuple[int, str]:
    network = await cloud.ok("POST", "/networks", {"network": {"name": "n"}}, token=token)
    body = {"network_id": network["network"]["id"], "cidr": cidr, "ip_version": 6 if ":" in cidr else 4, **said}
    answer = await cloud.call("POST", "/subnets", {"subnet": body}, token=token)
    return answer.status_code, answer.json().get("NeutronError", {}).get("message", "")


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "::/0"])
@pytest.mark.parametrize("dhcp", [True, False])
async def test_everything_is_no_range(cloud: Cloud, cidr: str, dhcp: bool) -> None:
    status, message = await made(cloud, cidr, enable_dhcp=dhcp)
    assert (status, message) == (400, "Invalid input for operation: 0 is not allowed as CIDR prefix length.")


@pytest.mark.parametrize(
    ("cidr", "kind"),
    [
        ("127.0.0.0/8", "Loopback"),
        ("126.0.0.0/7", "Loopback"),
        ("224.0.0.0/24", "Multicast"),
        ("192.0.0.0/2", "Multicast"),
        ("224.0.0.0/3", "Multicast"),
        ("ff00::/64", "Multicast"),
        ("fe00::/7", "Multicast"),
    ],
)
async def test_ranges_that_neutron_refuses(cloud: Cloud, cidr: str, kind: str) -> None:
    status, message = await made(cloud, cidr)
    assert (status, message.count(f"{kind} IP subnet is not supported if enable_dhcp is True")) == (400, 1)
    assert (await made(cloud, cidr, enable_dhcp=False))[0] == 400


async def test_ranges_that_begin_with_zero(cloud: Cloud) -> None:
    status, message = await made(cloud, "0.0.0.0/8")
    assert (status, message.count("First IP '0.0.0.0' of network is not supported if enable_dhcp is True.")) == (400, 1)
    assert (await made(cloud, "0.0.0.0/8", enable_dhcp=False))[0] == 400
    status, message = await made(cloud, "::/64", enable_dhcp=False)
    assert (status, message.count("IPv6 subnet '::' is not supported")) == (400, 1)


@pytest.mark.parametrize("cidr", ["169.254.0.0/16", "169.254.169.0/24", "168.0.0.0/6", "fe80::/64"])
async def test_link_local_ranges(cloud: Cloud, cidr: str) -> None:
    status, message = await made(cloud, cidr)
    assert (status, "link-local" in message) == (400, True)


async def test_ranges_that_an_operator_forbids(tmp_path: Path) -> None:
    settings = NetworkSettings(forbidden_ranges=("10.1.0.0/16", "fd00:1::/32"))
    async with cloud_over(f"sqlite:///{tmp_path}/network.db", settings) as cloud:
        for cidr in ("10.1.5.0/24", "10.0.0.0/15", "10.1.0.0/16", "fd00:1:5::/64"):
            status, message = await made(cloud, cidr)
            assert (status, "forbids" in message) == (400, True), cidr
        assert (await made(cloud, "10.2.0.0/16"))[0] == 201
        assert (await made(cloud, "10.1.0.0/16", "admin"))[0] == 201, "whoever runs the cloud knows what it is for"


@pytest.mark.parametrize("wrong", ["10.1.0.0/99", "10.1.0.5/16", "office"])
def test_what_is_no_range_is_refused_at_the_start(wrong: str) -> None:
    with pytest.raises(Invalid, match="forbidden_ranges"):
        checked(Config(network=NetworkConfig(forbidden_ranges=("10.0.0.0/8", wrong))))
