"""How many programs a host runs for networks that it serves already."""

from pathlib import Path

import msgspec
import pytest

from moorage.drivers.libvirt import bridge_tables, plumber, route_tables
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.guest import VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, SubnetId


@pytest.mark.parametrize("networks", [10, 50, 250])
async def test_networks_that_have_their_addresses_need_one_program_for_all(
    networks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = {
        f"mrg{number}": [
            VifData(
                PortId(f"p{number}"), NetworkId(f"n{number}"), "fa:16:3e:00:00:01", "bridge",
                addresses=(
                    VifAddress(f"10.1.{number}.9", SubnetId("4"), f"10.1.{number}.0/24", f"10.1.{number}.1", dhcp=False),
                    VifAddress(f"fd00:{number}::9", SubnetId("6"), f"fd00:{number}::/64", f"fd00:{number}::1", dhcp=False),
                ),
            )
        ]
        for number in range(networks)
    }  # fmt: skip
    asked: list[tuple[str, ...]] = []
    held: list[dict[str, object]] = [{"ifname": bridge, "addr_info": []} for bridge in served]

    async def run(*words: str, code: str, given: str = "") -> str:
        asked.append(words)
        if words == ("ip", "-json", "address", "show"):
            return msgspec.json.encode(held).decode()
        for line in given.splitlines():
            if line.startswith("address replace"):
                address, _, bridge = line.split()[2:5]
                local, _, length = address.partition("/")
                own = next(each for each in held if each["ifname"] == bridge)["addr_info"]
                assert isinstance(own, list)
                own.append({"local": local, "prefixlen": int(length)})
        return "[]"

    for module in (plumber, bridge_tables, route_tables):
        monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(plumber, "set_up_device", lambda bridge: True)
    made = plumber.Plumber(tmp_path, Libvirt(dhcp=True, metadata_url="http://127.0.0.1:1"))
    await made.serve(served)
    services = {(tmp_path / "networks" / bridge / "service").read_text() for bridge in served}
    assert len(services) == networks, "each has an address of its own"
    asked.clear()
    await made.serve(served)
    assert asked == [("ip", "-json", "address", "show")]
