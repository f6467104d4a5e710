"""`moorage up --driver libvirt`: a real guest reads its metadata from the service, and has an address of the outside while it runs."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.hypervisor.test_up import HOST, REAL, USER_DATA, log_in

from moorage.main.local_cluster.ports import free_ports
from moorage_testing.api_user import PATIENCE_S, Person
from moorage_testing.hypervisor.guests import act, upload
from moorage_testing.hypervisor.guests import until_logged as says
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.stations import Station
from moorage_testing.up_process import UpProcess

pytestmark = pytest.mark.hypervisor

OUTSIDE = '[libvirt]\nexternal_devices = { physnet1 = "st-outside" }\n'
PINGS = 250
FOLLOWS_WITHIN_S = 60.0
"""On a machine that is busy with other guests; idle it is one or two."""


async def made(person: Person, noun: str, **said: Any) -> dict[str, Any]:
    reply = await person.network("POST", f"/{noun.replace('_', '-')}s", {noun: said})
    assert reply.status_code == 201, reply.text
    found: dict[str, Any] = reply.json()[noun]
    return found


async def put(person: Person, path: str, body: Any) -> None:
    reply = await person.network("PUT", f"/{path}", body)
    assert reply.is_success, reply.text


async def answers_outside(outside: Station, address: str, *, so: bool) -> float:
    """After how many seconds it does, or no longer does."""
    began = time.monotonic()
    while ((await outside.run("ping", "-c1", "-W1", address)).code == 0) is not so:
        assert time.monotonic() < began + PATIENCE_S
    return time.monotonic() - began


async def test_metadata_and_a_floating_address(tmp_path: Path) -> None:
    up = UpProcess(tmp_path, REAL + OUTSIDE)
    [up.metadata_port] = free_ports(1)
    room = tmp_path / "data" / "hosts" / HOST
    outside = Station("outside", "")
    outside.start()
    outside.call("ip", "address", "add", "203.0.113.1/24", "dev", "eth0")
    await asyncio.to_thread(up.start)
    person = await log_in(up)
    try:
        body = {"imageRef": await upload(person), "flavorRef": "42", "user_data": USER_DATA}
        private = await person.id_of("network", "private")
        server = (await person.active("first", **body, networks=[{"uuid": private}]))["id"]
        said = await says(person, server, "GUEST: ready ")
        for times in (2, 3):  # it gives up after some seconds, which a busy machine may need to start who answers
            if "GUEST: metadata {" not in said:
                await act(person, server, "ACTIVE", reboot={"type": "HARD"})
                said = await says(person, server, "GUEST: ready ", times)
        assert "GUEST: ready first " in said
        assert "GUEST: config-drive" not in said, "it did not ask for one"
        assert "GUEST: metadata {" in said
        assert server in said
        assert "GUEST: user data ran" in said

        flat = {"provider:network_type": "flat", "provider:physical_network": "physnet1"}
        public = (await made(person, "network", name="public", **{"router:external": True}, **flat))["id"]
        await made(person, "subnet", network_id=public, cidr="203.0.113.0/24", ip_version=4, enable_dhcp=False)
        router = (await made(person, "router", name="r", external_gateway_info={"network_id": public}))["id"]
        subnets = (await person.network("GET", "/subnets", network_id=private)).json()["subnets"]
        await put(person, f"routers/{router}/add_router_interface", {"subnet_id": subnets[0]["id"]})
        [port] = (await person.network("GET", "/ports", device_id=server)).json()["ports"]
        rule = {"security_group_id": port["security_groups"][0], "direction": "ingress", "protocol": "icmp"}
        await made(person, "security_group_rule", **rule)
        floating = await made(person, "floatingip", floating_network_id=public, port_id=port["id"])
        address, place = floating["floating_ip_address"], f"floatingips/{floating['id']}"
        took = {"associated": await answers_outside(outside, address, so=True)}
        await put(person, place, {"floatingip": {"port_id": None}})
        took["disassociated"] = await answers_outside(outside, address, so=False)
        await put(person, place, {"floatingip": {"port_id": port["id"]}})
        took["again"] = await answers_outside(outside, address, so=True)
        assert max(took.values()) < FOLLOWS_WITHIN_S, took

        # The agent is killed and comes again; no packet is lost.
        pinging = asyncio.create_task(outside.run("ping", "-i", "0.05", "-c", str(PINGS), "-q", address))
        assert await asyncio.to_thread(up.end, signal.SIGKILL) == -signal.SIGKILL
        await asyncio.to_thread(up.start)
        await person.http.aclose()
        person = await log_in(up)
        assert f"{PINGS} received" in (await pinging).out
        assert (await person.settled(server))["status"] == "ACTIVE"
        await answers_outside(outside, address, so=True)

        await person.delete(server)
        await person.gone(server)
        assert leftovers(room, inside=("env",)) == []
    finally:
        await person.http.aclose()
        await asyncio.to_thread(up.give_up, HOST)
        outside.stop()
