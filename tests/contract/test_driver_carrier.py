"""What hosts with real guests send one another, without a hypervisor."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from moorage.drivers.libvirt import carrier
from moorage.drivers.libvirt.carrier import CarrierRequest, MigrationAddress, Receiver
from moorage.main.local_cluster.ports import free_ports
from moorage.model.errors import HostFailed
from moorage.model.guest import MoveTarget
from moorage.model.ids import ServerId
from moorage_testing.waiting import PATIENCE_S

ONE = ServerId("11111111-0000-4000-8000-000000000000")


class Kept:
    """A host that keeps files in a directory, and answers with what it was asked."""

    def __init__(self, room: Path) -> None:
        self.room = room

    async def file_for(self, request: CarrierRequest) -> Path:
        if request.name != "disk":
            raise HostFailed("no such file", private=request.name, code="garbled")
        return self.room / f"{request.server}.{request.name}"

    async def answer(self, request: CarrierRequest) -> bytes:
        if request.verb == "refuse":
            raise HostFailed("not now", private="why", code="guest_busy")
        return bytes(request.body)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[MigrationAddress]:
    receiver, port = Receiver(tmp_path, Kept(tmp_path)), free_ports(1)[0]
    await receiver.open("127.0.0.1", port)
    yield MigrationAddress("machine", str(tmp_path), "127.0.0.1", port, receiver.key, receiver.certificate)
    await receiver.close()


async def test_questions_and_files(place: MigrationAddress, tmp_path: Path) -> None:
    assert MigrationAddress.of(place.target()) == place
    assert await carrier.ask(place, "echo", ONE, "move", {"a": 1}, dict) == {"a": 1}
    with pytest.raises(HostFailed) as refused:
        await carrier.ask(place, "refuse", ONE, "move", None, dict)
    assert (refused.value.code, refused.value.public, refused.value.private) == ("guest_busy", "not now", "why")
    disk, content = tmp_path / "disk", bytes(range(256)) * 20_000
    disk.write_bytes(content)
    await carrier.send_file(place, "keep", ONE, "move", disk)
    kept = tmp_path / f"{ONE}.disk"
    assert kept.read_bytes() == content
    assert kept.stat().st_mode & 0o077 == 0
    disk.write_bytes(b"")
    await carrier.send_file(place, "keep", ONE, "move", disk)
    assert kept.read_bytes() == b""
    with pytest.raises(HostFailed, match="no such file"):
        await carrier.send_file(place, "keep", ONE, "move", tmp_path / "carrier.pem")


async def test_a_refusal_is_read_though_the_file_was_still_being_sent(place: MigrationAddress, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as made:
        made.truncate(1 << 30)
    for _ in range(5):
        with pytest.raises(HostFailed, match="no such file"):
            await carrier.send_file(place, "keep", ONE, "move", large)


async def test_a_host_is_verified_by_certificate_and_a_sender_by_key(place: MigrationAddress, tmp_path: Path) -> None:
    for other in ({"key": "0" * 64}, {"certificate": "0" * 64}, {"address": "127.0.0.2"}):
        with pytest.raises(HostFailed) as refused:
            await carrier.ask(msgspec.structs.replace(place, **other), "echo", ONE, "move", None, object)
        assert refused.value.code == "host_unreachable", other
    assert (tmp_path / "carrier.secret").stat().st_mode & 0o077 == 0
    assert (tmp_path / "carrier.key").stat().st_mode & 0o077 == 0


async def test_a_restarted_host_keeps_its_key(tmp_path: Path) -> None:
    made = []
    for _ in range(2):
        receiver = Receiver(tmp_path, Kept(tmp_path))
        await receiver.open("127.0.0.1", free_ports(1)[0])
        made.append((receiver.key, receiver.certificate))
        await receiver.close()
    assert made[0] == made[1]


async def test_a_truncated_file_is_refused(
    place: MigrationAddress, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with carrier._connection(place) as (_, writer):
        writer.write(msgspec.json.encode(CarrierRequest(place.key, "keep", ONE, "move", "disk", 100)) + b"\npart")
        await writer.drain()
    ends = time.monotonic() + PATIENCE_S
    while "connection was lost" not in caplog.text:
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)
    assert await asyncio.to_thread(lambda: list(tmp_path.glob(f"{ONE}*"))) == []


async def test_invalid_requests_are_refused(place: MigrationAddress) -> None:
    endless = carrier.CarrierRequest(place.key, "file", ONE, "move", "disk", -1)
    for line in (b"no json\n", b"{}\n", b"\n", msgspec.json.encode(endless) + b"\n"):
        async with carrier._connection(place) as (reader, writer):
            writer.write(line)
            reply = msgspec.json.decode(await reader.readline(), type=carrier.CarrierReply)
        assert reply.code == "garbled"


def test_older_agents_receive_guests_at_their_address() -> None:
    assert MigrationAddress.of(MoveTarget("127.0.0.1", "machine:/room")) == MigrationAddress("machine", "/room")
    with pytest.raises(HostFailed) as garbled:
        MigrationAddress.of(MoveTarget("", '{"machine": 1}'))
    assert garbled.value.code == "host_unreachable"
