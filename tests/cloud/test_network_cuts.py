"""The network connection of one host is cut: messages are lost in both directions, and the host does not know.

Boots go elsewhere, deletes do not wait, and what is left on the host goes when it is heard again (RULES §10).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.bus import subjects
from moorage.bus.messages import read
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Hosts
from moorage_testing.leak_audit import guests_on_disk
from moorage_testing.waiting import PATIENCE_S, until

SILENT_S = 3.0


class Wires:
    """Drops what goes to and comes from the hosts that are cut off; counts what it dropped."""

    def __init__(self, running: Running) -> None:
        self.cut: set[str] = set()
        self.dropped = 0
        self._to = {subjects.to_host(plan.cell, plan.host): plan.host for plan in running.cloud.plans}
        self._publish = running.cloud.region.bus.publish

    async def publish(self, subject: str, payload: bytes) -> None:
        host = self._to.get(subject) or getattr(read(payload), "host", None)
        if host in self.cut:
            self.dropped += 1
            return
        await self._publish(subject, payload)


@pytest.fixture
async def two_hosts(start: Start) -> AsyncIterator[Running]:
    """Of which each does for every server."""
    hosts = Hosts(count=2, beat_s=0.3, physical_networks=(("physnet1",),))
    async with start(compute=Compute(host_silence_s=SILENT_S, host_deadline_s=600.0), hosts=hosts) as running:
        yield running


@pytest.fixture
def wires(two_hosts: Running, monkeypatch: pytest.MonkeyPatch) -> Wires:
    made = Wires(two_hosts)
    monkeypatch.setattr(two_hosts.cloud.region.bus, "publish", made.publish)
    return made


def started(running: Running, server: str, host: str) -> bool:
    return host in guests_on_disk(running.config.data).get(server, [])


async def heard_again(running: Running, wires: Wires) -> None:
    wires.cut.clear()
    caller = running.cloud.region.context.hosts
    await until(lambda: not caller.silent(plan.host for plan in running.cloud.plans))


async def test_boots_are_placed_elsewhere_when_a_command_or_its_answer_is_lost(
    two_hosts: Running, wires: Wires
) -> None:
    admin = two_hosts.admin
    await admin.active("warm")
    two_hosts.set_faults_everywhere(start_guest=VerbDial(delay_s=0.5))
    wires.cut.add("host1")  # not known to be silent yet: orders to it are lost
    lost = await asyncio.gather(*(admin.boot(f"order-lost-{number}") for number in range(4)))
    found = await asyncio.gather(*(admin.settled(each) for each in lost))
    assert {(each["status"], each["OS-EXT-SRV-ATTR:host"]) for each in found} == {("ACTIVE", "host2")}
    assert wires.dropped > 0

    await heard_again(two_hosts, wires)
    carried_out = two_hosts.delay_verb("start_guest", {"host1"})
    two_hosts.commands_once.clear()
    late = await asyncio.gather(*(admin.boot(f"answer-lost-{number}") for number in range(4)))
    await until(lambda: len([step for _, step in two_hosts.commands_once if step == "start_guest"]) >= len(late))
    wires.cut.add("host1")  # it has its orders, and carries them out; nobody hears of it
    carried_out.set()
    found = await asyncio.gather(*(admin.settled(each) for each in late))
    assert {(each["status"], each["OS-EXT-SRV-ATTR:host"]) for each in found} == {("ACTIVE", "host2")}
    moved = [each for each in late if started(two_hosts, each, "host1")]
    await heard_again(two_hosts, wires)
    await until(lambda: not any(started(two_hosts, each, "host1") for each in moved))


async def test_a_delete_does_not_wait_for_an_unreachable_host_that_starts_the_guest(
    two_hosts: Running, wires: Wires
) -> None:
    """Nor for the end of a start that takes for ever."""
    admin = two_hosts.admin
    two_hosts.set_faults_everywhere(start_guest=VerbDial(delay_s=3600.0))
    server = await admin.boot("never")
    await until(lambda: any(step == "start_guest" for _, step in two_hosts.told))
    wires.cut |= {"host1", "host2"}
    loop = asyncio.get_running_loop()
    began = loop.time()
    await admin.gone(server, patience_s=180.0)
    assert loop.time() - began < 180.0, "`host_deadline_s` is 600, the start would take an hour"
    wires.cut.clear()


async def test_a_server_deleted_during_a_network_cut_is_destroyed_afterwards(two_hosts: Running, wires: Wires) -> None:
    admin = two_hosts.admin
    servers = [await admin.active(f"left-{number}") for number in range(3)]
    wires.cut |= {"host1", "host2"}
    await asyncio.gather(*(admin.delete(each["id"]) for each in servers))
    await asyncio.gather(*(admin.absent(each["id"]) for each in servers))
    assert len(guests_on_disk(two_hosts.config.data)) == len(servers)
    await heard_again(two_hosts, wires)
    await until(lambda: guests_on_disk(two_hosts.config.data) == {})
    await asyncio.gather(*(admin.gone(each["id"]) for each in servers))  # what they used goes with their guests


async def test_an_interface_is_not_half_attached_to_a_host_that_is_cut_off(two_hosts: Running, wires: Wires) -> None:
    admin = two_hosts.admin
    server = await admin.active("one-card")
    network = await admin.id_of("network", "private")
    host = server["OS-EXT-SRV-ATTR:host"]
    wires.cut.add(host)
    body: dict[str, Any] = {"interfaceAttachment": {"net_id": network}}
    reply = await admin.compute("POST", f"/servers/{server['id']}/os-interface", body)
    assert reply.status_code >= 400
    ports = await admin.network("GET", "/ports", device_id=server["id"])
    assert len(ports.json()["ports"]) == 2, "the host may have plugged it in: it stays the server's, and is owed"
    await heard_again(two_hosts, wires)
    async with asyncio.timeout(PATIENCE_S):
        while len((await admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await two_hosts.wait_until_unlocked(server["id"])
    reply = await admin.compute("POST", f"/servers/{server['id']}/os-interface", body)
    assert reply.status_code == 200, reply.text
