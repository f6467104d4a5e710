"""After a refusal a boot continues on the next host, with the same port and MAC; a host that refused is not tried again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared, Start

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Hosts
from moorage_testing.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOUD = {"compute": Compute(host_deadline_s=600.0)}


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def attempts_of(running: Running, server: str) -> list[dict[str, Any]]:
    answer = (await running.admin.compute("GET", f"/ext/servers/{server}/explain")).json()["explain"]
    found: list[dict[str, Any]] = answer["operations"][0]["attempts"]
    return found


async def port_of(running: Running, server: str) -> dict[str, Any]:
    (port,) = (await running.admin.network("GET", "/ports", device_id=server)).json()["ports"]
    found: dict[str, Any] = port
    return found


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_next_host_gets_the_same_port_after_a_refusal(start: Start, when: Any) -> None:
    async with start(hosts=Hosts(count=3, physical_networks=(("physnet1",),))) as running:
        made = (
            await running.admin.network(
                "POST", "/ports", {"port": {"network_id": await running.admin.id_of("network", "private")}}
            )
        ).json()["port"]
        first = (await running.admin.active("finds-the-first"))["OS-EXT-SRV-ATTR:host"]
        others = {f"host{number}" for number in (1, 2, 3)} - {first}
        for host in others:
            running.dial(host, start_guest=VerbDial(fail_times=10, fail_when=when, says="no space left"))
        server = await running.admin.active("moves-on", networks=[{"port": made["id"]}])
        attempts = await attempts_of(running, server["id"])
        assert server["OS-EXT-SRV-ATTR:host"] == attempts[-1]["host"] == first
        assert all(each["failed"]["step"] == "start_guest" for each in attempts[:-1])
        port = await port_of(running, server["id"])
        assert (port["id"], port["mac_address"], port["binding:host_id"]) == (made["id"], made["mac_address"], first)
        await running.admin.gone(server["id"])
        left = (await running.admin.network("GET", f"/ports/{made['id']}")).json()["port"]
        assert (left["device_id"], left["binding:host_id"], left["fixed_ips"]) == ("", "", made["fixed_ips"])


async def test_a_host_refused_by_the_network_service_gets_no_command(start: Start) -> None:
    """`binding_failed`: the network service's agent on that host is dead (S0.13)."""
    async with start(hosts=Hosts(count=3, physical_networks=(("physnet1",),))) as running:
        network = running.cloud.embedded.network
        assert network is not None
        for host in ("host1", "host2"):
            assert await network.set_host_alive(host, False)
        refused: set[str] = set()
        for number in range(6):
            server = await running.admin.active(f"moves-on-{number}")
            assert server["OS-EXT-SRV-ATTR:host"] == "host3"
            attempts = await attempts_of(running, server["id"])
            refused |= {each["host"] for each in attempts[:-1]}
            assert all(each["failed"]["step"] == "bind_ports" for each in attempts[:-1])
            assert all(
                f"on host {each['host']}: no mechanism of the network service can bind it there" in str(each["failed"])
                for each in attempts[:-1]
            )
        assert refused == {"host1", "host2"}
        for host in refused:
            assert not list((running.config.data / "hosts" / host / "guests").glob("*"))
        assert {host for host, _ in running.told} == {"host3"}


async def test_when_all_hosts_refuse_the_last_reason_is_shown(start: Start) -> None:
    async with start(hosts=Hosts(count=4, physical_networks=(("physnet1",),))) as running:
        running.set_faults_everywhere(start_guest=VerbDial(fail_times=99, says="no space left on the local disk"))
        server = await running.admin.settled(await running.admin.boot("nowhere"))
        assert server["status"] == "ERROR"
        assert "no space left on the local disk" in server["fault"]["message"]
        assert len(await attempts_of(running, server["id"])) == 3
        listed = (await running.admin.compute("GET", "/servers/detail", status="ERROR")).json()["servers"]
        assert [each["id"] for each in listed] == [server["id"]]
        await running.admin.gone(server["id"])


async def test_a_delete_during_a_build_leaves_nothing(running: Running) -> None:
    running.set_faults_everywhere(start_guest=VerbDial(delay_s=1.5))
    servers = [await running.admin.boot(f"never-{number}") for number in range(4)]
    await until(lambda: len([step for _, step in running.commands_once if step == "start_guest"]) == len(servers))
    for each in servers:
        await running.admin.gone(each)
    assert list((running.config.data / "hosts").glob("*/guests/*")) == []


async def test_a_delete_does_not_wait_for_a_slow_host(running: Running) -> None:
    """The host is busy with a start that takes for ever, and gives it up as soon as it hears of the delete."""
    running.set_faults_everywhere(start_guest=VerbDial(fail_times=99, hang="before"))
    servers = [await running.admin.boot(f"never-{number}") for number in range(3)]
    await until(lambda: len([step for _, step in running.commands_once if step == "start_guest"]) == len(servers))
    for each in servers:
        await running.admin.gone(each)  # long before `host_deadline_s`


async def test_a_delete_right_after_the_202(running: Running) -> None:
    for number in range(10):
        server = await running.admin.boot(f"short-lived-{number}")
        await running.admin.delete(server)
        await running.admin.delete(server)
        await running.admin.absent(server)
