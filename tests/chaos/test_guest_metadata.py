"""The metadata service and the console proxy as separate processes, killed and started again; and the traces of a set."""

import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.helpers.trace_collector import Collector, collecting
from websockets.asyncio.client import connect

from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage.main.metadata_secret import shared_secret
from moorage_testing.api_user import Person
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS
from moorage_testing.private_files import open_to_others
from moorage_testing.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[TrialSet]:
    directory: Path = tmp_path_factory.mktemp("set")
    settings = f'\n[tracing]\nendpoint = "{collector.url}"\ntrust_callers = true\n\n{CHEAP_LOGINS_SETTINGS}'
    trial = TrialSet(directory, hosts=1, apis=1, conductors=1, guests_ask=True, durability="none", settings=settings)
    try:
        trial.start()
        yield trial
    finally:
        trial.stop()


@pytest.fixture
async def admin(trial: TrialSet) -> AsyncIterator[Person]:
    async with Person(trial.config, urls=trial.api_urls()) as person:
        yield person


async def ask_name(trial: TrialSet, admin: Person, server: str, project: str) -> str:
    secret = shared_secret(trial.config).encode()
    who = {
        "X-Instance-ID": server,
        "X-Tenant-ID": project,
        "X-Instance-ID-Signature": hmac.new(secret, server.encode(), hashlib.sha256).hexdigest(),
    }
    reply = await admin.http.get(f"{trial.config.api.metadata.url}/latest/meta-data/hostname", headers=who)
    assert reply.status_code == 200, reply.text
    return reply.text


async def echo(admin: Person, server: str) -> bytes:
    """What a serial line says to a word."""
    asked = {"remote_console": {"protocol": "serial", "type": "serial"}}
    reply = await admin.compute("POST", f"/servers/{server}/remote-consoles", asked)
    assert reply.status_code == 200, reply.text
    url = reply.json()["remote_console"]["url"]
    assert parse_qs(urlsplit(url).query)["token"]
    async with connect(url, proxy=None, open_timeout=180) as socket:
        await socket.send(b"\x00word\x00")
        said = b""
        while b"\x00word\x00" not in said:
            more = await socket.recv()
            said += more if isinstance(more, bytes) else more.encode()
    return said


async def test_both_hosts_answer_guests_also_after_a_kill(trial: TrialSet, admin: Person) -> None:
    server = await admin.active("web")
    for _ in range(2):
        assert await ask_name(trial, admin, server["id"], server["tenant_id"]) == "web.novalocal"
        assert b"login:" in await echo(admin, server["id"])
        for role in ("metadata", "console"):
            trial.kill(role)
            trial.run(role, role)
    await admin.gone(server["id"])


async def test_files_of_the_roles_are_private(trial: TrialSet, admin: Person) -> None:
    """Databases are PostgreSQL's; the rest is of the agent, the embedded services, and what they share."""
    server = await admin.active("kept", config_drive=True)
    data = trial.config.data
    kept = {path.name for path in data.rglob("*")}
    assert {"agent.db", "agent.db-wal", "identity.db", "identity.db-wal", "secrets", "images", "volumes"} <= kept
    assert f"{server['id']}.json" in kept
    assert f"{server['id']}.iso" in kept
    assert open_to_others(trial.directory) == []
    await admin.gone(server["id"])


async def test_one_trace_goes_through_all_processes(trial: TrialSet, admin: Person, collector: Collector) -> None:
    reply = await admin.ask_boot("traced")
    server = reply.json()["server"]["id"]
    assert (await admin.settled(server))["status"] == "ACTIVE"
    await admin.gone(server)
    trace = reply.headers["x-openstack-request-id"].removeprefix("req-").replace("-", "")
    wanted = {
        ("moorage-api", "request", "POST /servers"),
        ("moorage-conductor", "operation", "boot/1"),
        ("moorage-conductor", "step", "start_guest"),
        ("moorage-conductor", "call", "network POST ports"),
        ("moorage-embedded", "request", "POST /v2.0/ports"),
        ("moorage-conductor", "command", "start_guest"),
        ("moorage-agent", "obey", "start_guest"),
        ("moorage-agent", "drive", "start_guest"),
    }
    await until(lambda: wanted <= {(each.service, each.kind, each.name) for each in collector.of(trace)})
    above = {each.id: each for each in collector.of(trace)}

    def way_up(name: str, kind: str) -> list[str]:
        """From a span to the request."""
        span, kinds = collector.named(trace, name, kind), [kind]
        while span.parent:
            span = above[span.parent]
            kinds.append(span.kind)
        return kinds

    assert way_up("start_guest", "drive") == ["drive", "obey", "command", "step", "operation", "request"]
    assert way_up("POST /v2.0/ports", "request") == ["request", "call", "step", "operation", "request"]
