"""What guests have from their network: addresses, names, routes and metadata.  Most of it is told to namespaces in guests' places."""

import asyncio
import hashlib
import hmac
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import PATIENCE_S

from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.metadata_keeper import MetadataKeeper
from moorage.drivers.libvirt.metadata_proxy import GUEST_CONNECTIONS_MAX
from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.wires import Wires, bridge_of
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ProjectId, ServerId, SubnetId
from moorage.model.network import DhcpOption
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.stations import Output, Station

pytestmark = pytest.mark.hypervisor

SECRET, OWNER = "shared", "0a1b2c3d-0000-4000-8000-000000000000"
ASK = """
import http.client, json, socket, sys
host, path, method, size, headers = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), json.loads(sys.argv[5])
asked = http.client.HTTPConnection("guest", timeout=30)
asked.sock = socket.create_connection((host, 80), timeout=30)
asked.request(method, path, b"x" * size if size else None, headers)
answer = asked.getresponse()
print(json.dumps([answer.status, answer.read().decode(), dict(answer.getheaders())]))
"""


class Recorder:
    """In the place of the metadata service: says what it was asked, with the headers."""

    def __init__(self) -> None:
        self.port, self.slow = 0, asyncio.Event()
        self.slow.set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in head[1:] if each)}
        sent = await reader.readexactly(int(headers.get("content-length", 0)))
        await self.slow.wait()
        body = json.dumps({"line": head[0], "headers": headers, "sent": len(sent)}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
        writer.close()


class Host:
    """The networks of one host, without a hypervisor."""

    def __init__(self, room: Path, recorder: Recorder) -> None:
        told = Libvirt(dhcp=True, port_filter=False, metadata_url=f"http://127.0.0.1:{recorder.port}")
        self.recorder = recorder
        self.described = DescribedPorts(room)
        self.wires = Wires(OWNER, told, Plumber(room, told), self.described)
        self.keeper = MetadataKeeper(room, told, SECRET)
        self.room = room

    async def have(self, *guests: GuestSpec) -> None:
        for each in guests:
            await self.wires.plug(each.vifs)
        try:
            await self.wires.serve([vif for each in guests for vif in each.vifs])
        except HostFailed as failure:
            raise AssertionError(failure.private) from failure
        await self.keeper.keep(self.wires.seats(guests))

    def pids(self) -> dict[str, int]:
        return {str(each.parent.name): int(each.read_text()) for each in self.room.rglob("pid")}


def a_guest(number: int, network: str, *addresses: VifAddress, **more: object) -> GuestSpec:
    vif = VifData(
        PortId(f"{number:08x}-1111"), NetworkId(f"{network}-0000-4000"), f"fa:16:3e:77:06:{number:02x}", "bridge", mtu=1450,
        addresses=addresses, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    server = ServerId(f"cccccccc-0000-4000-8000-{number:012d}")
    return GuestSpec(server, f"guest{number}", 1, 128, project=ProjectId("someone"), vifs=(vif,))


def open_subnet(last: int, **more: object) -> VifAddress:
    return VifAddress(f"10.77.5.{last}", SubnetId("s"), "10.77.5.0/24", "10.77.5.1", **more)  # type: ignore[arg-type]


def v6(address: str, mode: str) -> VifAddress:
    return VifAddress(address, SubnetId("6"), "fd77::/64", "fd77::1", ("fd77::53",), address_mode=mode, ra_mode=mode)


@pytest.fixture
def stations() -> Iterator[Callable[[str, GuestSpec], Station]]:
    made: list[Station] = []

    def make(name: str, guest: GuestSpec) -> Station:
        vif = guest.vifs[0]
        made.append(Station(name, bridge_of(vif, {}), vif.mac))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
async def make_host(tmp_path: Path) -> AsyncIterator[Callable[[], Host]]:
    """The last one made leaves nothing."""
    recorder, made = Recorder(), []
    await recorder.open()

    def make() -> Host:
        made.append(Host(tmp_path / "host", recorder))
        return made[-1]

    yield make
    recorder.slow.set()
    await made[-1].have()
    await recorder.close()
    assert leftovers(tmp_path / "host", inside=("env",)) == []  # guests of other tests on this machine are not ours


async def ask(
    station: Station, path: str = "/openstack", host: str = "169.254.169.254", **more: object
) -> tuple[int, str, dict[str, str]]:
    headers = json.dumps(more.get("headers", {}))
    words = (sys.executable, "-c", ASK, host, path, str(more.get("method", "GET")), str(more.get("size", 0)), headers)
    said: Output = await station.run(*words)
    assert said.code == 0, said.out
    status, body, told = json.loads(said.out)
    return status, body, told


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not await what():
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)


async def test_metadata_is_told_to_each_guest_of_its_own(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    """Also to guests of two networks with the same addresses, and without a gateway; whoever asks says nothing of who it is."""
    host = make_host()
    recorder = host.recorder
    closed = VifAddress("10.77.6.10", SubnetId("c"), "10.77.6.0/24")
    one, two = (
        a_guest(1, "aaaaaaaa", open_subnet(10), v6("fd77::f816:3eff:fe77:601", "slaac")),
        a_guest(2, "bbbbbbbb", open_subnet(10)),
    )
    three = a_guest(3, "cccccccc", closed)
    await host.have(one, two, three)
    first, second, third = stations("one", one), stations("two", two), stations("three", three)

    for station, guest in ((first, one), (second, two), (third, three)):
        told = await station.ask_dhcp(tmp_path)
        assert told["ip"] == guest.vifs[0].addresses[0].address
        status, body, _ = await ask(station, "/openstack/latest/meta_data.json?x=1")
        assert status == 200
        asked = json.loads(body)
        assert asked["line"] == "GET /openstack/latest/meta_data.json?x=1 HTTP/1.1"
        heard = asked["headers"]
        signature = hmac.new(SECRET.encode(), guest.server.encode(), hashlib.sha256).hexdigest()
        assert (heard["x-instance-id"], heard["x-tenant-id"]) == (guest.server, "someone")
        assert (heard["x-instance-id-signature"], heard["x-forwarded-for"]) == (signature, told["ip"])
    assert "169.254.169.254/32" in (await third.run("ip", "route")).out or "169.254.169.254 dev" in third.call(
        "ip", "route"
    )

    # It pretends to be another one, by headers and by an address that is nobody's.
    lies = {
        "X-Instance-ID": two.server,
        "X-Tenant-ID": "other",
        "X-Instance-ID-Signature": "00",
        "X-Forwarded-For": "1.2.3.4",
    }
    heard = json.loads((await ask(first, headers=lies))[1])["headers"]
    assert (heard["x-instance-id"], heard["x-tenant-id"], heard["x-forwarded-for"]) == (
        one.server,
        "someone",
        "10.77.5.10",
    )
    second.call("ip", "address", "flush", "dev", "eth0", "scope", "global")
    second.call("ip", "address", "add", "10.77.5.99/24", "dev", "eth0")
    second.call("ip", "route", "add", "default", "via", "10.77.5.1")
    assert (await ask(second))[0] == 404

    # By IPv6 the guest has a link-local address, which is no port's.
    status, body, _ = await ask(first, host="fe80::a9fe:a9fe%eth0")
    assert (status, json.loads(body)["headers"]["x-instance-id"]) == (200, one.server)

    # Limits: too much, too many, too slow a service, and none.
    status, body, _ = await ask(first, "/openstack/latest/password", method="POST", size=4096)
    assert (status, json.loads(body)["sent"]) == (200, 4096)
    assert (await ask(first, "/openstack/latest/password", method="POST", size=20_000))[0] == 413
    assert (await ask(first, method="DELETE"))[0] == 400
    recorder.slow.clear()
    many = [asyncio.create_task(ask(first)) for _ in range(GUEST_CONNECTIONS_MAX + 4)]
    done, _ = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
    assert {each.result()[0] for each in done} == {503}
    assert (await ask(third, method="DELETE"))[0] == 400, "another guest is answered meanwhile"
    recorder.slow.set()
    assert sorted(each[0] for each in await asyncio.gather(*many)) == [200] * GUEST_CONNECTIONS_MAX + [503] * 4
    await recorder.close()
    status, _, told = await ask(first)
    assert (status, told["retry-after"]) == (503, "2")
    await recorder.open()

    # The agent starts again: nothing of it is, and the same processes serve who came meanwhile.
    pids = host.pids()
    assert len(pids) == 4
    host, four = make_host(), a_guest(4, "aaaaaaaa", open_subnet(11))
    await host.have(one, two, three, four)
    assert {**host.pids(), bridge_of(four.vifs[0], {}): 0} == {**pids, bridge_of(four.vifs[0], {}): 0}
    fourth = stations("four", four)
    assert (await fourth.ask_dhcp(tmp_path))["ip"] == "10.77.5.11"
    assert json.loads((await ask(fourth))[1])["headers"]["x-instance-id"] == four.server

    # The process ends by itself, and is started again by who looks.
    os.kill(pids["metadata"], signal.SIGKILL)

    async def lost() -> bool:
        return host.keeper.is_lost()

    await until(lost)
    await host.have(one, two, three, four)
    assert (await ask(first))[0] == 200
    # One network goes and comes again with another bridge.
    await host.have(two)
    await host.have(one, two)
    again = stations("again", one)
    await again.ask_dhcp(tmp_path)
    assert json.loads((await ask(again))[1])["headers"]["x-instance-id"] == one.server


async def test_addresses_names_and_routes(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    host = make_host()
    routes = (("10.9.0.0/16", "10.77.5.7"),)
    options = (DhcpOption("tftp-server", "10.1.1.1"), DhcpOption("bad\nname", "x"), DhcpOption("bootfile-name", "a\nb"))
    named = {"dns_name": "web", "dns_domain": "example.test."}
    one = a_guest(
        1,
        "aaaaaaaa",
        open_subnet(10, routes=routes),
        v6("fd77::f816:3eff:fe77:601", "slaac"),
        dhcp_options=options,
        **named,
    )
    two = a_guest(2, "aaaaaaaa", open_subnet(11, routes=routes), dns_name="db", dns_domain="example.test.")
    await host.have(one, two)
    first = stations("one", one)
    told = await first.ask_dhcp(tmp_path)
    assert told["ip"] == "10.77.5.10"
    assert (told["mtu"], told["domain"], told["hostname"], told["dns"]) == ("1450", "example.test", "web", "10.77.5.1")
    assert told["tftp"] == "10.1.1.1"
    routed = first.call("ip", "route")
    assert "10.9.0.0/16 via 10.77.5.7" in routed
    assert "default via 10.77.5.1" in routed
    for name, address in (("db", "10.77.5.11"), ("web.example.test", "10.77.5.10")):
        assert address in (await first.run("busybox", "nslookup", name, "10.77.5.1")).out
    assert "fd77::f816:3eff:fe77:601" in (await first.run("busybox", "nslookup", "web.example.test", "10.77.5.1")).out

    async def advertised() -> bool:
        return "fd77::f816:3eff:fe77:601" in first.call("ip", "-6", "address", "show", "dev", "eth0")

    await until(advertised)
    assert "default via fe80::" in first.call("ip", "-6", "route")

    async def answered() -> bool:
        return (await first.run("ping", "-c1", "-W1", "fd77::1")).code == 0

    await until(answered)
