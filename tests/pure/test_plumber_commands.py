"""How many programs a host runs for networks that it serves already."""

from pathlib import Path

import msgspec
import pytest

from moorage.drivers.libvirt import plumber
from moorage.drivers.libvirt.dhcp import METADATA_V6
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
    held = [
        {
            "ifname": f"mrg{number}",
            "addr_info": [
                {"local": f"10.1.{number}.1", "prefixlen": 24},
                {"local": f"fd00:{number}::1", "prefixlen": 64},
                {"local": METADATA_V6, "prefixlen": 64},
            ],
        }
        for number in range(networks)
    ]
    asked: list[tuple[str, ...]] = []

    async def run(*words: str, code: str) -> str:
        asked.append(words)
        return msgspec.json.encode(held).decode()

    monkeypatch.setattr(plumber, "run", run)
    monkeypatch.setattr(plumber, "take_no_advertisements", lambda bridge: True)
    await plumber.Plumber(tmp_path, Libvirt(dhcp=True, metadata_url="http://127.0.0.1:1")).serve(served)
    assert asked == [("ip", "-json", "address", "show")]
