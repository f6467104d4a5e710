"""Ports of many servers in few calls: which servers share a call, which wait, and what each gets when it fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from moorage.clients.http import ServiceClient, embedded_transport
from moorage.clients.network import NetworkClient
from moorage.clients.network.port_batcher import AT_ONCE, PORTS_AT_FIRST, PORTS_MAX
from moorage.model.errors import OverQuota, Unavailable, UnknownOutcome
from moorage.model.network import NicAsk
from moorage.model.task_context import global_request_id
from moorage_testing.waiting import until

NET = "11111111-0000-4000-8000-000000000001"
OTHER = "22222222-0000-4000-8000-000000000002"


class Service:
    """Makes ports, as far as these tests need it; each POST waits at the gate."""

    def __init__(self) -> None:
        self.posts: list[list[str]] = []
        """Devices of each POST."""
        self.told: list[str] = []
        self.ports: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.refuse: Callable[[list[dict[str, Any]]], int] = lambda _: 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        await (await self.answer(request))(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        if request.method == "GET":
            device = request.query_params.get("device_id")
            return JSONResponse({"ports": [port for port in self.ports if port["device_id"] == device]})
        if request.method == "DELETE":
            self.ports = [port for port in self.ports if port["id"] != request.url.path.rsplit("/", 1)[1]]
            return Response(status_code=204)
        body = await request.json()
        asked = body["ports"] if "ports" in body else [body["port"]]
        self.posts.append([each["device_id"] for each in asked])
        self.told.append(request.headers.get("x-openstack-request-id", ""))
        await self.gate.wait()
        if status := self.refuse(asked):
            kind = {"NeutronError": {"type": "OverQuota" if status == 409 else "Broken", "message": "no more"}}
            return JSONResponse(kind, status)
        made = [{**each, "id": f"port-{each['mac_address']}", "revision_number": 1} for each in asked]
        self.ports += made
        return JSONResponse({"ports": made} if "ports" in body else {"port": made[0]}, 201)


@pytest.fixture
async def service() -> Service:
    return Service()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[NetworkClient]:
    found = NetworkClient(ServiceClient("network", "http://network", transport=embedded_transport(service)))
    yield found
    await found.close()


async def make(client: NetworkClient, server: str, *networks: str, project: str = "p", address: str = "") -> list[str]:
    nics = tuple(NicAsk(index=at, network=network, address=address or None) for at, network in enumerate(networks))
    return [port.device_id for port in await client.ensure_ports(server, project, nics)]


async def test_concurrent_servers_share_one_call(client: NetworkClient, service: Service) -> None:
    servers = [f"s{number}" for number in range(20)]
    made = await asyncio.gather(*(make(client, server, NET) for server in servers))
    assert made == [[server] for server in servers]
    assert service.posts == [servers]


async def test_a_single_server_does_not_wait_and_later_ones_share_a_call(
    client: NetworkClient, service: Service
) -> None:
    service.gate.clear()
    asked = []
    for number in range(AT_ONCE + 5):
        asked.append(asyncio.create_task(make(client, f"s{number}", NET)))
        await until(lambda number=number: len(service.posts) == min(number + 1, AT_ONCE))  # type: ignore[misc]
        await asyncio.sleep(0.01)
    assert service.posts == [[f"s{number}"] for number in range(AT_ONCE)]
    elsewhere = asyncio.create_task(make(client, "elsewhere", OTHER))
    await until(lambda: service.posts[-1] == ["elsewhere"])
    service.gate.set()
    await asyncio.gather(*asked, elsewhere)
    assert [server for post in service.posts[AT_ONCE + 1 :] for server in post] == [f"s{n}" for n in range(AT_ONCE, 7)]
    assert len(service.posts) == AT_ONCE + 2


async def test_nics_of_one_server_are_in_one_call(client: NetworkClient, service: Service) -> None:
    await asyncio.gather(make(client, "a", NET, NET), make(client, "b", NET))
    assert service.posts == [["a", "a", "b"]]


async def test_other_projects_and_fixed_addresses_have_separate_calls(client: NetworkClient, service: Service) -> None:
    await asyncio.gather(
        make(client, "a", NET, project="p"),
        make(client, "b", NET, project="q"),
        make(client, "c", NET, project="p"),
        make(client, "d", NET, project="p", address="10.0.0.9"),
    )
    assert sorted(service.posts) == [["a", "c"], ["b"], ["d"]]


async def test_a_refused_bulk_is_repeated_server_by_server(client: NetworkClient, service: Service) -> None:
    """There is quota for some: they have their ports, and the others are told."""
    service.refuse = lambda asked: 409 if len(service.ports) + len(asked) > 3 else 0
    made = await asyncio.gather(*(make(client, f"s{number}", NET) for number in range(5)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in made) == ["OverQuota"] * 2 + ["list"] * 3
    assert len({id(each) for each in made if isinstance(each, OverQuota)}) == 2
    assert len(service.ports) == 3
    assert len(service.posts) == 6


@pytest.mark.parametrize(("status", "kind"), [(500, UnknownOutcome), (503, Unavailable)])
async def test_an_outage_fails_all_and_each_looks_up_its_ports(
    client: NetworkClient, service: Service, status: int, kind: type[Exception]
) -> None:
    service.refuse = lambda _: status
    made = await asyncio.gather(*(make(client, f"s{number}", NET) for number in range(3)), return_exceptions=True)
    assert [type(each) for each in made] == [kind] * 3
    assert len({id(each) for each in made}) == 3
    assert len(service.posts) == 1


async def test_a_cancelled_server_gets_no_port_later(client: NetworkClient, service: Service) -> None:
    """A server is deleted: if it still waits here it is never asked for; if it is under way, that is waited for and undone."""
    service.gate.clear()
    under_way = asyncio.create_task(make(client, "s0", NET))
    await until(lambda: len(service.posts) == 1)
    second = asyncio.create_task(make(client, "s1", NET))
    await until(lambda: len(service.posts) == AT_ONCE)
    waits = asyncio.create_task(make(client, "s2", NET))
    await asyncio.sleep(0)
    for task in (under_way, waits):
        task.cancel()
    await asyncio.gather(under_way, waits, return_exceptions=True)
    undone = asyncio.gather(client.release_ports("s0"), client.release_ports("s2"))
    await asyncio.sleep(0.02)
    assert not undone.done()
    service.gate.set()
    await asyncio.gather(undone, second)
    assert [port["device_id"] for port in service.ports] == ["s1"]
    assert sorted(server for post in service.posts for server in post) == ["s0", "s1"]


async def test_the_bulk_size_follows_the_services_speed(
    client: NetworkClient, service: Service, monkeypatch: Any
) -> None:
    monkeypatch.setattr(
        "moorage.clients.network.port_batcher.CALL_TARGET_S", 600.0
    )  # fast, however busy the machine is
    await asyncio.gather(*(make(client, f"r{number}", NET) for number in range(PORTS_AT_FIRST)))
    await asyncio.gather(*(make(client, f"s{number}", NET) for number in range(2 * PORTS_MAX)))
    assert len(service.posts[0]) == PORTS_AT_FIRST
    assert max(len(post) for post in service.posts) > PORTS_AT_FIRST
    assert all(len(post) <= PORTS_MAX for post in service.posts)
    monkeypatch.setattr("moorage.clients.network.port_batcher.CALL_TARGET_S", 0.004)

    async def slow(request: Request) -> Response:
        await asyncio.sleep(0.02)
        return await Service.answer(service, request)

    monkeypatch.setattr(service, "answer", slow)
    await asyncio.gather(*(make(client, f"t{number}", NET) for number in range(2 * PORTS_MAX)))
    first = len(service.posts)
    await asyncio.gather(*(make(client, f"u{number}", NET) for number in range(PORTS_AT_FIRST)))
    assert all(len(post) < PORTS_AT_FIRST for post in service.posts[first:])


async def test_a_call_has_its_request_id(client: NetworkClient, service: Service) -> None:
    async def asked(server: str, request: str) -> None:
        global_request_id.set(request)
        await make(client, server, NET)

    await asyncio.gather(asked("a", "req-1"), asked("b", "req-1"))
    await asyncio.gather(asked("c", "req-1"), asked("d", "req-2"))
    assert service.told == ["req-1", ""]
