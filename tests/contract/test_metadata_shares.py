"""Shares of the metadata proxy: a flood by one guest, or by strangers, costs others nothing. Addresses of this machine stand for guests."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from moorage.drivers.libvirt import metadata_proxy
from moorage.drivers.libvirt.connection_shares import ConnectionShares
from moorage.drivers.libvirt.metadata_proxy import CONNECTIONS_MAX, GUEST_CONNECTIONS_MAX, Proxy

ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
FLOODER, OTHER = "127.0.1.1", "127.0.0.5"


class Transport:
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def guest(name: str) -> dict[str, str]:
    return {"server": name, "project": "p", "signature": "s"}


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[dict[str, int]]:
    """Bridge → the port that stands for its socket."""

    async def service(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    upstream = await asyncio.start_server(service, "127.0.0.1", 0)
    many = {f"127.0.1.{each}": guest(f"one-of-many-{each}") for each in range(1, 60)}
    one = {f"127.0.2.{each}": guest("with-many-addresses") for each in range(1, 60)}
    conf = {
        "url": f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}",
        "pid_file": str(tmp_path / "pid"),
        "log_file": str(tmp_path / "log"),
        "bridges": {
            "mrgflood": {"addresses": many | one},
            "mrgother": {"addresses": {OTHER: guest("other")}},
        },
    }
    (tmp_path / "conf").write_text(json.dumps(conf))
    proxy = Proxy(tmp_path / "conf")
    listening = {
        bridge: await asyncio.start_server(partial(proxy._guest, bridge), "127.0.0.1", 0) for bridge in conf["bridges"]
    }
    yield {bridge: each.sockets[0].getsockname()[1] for bridge, each in listening.items()}
    for each in (upstream, *listening.values()):
        each.close()


async def held(port: int, source: str) -> asyncio.StreamWriter:
    return (await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))[1]


async def status(port: int, source: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(ASKED)
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return int(line.split()[1])


@contextlib.asynccontextmanager
async def silent(port: int, sources: list[str], each: int) -> AsyncIterator[None]:
    writers = [await held(port, source) for source in sources for _ in range(each)]
    await asyncio.sleep(0.2)
    yield
    for writer in writers:
        writer.close()


async def test_strangers_hold_nothing(doors: dict[str, int]) -> None:
    async with silent(doors["mrgflood"], [f"127.0.9.{each}" for each in range(1, 60)], 12):
        assert await status(doors["mrgother"], OTHER) == 200
        assert await status(doors["mrgflood"], FLOODER) == 200
        assert await status(doors["mrgflood"], "127.0.9.200") == 404


async def test_a_guest_with_many_addresses_is_one_guest(doors: dict[str, int]) -> None:
    async with silent(doors["mrgflood"], [f"127.0.2.{each}" for each in range(1, 60)], 2):
        assert await status(doors["mrgflood"], "127.0.2.59") == 503
        assert await status(doors["mrgflood"], FLOODER) == 200
        assert await status(doors["mrgother"], OTHER) == 200


async def test_all_guests_of_one_network_leave_room_for_another(doors: dict[str, int]) -> None:
    sources = [f"127.0.1.{each}" for each in range(1, 1 + CONNECTIONS_MAX // GUEST_CONNECTIONS_MAX)]
    async with silent(doors["mrgflood"], sources, GUEST_CONNECTIONS_MAX):
        for _ in range(3):
            assert await status(doors["mrgother"], OTHER) == 200


def test_the_largest_gives_up_its_oldest() -> None:
    shares, oldest = ConnectionShares(4, 4), Transport()
    with contextlib.ExitStack() as places:
        assert places.enter_context(shares.share("a", "1", oldest))
        for _ in range(3):
            assert places.enter_context(shares.share("a", "1", Transport()))
        assert not places.enter_context(shares.share("a", "2", Transport()))
        assert places.enter_context(shares.share("b", "1", Transport()))
        assert oldest.aborted
        assert places.enter_context(shares.share("b", "1", Transport()))
        assert not places.enter_context(shares.share("b", "2", Transport()))
        assert shares.held == 4
    assert shares.held == 0
    assert metadata_proxy.STRANGERS_MAX < GUEST_CONNECTIONS_MAX
