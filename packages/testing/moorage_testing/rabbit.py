"""A RabbitMQ server of our own: Debian's, as a process with its own directory and ports."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.main.local_cluster.ports import free_ports

READY_S = 180.0
STOP_S = 30.0
PLACES = ("/usr/lib/rabbitmq/bin/rabbitmq-server",)


def rabbit_program() -> str | None:
    """Debian's program itself, not the wrapper that becomes another user; None where it is not installed."""
    found = next((place for place in PLACES if Path(place).exists()), None)
    return found or shutil.which("rabbitmq-server")


class Rabbit:
    """Started, stopped and started again, with its queues."""

    def __init__(self, program: str, room: Path) -> None:
        self.program, self.room = program, room
        self.port, distribution, epmd = free_ports(3)
        self.url = f"rabbit://guest:guest@127.0.0.1:{self.port}/"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(room),
            "RABBITMQ_NODENAME": f"moorage{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(room / "mnesia"),
            "RABBITMQ_LOG_BASE": str(room / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(room / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(room / "rabbitmq"),
        }
        (room / "plugins").write_text("[].")
        (room / "rabbitmq.conf").write_text("loopback_users = none\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it takes connections."""
        with (self.room / "out").open("ab") as out:
            self.process = subprocess.Popen(
                [self.program], env=self.environment, cwd=self.room, stdout=out, stderr=out, start_new_session=True
            )
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self.room / "out").read_text()[-3000:])
            time.sleep(0.1)

    def _answers(self) -> bool:
        """It answers `AMQP` and its version to a client with another greeting."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as line:
                line.sendall(b"AMQP\x00\x00\x00\x00")
                return line.recv(4) == b"AMQP"
        except OSError:
            return False

    def stop(self) -> None:
        if self.process is None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(STOP_S)
        self.process = None
        names = shutil.which("epmd")  # Erlang's daemon of names stays behind, and is ours by its port
        if names is not None:
            subprocess.run([names, "-kill"], env=self.environment, capture_output=True, timeout=STOP_S, check=False)


@contextmanager
def rabbit(room: Path) -> Iterator[Rabbit]:
    program = rabbit_program()
    assert program is not None
    room.mkdir(parents=True, exist_ok=True)
    server = Rabbit(program, room)
    server.start()
    try:
        yield server
    finally:
        server.stop()
