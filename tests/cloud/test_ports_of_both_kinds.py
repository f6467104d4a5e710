"""A host cannot distinguish a port made for the server from one of its user (S3.2)."""

from typing import Any

import msgspec
import pytest
from tests.cloud.conftest import Running

from moorage.drivers.simulated_guest import SimulatedGuest

OWN_TO_EACH = {"port", "mac", "addresses", "dns_name"}
"""These name the one port; every other field has to be the same for both kinds, or differ on purpose."""


def interfaces(running: Running, server: str) -> list[dict[str, Any]]:
    """What the server's host was sent for each of its ports."""
    (file,) = running.config.data.glob(f"hosts/*/guests/{server}.json")
    guest = msgspec.json.decode(file.read_bytes(), type=SimulatedGuest)
    return [msgspec.to_builtins(each) for each in guest.spec.vifs]


@pytest.mark.parametrize("network", ["private", "routed"])
async def test_a_guest_sees_no_difference_between_created_and_user_ports(running: Running, network: str) -> None:
    admin = running.admin
    made = await admin.active("ours", networks=network)
    body = {"port": {"network_id": await admin.id_of("network", network)}}
    port = (await admin.network("POST", "/ports", body)).json()["port"]["id"]
    host = made["OS-EXT-SRV-ATTR:host"]
    brought = await admin.active("users", networks=[{"port": port}], availability_zone=f"nova:{host}")
    (ours,), (users,) = interfaces(running, made["id"]), interfaces(running, brought["id"])
    assert users["port"] == port
    assert (ours.pop("preserve_on_delete"), users.pop("preserve_on_delete")) == (False, True)
    assert {name for name in ours if ours[name] != users[name]} == OWN_TO_EACH
    assert ours.keys() == users.keys()
    shapes = [[sorted(address) for address in each["addresses"]] for each in (ours, users)]
    assert shapes[0] == shapes[1]
    for server in (made, brought):
        await admin.gone(server["id"])
    assert (await admin.network("DELETE", f"/ports/{port}")).status_code == 204
