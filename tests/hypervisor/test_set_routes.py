"""Real guests of several hosts behind one router: two networks that reach one another, and a floating address in a live migration."""

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
SETTINGS = "\n[compute]\nhost_deadline_s = 120\n"
SILENT_MAX_S = 30.0
"""Of a guest that is emulated, on a machine that may do much else; measured: docs/operating/real-machines.md."""


async def network_behind(person: Person, router: str, cidr: str) -> str:
    network = str((await made(person, "network", name=f"net-{cidr[:6]}"))["id"])
    subnet = (await made(person, "subnet", network_id=network, cidr=cidr, ip_version=4))["id"]
    await put(person, f"routers/{router}/add_router_interface", {"subnet_id": subnet})
    return network


async def boot(
    person: Person, name: str, host: str, image: str, network: str, **more: Any
) -> tuple[str, dict[str, Any]]:
    """The server, and its port."""
    body: dict[str, Any] = {"imageRef": image, "flavorRef": "42", "availability_zone": f"nova:{host}"}
    body["networks"] = [{"uuid": network}]
    body["config_drive"] = True  # a busy machine may be slower than the guest is patient
    server = str((await person.active(name, **body, **more))["id"])
    [port] = (await person.network("GET", "/ports", device_id=server)).json()["ports"]
    return server, port


async def test_routed_and_moved(tmp_path: Path, record_property: Any) -> None:
    trial = TrialSet(tmp_path, hosts=2, apis=1, conductors=1, cells=1, real_guests=True, settings=SETTINGS)
    await asyncio.to_thread(trial.start)
    assert trial.real is not None
    outside = Station("outside", "outer", inside=("ip", "netns", "exec", trial.real.prefix))
    outside.start()
    outside.call("ip", "address", "add", "203.0.113.1/24", "dev", "eth0")
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
    router = (await made(person, "router", name="r", external_gateway_info={"network_id": public}))["id"]
    first, second = [await network_behind(person, router, each) for each in ("10.31.0.0/24", "10.32.0.0/24")]
    moves, port = await boot(person, "moves", HERE, image, first)
    fixed = port["fixed_ips"][0]["ip_address"]
    stays, _ = await boot(person, "stays", NEAR, image, second, user_data=user_data(PINGS.format(address=fixed)))
    await answers_of(person, stays, 10)  # from another network on another host

    floating = await made(person, "floatingip", floating_network_id=public, port_id=port["id"])
    address = floating["floating_ip_address"]
    await answers_outside(outside, address, so=True)
    pinging = Pinging(address, ("ip", "netns", "exec", outside.name))
    await act(person, moves, "ACTIVE", **{"os-migrateLive": {"host": NEAR, "block_migration": "auto"}})
    assert await host_of(person, moves) == NEAR
    await answers_outside(outside, address, so=True)
    answered, lost = await asyncio.to_thread(pinging.end)
    silent_s = longest_loss_s(lost)
    record_property("silent_s", silent_s)
    print(f"silent for {silent_s:.2f} s; {answered} answers, {len(lost)} lost")  # noqa: T201 - a measure
    assert answered > 10
    assert silent_s <= SILENT_MAX_S
    near = await asyncio.to_thread(call, *trial.real.inside(NEAR), "cat", "/sys/class/net/outside/address")
    assert near.strip() in outside.call("ip", "neigh", "show", address)
    assert address not in await asyncio.to_thread(
        call, *trial.real.inside(HERE), "ip", "address", "show", "dev", "outside"
    )
    await answers_of(person, stays, 10)
    assert (await says(person, moves, "GUEST: ready")).count("GUEST: kernel") == 1
    await nothing_left(trial, HERE)

    for each in (moves, stays):
        await person.delete(each)
        await person.gone(each)
    for host in trial.real.names:
        await nothing_left(trial, host)
