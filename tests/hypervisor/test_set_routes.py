"""Real guests of several hosts behind one router: networks that reach one another, and addresses of the outside in a live migration."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.hypervisor.test_driver_real import call
from tests.hypervisor.test_guest_cloud import answers_outside, made, put
from tests.hypervisor.test_set import host_of, nothing_left

from moorage.main.local_cluster.cluster import TrialSet
from moorage_testing.api_user import Person
from moorage_testing.hypervisor.guests import (
    PINGS,
    Pinging,
    act,
    allow_ping,
    answers_of,
    longest_loss_s,
    upload,
    user_data,
)
from moorage_testing.hypervisor.guests import until_logged as says
from moorage_testing.hypervisor.stations import Station

pytestmark = pytest.mark.hypervisor

HERE, NEAR = "host1", "host2"
SILENT_MAX_S = 30.0
"""Of a guest that is emulated, on a machine that may do much else; measured: docs/operating/real-machines.md."""


ROUTER_V6 = "2001:db8::2"
SIX = """( while :; do ping -6 {address} 2>&1 | sed -n 's/.*seq=\\([0-9]*\\) .*/GUEST: six \\1/p' >/dev/console; sleep 1; done ) &
"""
SLAAC = {"ip_version": 6, "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"}


async def network_behind(person: Person, router: str, cidr: str) -> str:
    network = str((await made(person, "network", name=f"net-{cidr[:12]}"))["id"])
    family = SLAAC if ":" in cidr else {"ip_version": 4}
    subnet = (await made(person, "subnet", network_id=network, cidr=cidr, **family))["id"]
    await put(person, f"routers/{router}/add_router_interface", {"subnet_id": subnet})
    return network


async def boot(
    person: Person, name: str, host: str, image: str, networks: tuple[str, str], **more: Any
) -> tuple[str, dict[str, Any], str]:
    """The server, its port in the first network, and its address in the second."""
    body: dict[str, Any] = {"imageRef": image, "flavorRef": "42", "availability_zone": f"nova:{host}"}
    body["networks"] = [{"uuid": each} for each in networks]
    body["config_drive"] = True  # a busy machine may be slower than the guest is patient
    server = str((await person.active(name, **body, **more))["id"])
    found = (await person.network("GET", "/ports", device_id=server)).json()["ports"]
    ports = {each["network_id"]: each for each in found}
    return server, ports[networks[0]], ports[networks[1]]["fixed_ips"][0]["ip_address"]


async def test_routed_and_moved(tmp_path: Path, record_property: Any) -> None:
    trial = TrialSet(tmp_path, hosts=2, apis=1, conductors=1, cells=1, real_guests=True)
    await asyncio.to_thread(trial.start)
    assert trial.real is not None
    outside = Station("outside", "outer", inside=("ip", "netns", "exec", trial.real.prefix))
    outside.start()
    outside.call("ip", "address", "add", "203.0.113.1/24", "dev", "eth0")
    outside.call("ip", "address", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
    outside.call("ip", "-6", "route", "add", "2001:db8:30::/44", "via", ROUTER_V6)
    try:
        async with Person(trial.config) as person:
            await _routed(trial, person, outside, record_property)
    finally:
        outside.stop()
        await asyncio.to_thread(trial.stop)
    assert trial.real.prefix not in await asyncio.to_thread(call, "ip", "netns")


async def _routed(trial: TrialSet, person: Person, outside: Station, record_property: Any) -> None:
    assert trial.real is not None
    image = await upload(person)
    await allow_ping(person)
    flat = {"provider:network_type": "flat", "provider:physical_network": "physnet1"}
    public = (await made(person, "network", name="public", **{"router:external": True}, **flat))["id"]
    pool = [{"start": "203.0.113.10", "end": "203.0.113.200"}]
    await made(
        person,
        "subnet",
        network_id=public,
        cidr="203.0.113.0/24",
        ip_version=4,
        enable_dhcp=False,
        allocation_pools=pool,
    )
    subnet = {"network_id": public, "cidr": "2001:db8::/64", "ip_version": 6, "enable_dhcp": False}
    await made(person, "subnet", **subnet)
    rule = {"direction": "ingress", "protocol": "ipv6-icmp", "ethertype": "IPv6"}
    groups = (await person.network("GET", "/security-groups", name="default")).json()["security_groups"]
    for each in groups:
        await made(person, "security_group_rule", security_group_id=each["id"], **rule)
    router = (await made(person, "router", name="r", external_gateway_info={"network_id": public}))["id"]
    [gateway] = (await person.network("GET", "/ports", device_id=router)).json()["ports"]
    assert ROUTER_V6 in {each["ip_address"] for each in gateway["fixed_ips"]}
    first, second, first_v6, second_v6 = [
        await network_behind(person, router, each)
        for each in ("10.31.0.0/24", "10.32.0.0/24", "2001:db8:31::/64", "2001:db8:32::/64")
    ]
    moves, port, six = await boot(person, "moves", HERE, image, (first, first_v6))
    fixed = port["fixed_ips"][0]["ip_address"]
    script = user_data(PINGS.format(address=fixed) + SIX.format(address=six))
    stays, _, other_six = await boot(person, "stays", NEAR, image, (second, second_v6), user_data=script)
    await answers_of(person, stays, 10)  # from another network on another host
    await says(person, stays, "GUEST: six 5")
    for each in (six, other_six):
        await answers_outside(outside, each, so=True)

    floating = await made(person, "floatingip", floating_network_id=public, port_id=port["id"])
    address = floating["floating_ip_address"]
    await answers_outside(outside, address, so=True)
    pinging, pinging_v6 = (Pinging(each, ("ip", "netns", "exec", outside.name)) for each in (address, six))
    await act(person, moves, "ACTIVE", **{"os-migrateLive": {"host": NEAR, "block_migration": "auto"}})
    assert await host_of(person, moves) == NEAR
    await answers_outside(outside, address, so=True)
    await answers_outside(outside, six, so=True)
    for name, each in (("silent_s", pinging), ("silent_v6_s", pinging_v6)):
        answered, lost = await asyncio.to_thread(each.end)
        silent_s = longest_loss_s(lost)
        record_property(name, silent_s)
        print(f"silent for {silent_s:.2f} s; {answered} answers, {len(lost)} lost")  # noqa: T201 - a measure
        assert answered > 10
        assert silent_s <= SILENT_MAX_S
    near = await asyncio.to_thread(call, *trial.real.inside(NEAR), "cat", "/sys/class/net/outside/address")
    assert near.strip() in outside.call("ip", "neigh", "show", address)
    assert address not in await asyncio.to_thread(
        call, *trial.real.inside(HERE), "ip", "address", "show", "dev", "outside"
    )
    await answers_of(person, stays, 10)
    await answers_outside(outside, other_six, so=True)
    assert (await says(person, moves, "GUEST: ready")).count("GUEST: kernel") == 1
    await nothing_left(trial, HERE)

    for each in (moves, stays):
        await person.delete(each)
        await person.gone(each)
    for host in trial.real.names:
        await nothing_left(trial, host)
