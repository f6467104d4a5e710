"""A host does what it was told to do with a volume, its answer is lost, and it is silent for longer than `host_silence_s`."""

import asyncio
from typing import Any

import pytest
from tests.cloud.conftest import Running
from tests.cloud.test_network_cuts import Wires, heard_again, two_hosts, wires  # noqa: F401
from tests.cloud.test_volumes import attach, attached, becomes, detach, disks, ended, held, status, volume
from tests.cloud.test_volumes_swapped import as_service, moves, swap

from moorage_testing.waiting import until


async def told(running: Running, step: str) -> None:
    await until(lambda: any(each == step for _, each in running.told))


async def silent(running: Running, host: str) -> None:
    await until(lambda: running.cloud.region.context.hosts.is_silent(host))


async def test_a_detach_waits_for_its_host_and_goes_forward(two_hosts: Running, wires: Wires) -> None:
    one = await two_hosts.admin.active("one")
    host, disk = one["OS-EXT-SRV-ATTR:host"], await volume(two_hosts)
    await attach(two_hosts, one["id"], disk)
    await ended(two_hosts, one["id"], "attach_volume")
    gate = two_hosts.delay_verb("detach_volume")
    asyncio.get_running_loop().create_task(detach(two_hosts, one["id"], disk))
    await told(two_hosts, "unplug")
    wires.cut.add(host)
    gate.set()
    await silent(two_hosts, host)
    await asyncio.sleep(2)
    assert (await status(two_hosts, disk)) == "detaching"
    await heard_again(two_hosts, wires)
    action = await ended(two_hosts, one["id"], "detach_volume")
    assert action["message"] is None
    assert await attached(two_hosts, one["id"]) == []
    assert disks(two_hosts, one) == []
    assert await status(two_hosts, disk) == "available"


async def test_a_swap_waits_for_its_host_and_goes_forward(two_hosts: Running, wires: Wires) -> None:
    await as_service(two_hosts)
    one = await two_hosts.admin.active("one")
    host, old = one["OS-EXT-SRV-ATTR:host"], await volume(two_hosts)
    await attach(two_hosts, one["id"], old)
    await ended(two_hosts, one["id"], "attach_volume")
    new = await volume(two_hosts)
    await moves(two_hosts, old)
    gate = two_hosts.delay_verb("swap_volume")
    assert (await swap(two_hosts, one["id"], old, new)).status_code == 202
    await told(two_hosts, "swap")
    wires.cut.add(host)
    gate.set()
    await silent(two_hosts, host)
    await asyncio.sleep(2)
    assert {each["status"] for each in await held(two_hosts)} == {"attached"}
    await heard_again(two_hosts, wires)
    action = await ended(two_hosts, one["id"], "swap_volume")
    assert action["message"] is None
    assert disks(two_hosts, one) == [new]
    assert [each["volumeId"] for each in await attached(two_hosts, one["id"])] == [new]
    assert (await status(two_hosts, old), await status(two_hosts, new)) == ("available", "in-use")
