"""Networks as a host serves them to guests, without a hypervisor: stations replace the guests."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.guest_services import GuestServices
from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.wires import Wires, bridge_of
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ProjectId, ServerId, SubnetId
from moorage.model.port_description import PortDescription
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.stations import Output, Station
from moorage_testing.waiting import PATIENCE_S

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
        told = Libvirt(
            dhcp=True,
            port_filter=False,
            routers=True,
            external_devices={"physnet1": "st-outside"},
            metadata_url=f"http://127.0.0.1:{recorder.port}",
        )
        self.ports: dict[PortId, PortDescription] = {}
        self.recorder = recorder
        self.described = DescribedPorts(room)
        self.wires = Wires(OWNER, told, Plumber(room, told), self.described)
        self.services = GuestServices(OWNER, room, told, SECRET)
        self.room = room

    async def have(self, *guests: GuestSpec) -> None:
        for each in guests:
            await self.wires.plug(each.vifs)
        await self.serve(*guests)

    async def serve(self, *guests: GuestSpec) -> None:
        """These are known to the host; those that are not plugged in yet have no devices."""
        try:
            await self.wires.serve([vif for each in guests for vif in each.vifs])
        except HostFailed as failure:
            raise AssertionError(failure.private) from failure
        await self.services.keep(await self.wires.seats(guests), self.ports)

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
    reply: Output = await station.run(*words)
    assert reply.code == 0, reply.out
    status, body, told = json.loads(reply.out)
    return status, body, told


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not await what():
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)
