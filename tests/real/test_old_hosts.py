"""Hosts of level 1 and 2 with an embedded network service and with a real Neutron: one port is made once, whichever process makes it (S0.5 to S0.12)."""

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tests.helpers.clouds_of_both_kinds import Land, Who, land

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.model.network import minted_macs

FLEETS: tuple[tuple[Literal[1, 2, 3], ...], ...] = ((1, 1, 1, 1), (1, 2, 3, 2), (2, 3, 2, 3))


def fail_once(made: Land, *hosts: str) -> None:
    for host in hosts:
        driver = made.cloud.fleet.drivers[host]
        dial = VerbDial(fail_times=1, fail_when="after")
        driver.turn(msgspec.structs.replace(driver.dials, verbs={"start_guest": dial}))


async def boot(who: Who, networks: list[dict[str, str]]) -> Any:
    flavor = (await who.ok("compute", "GET", "/flavors"))["flavors"][0]["id"]
    order = {"name": "a", "imageRef": await who.image(), "flavorRef": flavor, "networks": networks}
    made = await who.ok("compute", "POST", "/servers", {"server": order})
    shown = await who.settled(made["server"]["id"])
    assert shown["status"] == "ACTIVE", shown.get("fault")
    return shown


@pytest.mark.parametrize("levels", FLEETS)
@pytest.mark.parametrize("kind", ["embedded", pytest.param("real", marks=pytest.mark.real)])
async def test_ports_are_handed_on_and_released(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, levels: tuple[Literal[1, 2, 3], ...]
) -> None:
    stack = request.getfixturevalue("real_stack") if kind == "real" else None
    async with land(tmp_path, stack, hosts=Hosts(count=4, levels=levels)) as made:
        who = await made.person()
        network = (await who.ok("network", "POST", "/networks", {"network": {"name": "mine"}}))["network"]["id"]
        subnet = {"network_id": network, "ip_version": 4, "cidr": "10.44.0.0/24"}
        await who.ok("network", "POST", "/subnets", {"subnet": subnet})
        brought = (await who.ok("network", "POST", "/ports", {"port": {"network_id": network}}))["port"]
        fail_once(made, "host1", "host3")  # in either cell, so that the third attempt at the latest works
        server = await boot(who, [{"uuid": network}, {"port": brought["id"]}])
        host = (await made.admin.ok("compute", "GET", f"/servers/{server['id']}"))["server"]["OS-EXT-SRV-ATTR:host"]
        ports = {
            port["id"]: port for port in (await made.admin.ok("network", "GET", "/ports", network_id=network))["ports"]
        }
        mine = [port for port in ports.values() if port["mac_address"] in minted_macs(server["id"])]
        assert [(port["device_id"], port["binding:host_id"]) for port in mine] == [(server["id"], host)]
        taken = ports[brought["id"]]
        assert (taken["device_id"], taken["binding:host_id"]) == (server["id"], host)
        assert taken["mac_address"] == brought["mac_address"]
        on_it = [port for port in ports.values() if port["device_id"] == server["id"]]
        assert len(on_it) == 2, "whatever hosts tried, no port is there twice"
        shown = {address["addr"] for address in server["addresses"]["mine"]}
        assert shown == {port["fixed_ips"][0]["ip_address"] for port in on_it}
        await who.delete(server["id"])
        left = (await made.admin.ok("network", "GET", "/ports", network_id=network))["ports"]
        assert not [port for port in left if port["mac_address"] in minted_macs(server["id"])]
        back = next(port for port in left if port["id"] == brought["id"])
        assert (back["device_id"], back["device_owner"], back["binding:host_id"]) == ("", "", "")
        assert back["fixed_ips"] == brought["fixed_ips"]
