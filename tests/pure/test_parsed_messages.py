"""What a host is told is parsed there: an order with a line break, a zone or a path in it is refused by its code, whoever sent it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.helpers.agent_host import HOST, SERVER, command_context, guest, place

from moorage.bus.guest_payloads import CacheImage, OfSnapshot
from moorage.bus.memory import MemoryBus
from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.model.errors import HostFailed
from moorage.model.guest import VifAddress, VifData, VolumeDisk
from moorage.model.ids import ImageId, NetworkId, PortId, ServerId, SubnetId
from moorage.model.parsed_messages import is_well_formed, refuse_malformed
from moorage.model.port_description import AllowedAddresses, FilterRule, PortDescription, PortFilter
from moorage.model.route_description import ExternalNetwork, FloatingAddress, RoutedSubnet, RouterDescription

GOOD = VifAddress(
    "10.0.0.5", SubnetId("s"), "10.0.0.0/24", "10.0.0.1", ("1.1.1.1", "fd00::53"), (("10.9.0.0/16", "10.0.0.9"),)
)
SCRIPT = "\ndhcp-script=/tmp/x"
BAD_ADDRESSES: dict[str, Any] = {
    "address": "10.0.0.5\nfa:16:3e:00:00:02,10.0.0.6",
    "cidr": f"10.0.0.0/24{SCRIPT}",
    "gateway": f"10.0.0.1{SCRIPT}",
    "dns": (f"1.1.1.1{SCRIPT}",),
    "routes": (("10.9.0.0/16", f"10.0.0.9{SCRIPT}"),),
    "subnet": "../s",
}
BAD_VIFS: dict[str, Any] = {
    "port": "../../etc",
    "network": "a/b",
    "mac": "fa:16:3e:00:00:01\n",
    "physical_network": "physnet1\n",
    "vif_details": {"bridge_name": "br0 type dummy"},
    "mtu": -1,
}


def a_vif(**more: Any) -> VifData:
    return msgspec.structs.replace(
        VifData(PortId("p"), NetworkId("n"), "fa:16:3e:00:00:01", "bridge", addresses=(GOOD,)), **more
    )


def test_what_is_right_is_taken() -> None:
    disk = VolumeDisk("v", {"driver_volume_type": "local", "data": {"device_path": "/dev/vg/v", "format": "raw"}})
    refuse_malformed(msgspec.structs.replace(guest(), vifs=(a_vif(),), volumes=(disk,), image=ImageId("an-image")))
    refuse_malformed(VifData(PortId(""), NetworkId(""), ""))


@pytest.mark.parametrize("field", BAD_ADDRESSES)
def test_an_address_is_an_address(field: str) -> None:
    wrong = msgspec.structs.replace(GOOD, **{field: BAD_ADDRESSES[field]})
    with pytest.raises(HostFailed) as refused:
        refuse_malformed(msgspec.structs.replace(guest(), vifs=(a_vif(addresses=(wrong,)),)))
    assert refused.value.code == "vif_not_plugged"
    assert "dhcp-script" not in refused.value.public


def test_an_address_has_no_zone() -> None:
    with pytest.raises(HostFailed):
        refuse_malformed(a_vif(addresses=(VifAddress("fe80::1%eth0"),)))


@pytest.mark.parametrize("field", BAD_VIFS)
def test_a_vif_is_one(field: str) -> None:
    with pytest.raises(HostFailed) as refused:
        refuse_malformed(a_vif(**{field: BAD_VIFS[field]}))
    assert refused.value.code == "vif_not_plugged"


@pytest.mark.parametrize("path", ["relative", "/dev/../etc/shadow", "/dev/x\n", "/" + "x" * 5_000])
@pytest.mark.parametrize("inside", [True, False])
def test_a_path_is_one(path: str, inside: bool) -> None:
    data: dict[str, Any] = {"device_path": path}
    with pytest.raises(HostFailed) as refused:
        refuse_malformed(VolumeDisk("v", {"data": data} if inside else data))
    assert refused.value.code == "volume_unreachable"


@pytest.mark.parametrize("image", ["../secret", "a/b", "a\nb", ".hidden", "a..b"])
def test_an_id_is_no_path(image: str) -> None:
    for message in (CacheImage(image), OfSnapshot(ImageId(image)), msgspec.structs.replace(guest(), kernel=image)):
        with pytest.raises(HostFailed) as refused:
            refuse_malformed(message)
        assert refused.value.code == "garbled"


async def test_a_host_refuses_such_an_order_and_does_nothing(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        wrong = msgspec.structs.replace(GOOD, gateway=f"10.0.0.1{SCRIPT}")
        with pytest.raises(HostFailed) as refused:
            await at.caller.start_guest(
                HOST, command_context(), msgspec.structs.replace(guest(), vifs=(a_vif(addresses=(wrong,)),))
            )
        assert refused.value.code == "vif_not_plugged"
        with pytest.raises(HostFailed) as odd:
            await at.caller.power_off(HOST, command_context(2), ServerId("../../x"))
        assert odd.value.code == "garbled"
        assert await at.host.driver.guests() == {}
        await at.caller.start_guest(HOST, command_context(3), guest())
        assert SERVER in await at.host.driver.guests()


def test_descriptions_of_ports_that_are_malformed_are_not_taken(tmp_path: Path) -> None:
    described = DescribedPorts(tmp_path)
    external = ExternalNetwork(NetworkId("e"), "physnet1", "203.0.113.0/24", "203.0.113.1")
    good = PortDescription(PortId("p"), 1, NetworkId("n"), "fa:16:3e:00:00:01")
    assert described.take((good,), (), None, 1)
    bad = (
        PortFilter((AllowedAddresses("fa:16:3e:00:00:01", ("10.0.0.0/8 } ; drop",)),)),
        PortFilter(rules=(FilterRule("ingress", 4, prefix="0.0.0.0/0 accept\n"),)),
    )
    others = [msgspec.structs.replace(good, version=2, filter=each) for each in bad]
    subnet = RoutedSubnet(NetworkId("n"), "10.0.0.0/24 dev eth0", "10.0.0.1")
    others.append(msgspec.structs.replace(good, version=2, routers=(RouterDescription("r", (subnet,)),)))
    others.append(
        msgspec.structs.replace(good, version=2, floating=(FloatingAddress("203.0.113.5", "10.0.0.5\n", external),))
    )
    for each in others:
        assert not is_well_formed(each)
        assert not described.take((each,), (), None, 2)
    assert described.ports[PortId("p")] == good
