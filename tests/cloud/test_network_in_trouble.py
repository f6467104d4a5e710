"""A network service that is slow, fails, answers late or loses replies: operations wait, or fail with the cause; nothing leaks (N19)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.cloud_behind_proxy import CALL_S, CloudBehindProxy, cloud_behind_proxy

from moorage.cli import status
from moorage.clients.circuit_breaker import FAILURES_MAX
from moorage.operations.boot import boot
from moorage.operations.gate_watch import GateWatch
from moorage_testing.api_user import Person
from moorage_testing.fault_proxy import KINDS, ProxyFault
from moorage_testing.waiting import until

LATE_S = 1.2 * CALL_S
MAKE, BIND, DELETE, LIST = ("POST", "/ports"), ("PUT", "/ports/"), ("DELETE", "/ports/"), ("GET", "/ports[?]device_id")
FOR_EVER = 1_000_000
RETRY_AFTER_S = 3


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[CloudBehindProxy]:
    async with cloud_behind_proxy(tmp_path / "data") as found:
        yield found


def trouble(kind: str, method: str, path: str, times: int = 1) -> ProxyFault:
    return ProxyFault(kind, method, path, times, delay_s=LATE_S, status=504)  # type: ignore[arg-type]


async def waiting_of(behind: CloudBehindProxy, server: str) -> str:
    """What people are told that the server's open operation waits for."""
    async with asyncio.timeout(180):
        while True:
            reply = await behind.admin.compute("GET", "/ext/operations", server=server, status="open")
            if answer := [each["waiting"] for each in reply.json()["operations"] if each["waiting"]]:
                return str(answer[0])
            await asyncio.sleep(0.1)


async def insisted(admin: Person, name: str, networks: Any) -> str:
    """Asked again for as long as the API says that it cannot look at the ports now."""
    while True:
        reply = await admin.ask_boot(name, networks=networks)
        if reply.status_code == 202:
            return str(reply.json()["server"]["id"])
        assert reply.status_code == 503, reply.text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_boot_and_a_delete_survive_network_failures(behind: CloudBehindProxy, kind: str) -> None:
    """Every call of a boot and of a delete goes wrong, the first two times that it is made."""
    met = [behind.proxy.add_fault(trouble(kind, *call, times=2)) for call in (MAKE, BIND, DELETE, LIST)]
    server = await behind.admin.active("comes-through")
    ports = (await behind.admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]
    assert [port["binding:host_id"] for port in ports] == [server["OS-EXT-SRV-ATTR:host"]]
    await behind.admin.gone(server["id"])
    assert all(each.fired for each in met), [each.fired for each in met]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_attach_and_a_detach_survive_network_failures(behind: CloudBehindProxy, kind: str) -> None:
    """Every call of an attach and of a detach goes wrong, the first time that it is made; the answer may be that it takes longer."""
    admin = behind.admin
    server = str((await admin.active("two-cards"))["id"])
    body = {"interfaceAttachment": {"net_id": await admin.id_of("network", "private")}}
    met = [behind.proxy.add_fault(trouble(kind, *call)) for call in (MAKE, BIND)]
    reply = await admin.compute("POST", f"/servers/{server}/os-interface", body)
    assert reply.status_code == 200, reply.text
    port = reply.json()["interfaceAttachment"]["port_id"]
    assert [each.fired for each in met] == [1, 1]
    await behind.nothing_leaked()
    met = [behind.proxy.add_fault(trouble(kind, "DELETE", f"/ports/{port}"))]
    reply = await admin.compute("DELETE", f"/servers/{server}/os-interface/{port}")
    assert reply.status_code == 202, reply.text
    await until(lambda: met[0].fired == 1)
    seen = await behind.nothing_leaked()
    assert port not in {each["id"] for each in seen.ports[server]}
    await admin.gone(server)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_boots_and_deletes_during_many_failures_leave_nothing(behind: CloudBehindProxy, seed: int) -> None:
    """All kinds of servers, a third of all calls upset, half of the servers deleted while they are built."""
    admin = behind.admin
    private, routed = await admin.id_of("network", "private"), await admin.id_of("network", "routed")
    mine = [
        (await admin.network("POST", "/ports", {"port": {"network_id": private, "name": f"mine-{number}"}})).json()
        for number in range(4)
    ]
    before = {each["port"]["id"]: each["port"]["fixed_ips"] for each in mine}
    shapes: list[Any] = [
        [{"uuid": private}],
        [{"uuid": routed}],
        [{"uuid": private}, {"uuid": private}],
        [{"uuid": private}, {"uuid": routed}],
    ]
    asked = [shapes[number % len(shapes)] for number in range(12)] + [[{"port": port}] for port in before]
    await asyncio.gather(admin.id_of("image", "tiny"), admin.id_of("flavor", "m1.nano"))
    met = behind.proxy.fail_randomly(seed, 0.33, LATE_S)
    servers = await asyncio.gather(*(insisted(admin, f"s{n}", networks) for n, networks in enumerate(asked)))

    async def life(number: int, server: str) -> str:
        if number % 2:
            await admin.gone(server)
            return "gone"
        found = await admin.settled(server)
        return str(found["status"]) + found.get("fault", {}).get("message", "")

    ends = await asyncio.gather(*(life(number, server) for number, server in enumerate(servers)))
    assert Counter(ends) == {"gone": 8, "ACTIVE": 8}
    await asyncio.gather(*(admin.gone(server) for server in servers))
    assert sum(met.values()) > 20, met
    behind.proxy.clear_faults()
    seen = await behind.nothing_leaked()
    assert set(seen.ports) <= {""}, "a port of a server that is gone"
    after = {each["id"]: each["fixed_ips"] for each in seen.ports[""]}
    assert after == before


@pytest.mark.slow
async def test_an_outage_under_load_ends_in_no_error(behind: CloudBehindProxy) -> None:
    """Nobody answers for a while: boots stay BUILD and say what they wait for, deletes wait, all of them resume."""
    admin = behind.admin
    old = [(await admin.active(f"old-{number}"))["id"] for number in range(3)]
    out = behind.proxy.add_fault(ProxyFault("reset_before", times=FOR_EVER, path="/ports"))
    new = await asyncio.gather(*(admin.boot(f"new-{number}") for number in range(10)))
    await asyncio.gather(*(admin.delete(each) for each in old))
    assert "network service" in await waiting_of(behind, new[0])
    assert "network service" in await waiting_of(behind, old[0])
    shown = await asyncio.gather(*(admin.server(each) for each in [*new, *old]))
    assert {(each or {})["status"] for each in shown} == {"BUILD", "ACTIVE"}
    assert FAILURES_MAX <= out.fired < 40, "it was asked again, and not by everybody all the time"
    behind.proxy.clear_faults()
    found = await asyncio.gather(*(admin.settled(each) for each in new))
    assert {each["status"] for each in found} == {"ACTIVE"}
    await asyncio.gather(*(admin.absent(each) for each in old))


async def test_a_lasting_network_outage_is_the_shown_cause(behind: CloudBehindProxy, monkeypatch: Any) -> None:
    """Past its patience a boot is ERROR with the reason, at once; what it holds goes when the network is back (RULES §12)."""
    monkeypatch.setattr(boot.bind_ports, "patience_s", 1.0)
    behind.proxy.add_fault(ProxyFault("status", "PUT", times=FOR_EVER))
    server = await behind.admin.boot("never")
    await until(lambda: behind.proxy.asked["POST ports"] == 1)
    out = behind.proxy.add_fault(ProxyFault("status", times=FOR_EVER, path="/ports"))
    found = await behind.admin.settled(server)
    assert found["status"] == "ERROR"
    assert "network service is busy" in found["fault"]["message"]
    await until(lambda: out.fired > 1)
    assert len((await behind.admin.network("GET", "/ports", device_id=server)).json()["ports"]) == 1
    behind.proxy.clear_faults()
    await behind.admin.gone(server)


async def test_a_delete_during_an_outage_cancels_the_waiting_boot(behind: CloudBehindProxy) -> None:
    behind.proxy.add_fault(ProxyFault("lands_late", "POST", "/ports", times=2, delay_s=LATE_S))
    out = behind.proxy.add_fault(ProxyFault("status", "GET", "/ports", times=FOR_EVER))
    server = await behind.admin.boot("unwanted")
    await until(lambda: out.fired > 0)
    await behind.admin.delete(server)
    behind.proxy.clear_faults()
    await behind.admin.absent(server)


async def test_the_api_answers_at_once_that_the_network_service_is_down(behind: CloudBehindProxy) -> None:
    """A request never retries: the client is told (habit 13)."""
    behind.proxy.add_fault(ProxyFault("reset_before", times=FOR_EVER))
    reply = await behind.admin.ask_boot("nothing", networks=[{"port": "11111111-2222-3333-4444-555555555555"}])
    assert reply.status_code == 503
    assert "network service" in reply.text


async def test_retry_after_is_respected(behind: CloudBehindProxy) -> None:
    busy = behind.proxy.add_fault(
        ProxyFault("status", "POST", "/ports", status=429, headers={"Retry-After": str(RETRY_AFTER_S)})
    )
    loop = asyncio.get_running_loop()
    server = await behind.admin.boot("patient")
    await until(lambda: busy.fired == 1)
    refused_at = loop.time()
    await until(lambda: behind.proxy.asked["POST ports"] == 1)
    assert loop.time() - refused_at > RETRY_AFTER_S / 2, "we may be late to see the refusal"
    assert (await behind.admin.settled(server))["status"] == "ACTIVE"


async def left_alone(behind: CloudBehindProxy) -> list[dict[str, Any]]:
    reply = await behind.admin.compute("GET", "/ext/neighbours")
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = [each["circuit"] for each in reply.json()["left_alone"]]
    return found


async def test_a_failing_service_is_called_by_one_probe_only(behind: CloudBehindProxy) -> None:
    """While the circuit is open boots wait without a call, people are told at once and when to come back; one probe closes it."""
    admin = behind.admin
    out = behind.proxy.add_fault(ProxyFault("slow", times=FOR_EVER, path="/ports", delay_s=2.5 * CALL_S))
    servers = await asyncio.gather(*(admin.boot(f"waits-{number}") for number in range(6)))
    body = [{"port": "11111111-2222-3333-4444-555555555555"}]

    async def told_at_once() -> Any:
        """The API's refusal, when it took no call."""
        while True:
            before = out.fired
            reply = await admin.ask_boot("told", networks=body)
            assert reply.status_code == 503, reply.text
            if out.fired == before and "Retry-After" in reply.headers:
                return reply

    async with asyncio.timeout(180):
        refusal = await told_at_once()
    assert "network service did not answer" in refusal.json()["serviceUnavailable"]["message"]
    assert 1 <= int(refusal.headers["Retry-After"]) <= 10
    seen = await left_alone(behind)
    assert {each["neighbour"] for each in seen} == {"network"}
    assert all(each["failures"] >= 5 and "did not answer" in each["why"] for each in seen)
    answer = "\n".join(status.out((await admin.compute("GET", "/ext/neighbours")).json()["left_alone"]))
    assert "the network service" in answer
    assert "is left alone by" in answer
    behind.proxy.clear_faults()
    found = await asyncio.gather(*(admin.settled(each) for each in servers))
    assert {each["status"] for each in found} == {"ACTIVE"}
    assert (await admin.ask_boot("no such port", networks=body)).status_code == 400
    await until(lambda: not behind.running.cloud.region.clients.open_circuits())
    assert await left_alone(behind) == []


async def test_an_open_circuit_of_a_conductor_is_seen_by_the_api(behind: CloudBehindProxy) -> None:
    """It stands in the conductor's row; an API that is no conductor shows it with that conductor's name."""
    region = behind.running.cloud.region
    behind.proxy.add_fault(ProxyFault("status", "PUT", "/ports/", times=FOR_EVER))
    server = await behind.admin.boot("waits")
    await until(lambda: bool(region.clients.open_circuits()))
    await region.gates._publish_own(region.context.hosts.me)
    elsewhere = GateWatch(region.context, region.clock)
    await elsewhere.poll()
    (seen,) = elsewhere.service_circuits()
    assert (seen.process, seen.circuit.calls) == (str(region.context.hosts.me), "PUT ports")
    behind.proxy.clear_faults()
    assert (await behind.admin.settled(server))["status"] == "ACTIVE"
    await region.gates._publish_own(region.context.hosts.me)
    await elsewhere.poll()
    assert not elsewhere.service_circuits()
