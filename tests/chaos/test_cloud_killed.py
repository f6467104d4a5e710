"""`moorage up` as a process, killed with -9 or stopped with Ctrl-C: the next start has what people were promised."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.main.config import Config, read_config
from moorage.testing.census import guests_on_disk, nothing_leaked
from moorage.testing.person import Person
from moorage.testing.set import free_ports

pytestmark = pytest.mark.slow

READY_S = 60.0
STOP_S = 30.0
SERVICES = ("identity", "image", "network", "compute", "placement")


class Upped:
    """`moorage up` on a directory, again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "up.log"
        self.process: subprocess.Popen[bytes] | None = None
        ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
        listens = "".join(f"[api.{name}]\nport = {port}\n\n" for name, port in ports.items())
        self.path = directory / "moorage.toml"
        self.path.write_text(
            f'data_dir = "{directory / "data"}"\n\n{listens}[region]\ndurability = "process"\n\n'
            "[quota]\ninstances = -1\ncores = -1\nram = -1\n"
        )

    @property
    def config(self) -> Config:
        return read_config(self.path)

    def start(self) -> None:
        """Returns when it says that it is up."""
        with self.log.open("ab") as out:
            at = out.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moorage", "up", "--config", str(self.path)],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
            )
        deadline = time.monotonic() + READY_S
        while b"Moorage is up" not in self.log.read_bytes()[at:]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(self.log.read_text()[-3000:])
            time.sleep(0.02)

    def end(self, sign: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(sign)
        code = self.process.wait(STOP_S)
        self.process = None
        return code


@pytest.fixture
def upped(tmp_path: Path) -> Iterator[Upped]:
    up = Upped(tmp_path)
    up.start()
    yield up
    if up.process is not None:
        up.end(signal.SIGKILL)


@pytest.mark.parametrize("accepted", [3, 15, 40])
async def test_killed_in_the_middle_of_boots_and_deletes(upped: Upped, accepted: int) -> None:
    async with Person(upped.config) as admin:
        earlier = [(await admin.active(f"earlier-{number}"))["id"] for number in range(6)]
        running = {each: hosts for each, hosts in guests_on_disk(upped.config.data).items() if each in earlier[:3]}
        asked = [asyncio.create_task(admin.boot(f"many-{number}", networks="private")) for number in range(40)]
        promised = [await each for each in asked[:accepted]]
        for each in earlier[3:]:
            await admin.delete(each)
        if accepted == len(asked):
            await admin.settled(promised[-1])
        upped.end(signal.SIGKILL)
        promised += [
            each for each in await asyncio.gather(*asked[accepted:], return_exceptions=True) if isinstance(each, str)
        ]
    upped.start()
    async with Person(upped.config) as admin:
        found = await asyncio.gather(*(admin.settled(each) for each in promised))
        assert [(each["id"], each.get("fault")) for each in found if each["status"] != "ACTIVE"] == []
        for each in earlier[3:]:
            await admin.absent(each)
        seen = await nothing_leaked(upped.config, admin)
        assert set(promised) | set(earlier[:3]) <= set(seen.servers)
        assert {each: seen.guests[each] for each in earlier[:3]} == running
        assert {server.status for server in seen.servers.values()} == {"ACTIVE"}
        again = await admin.active("afterwards")
        await admin.gone(again["id"])


async def test_ctrl_c_stops_and_the_next_start_has_the_same_servers(upped: Upped) -> None:
    async with Person(upped.config) as admin:
        before = await admin.active("stays")
        unfinished = [await admin.boot(f"just-accepted-{number}") for number in range(5)]
    assert upped.end(signal.SIGINT) == 0
    assert "Traceback" not in upped.log.read_text()
    assert guests_on_disk(upped.config.data)[before["id"]] == [before["OS-EXT-SRV-ATTR:host"]]
    upped.start()
    async with Person(upped.config) as admin:
        after = await admin.settled(before["id"])
        assert (after["status"], after["addresses"]) == ("ACTIVE", before["addresses"])
        assert {(await admin.settled(each))["status"] for each in unfinished} == {"ACTIVE"}
        await nothing_leaked(upped.config, admin)


def test_a_taken_port_is_said_clearly(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        others = [f"--{name}-port={free}" for name, free in zip(SERVICES[1:], free_ports(4), strict=True)]
        command = [sys.executable, "-m", "moorage", "up", f"--data-dir={tmp_path}", f"--identity-port={port}", *others]
        told = subprocess.run(command, capture_output=True, text=True, timeout=READY_S, cwd=tmp_path, check=False)
    assert told.returncode == 2
    assert f"port {port} on 127.0.0.1 is taken" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_directory_in_use_is_said_clearly(upped: Upped) -> None:
    ports = [f"--{name}-port={free}" for name, free in zip(SERVICES, free_ports(5), strict=True)]
    command = [sys.executable, "-m", "moorage", "up", f"--data-dir={upped.config.data}", *ports]
    told = subprocess.run(command, capture_output=True, text=True, timeout=READY_S, cwd=upped.directory, check=False)
    assert told.returncode == 2
    assert "another moorage already runs" in told.stderr
