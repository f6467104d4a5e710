"""The PostgreSQL that `moorage set` starts asks everybody for a password: other users of the machine reach its port and its socket."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from moorage.main.local_cluster.postgres import PostgresServer, find_binaries, start_postgres

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL")
ROLE = "moorage_api"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = start_postgres(passwords=True)
    try:
        made.create_database("region")
        made._sql(f"CREATE ROLE {ROLE} LOGIN")
        made.let_in([ROLE])
        yield made
    finally:
        made.stop()


def answer(server: PostgresServer, *place: str, password: str | None = None, user: str | None = None) -> str:
    """What psql prints and says to somebody with this password, and as whom of the machine."""
    environment = {"PATH": "/"} if password is None else {"PATH": "/", "PGPASSWORD": password}
    words = [str(server.bin / "psql"), "-X", "-w", "-At", *place, "-c", "SELECT current_user"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, cwd="/", env=environment, user=user
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("role", ["moorage", ROLE, "postgres"])
def test_another_user_of_the_machine_is_not_let_in(server: PostgresServer, role: str) -> None:
    port = server.url.rpartition("/")[0].rpartition(":")[2]
    stranger = None if os.geteuid() else "nobody"
    for host in ("127.0.0.1", str(server.folder)):
        place = ("-h", host, "-p", port, "-U", role, "-d", "region")
        assert "no password supplied" in answer(server, *place, user=stranger)
        assert "authentication failed" in answer(server, *place, password="moorage", user=stranger)


def test_each_role_has_a_password_of_its_own(server: PostgresServer) -> None:
    assert answer(server, "-d", server.url_as(ROLE, "region")) == f"{ROLE}\n"
    assert answer(server, "-d", server.url_of("region")) == "moorage\n"
    own = server.url_as(ROLE, "region").replace(f"{ROLE}:", "moorage:")
    assert "authentication failed" in answer(server, "-d", own)


def test_a_server_of_tests_asks_for_none() -> None:
    server = PostgresServer("postgresql://moorage@127.0.0.1:1/postgres", *(None, None, None))  # type: ignore[arg-type]
    assert server.url_as(ROLE, "region") == f"postgresql://{ROLE}@127.0.0.1:1/region"
