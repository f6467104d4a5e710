"""A set of processes is secured when it starts: a stolen host key gives access to that host only, and each process has the database rights that it needs."""

import asyncio
import base64
import hashlib
import subprocess
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.bus import legacy_subjects, nats, subjects
from moorage.bus.command_messages import Command, Result
from moorage.bus.guest_payloads import ConsoleOutput
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport, ServersOfHost, ServerTurn
from moorage.bus.messages import encode, pack
from moorage.bus.nats import NatsBus
from moorage.bus.security import Security
from moorage.bus.verbs import Verb
from moorage.main.bus import make_key
from moorage.main.databases import connect_databases
from moorage.main.db import ROLES
from moorage.main.hosts import planned_hosts
from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PowerState, ResourceInventory
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId
from moorage.store.cell import hosts as cell_hosts
from moorage_testing.api_user import Person
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS
from moorage_testing.waiting import until

DATABASES = ("region", "cell1", "cell2")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]
THIEF, VICTIM = "host1", "host2"
EVIL = ConductorId("conductor-evil")
SECRET = base64.b64encode(b"#cloud-config\npassword: CANARY-TENANT-SECRET").decode()
DENIED, OWNERS = "permission denied", "must be owner"
HUGE = {name: ResourceInventory(100_000) for name in ("VCPU", "MEMORY_MB", "DISK_GB")}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialSet]:
    directory: Path = tmp_path_factory.mktemp("set")
    trial = TrialSet(
        directory,
        hosts=2,
        apis=1,
        conductors=1,
        guests_ask=True,
        durability="none",
        settings=f"\n{CHEAP_LOGINS_SETTINGS}",
    )
    try:
        trial.start()
        yield trial
    finally:
        trial.stop()


@pytest.fixture
async def admin(trial: TrialSet) -> AsyncIterator[Person]:
    async with Person(trial.config, urls=trial.api_urls()) as person:
        yield person


@asynccontextmanager
async def as_agent(trial: TrialSet, host: str, nkey: Path | None = None) -> AsyncIterator[NatsBus]:
    """A connection with all that the agent's file has."""
    output = tomllib.loads(trial.path_of(f"agent-{host}").read_text())["bus"]
    security = Security(nkey=nkey or Path(output["nkey"]), tls=output["tls"], ca=Path(output["ca"]))
    bus = await nats.connect([output["url"]], patience_s=60.0, security=security)
    try:
        yield bus
    finally:
        await bus.close()


def cell_of(trial: TrialSet, host: str) -> CellId:
    return next(plan.cell for plan in planned_hosts(trial.config) if plan.host == host)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def providers(admin: Person, trial: TrialSet) -> dict[str, int]:
    """vCPUs of each provider that has any."""
    found = {}
    rows = (await admin.http.get(f"{trial.placement_urls()[0]}/resource_providers")).json()["resource_providers"]
    for each in rows:
        stock = (
            await admin.http.get(f"{trial.placement_urls()[0]}/resource_providers/{each['uuid']}/inventories")
        ).json()
        if "VCPU" in stock["inventories"]:
            found[each["name"]] = stock["inventories"]["VCPU"]["total"]
    return found


def test_an_agents_file_contains_no_foreign_secret(trial: TrialSet) -> None:
    for host in (THIEF, VICTIM):
        path = trial.path_of(f"agent-{host}")
        output = tomllib.loads(path.read_text())
        assert path.stat().st_mode & 0o777 == 0o600
        assert not output.keys() & {"region", "cells", "service_user", "admin_password", "database", "network"}
        assert "postgresql" not in path.read_text()
        assert trial.config.service_user.password not in path.read_text()
        assert "has no use" not in trial.log_of(f"agent-{host}")
    conductor = tomllib.loads(trial.path_of("conductor-1").read_text())
    assert conductor["bus"]["nkey"] != tomllib.loads(trial.path_of("agent-host1").read_text())["bus"]["nkey"]


async def test_a_stolen_host_key_gives_access_to_that_host_only(trial: TrialSet, admin: Person) -> None:
    """Each of what an agent could once do with everybody's guests."""
    cell, far = cell_of(trial, THIEF), cell_of(trial, VICTIM)
    messages: list[tuple[str, bytes]] = []

    async def on_message(subject: str, payload: bytes) -> None:
        messages.append((subject, payload))

    before = await providers(admin, trial)
    async with as_agent(trial, THIEF) as thief:
        for pattern in (
            "moorage.>",
            ">",
            subjects.to_host(far, VICTIM),
            subjects.results_for(EVIL),
            legacy_subjects.results_for(EVIL),
            subjects.ALL_HEARTBEATS,
        ):
            await thief.subscribe(pattern, on_message)
        # 1. what tenants tell their guests is not overheard
        victim = await admin.active("victim", availability_zone=f"nova:{VICTIM}", user_data=SECRET, config_drive=True)
        server = ServerId(victim["id"])
        file = trial.directory / "data" / "hosts" / VICTIM / "guests" / f"{server}.json"
        assert file.exists()
        guest = digest(file)

        def command(verb: Verb, payload: Any = None) -> bytes:
            said = Command(
                server, FencingToken(1_000_000), f"{verb}/x", verb, OperationId("x"), 4e9, EVIL, left_s=60.0, knows_senders=True
            )  # fmt: skip
            return encode(said if payload is None else msgspec.structs.replace(said, payload=pack(payload)))

        # 2. no guest of another host is destroyed, stopped or looked into
        gone = ServersOfHost("", (ServerTurn(server, None, here=False, running=False, gone=True),))
        for payload in (
            encode(gone),
            command(Verb.DESTROY_GUEST),
            command(Verb.POWER_OFF),
            command(Verb.CONSOLE_OUTPUT, ConsoleOutput(5)),
        ):
            await thief.publish(subjects.to_host(far, VICTIM), payload)
        # 3. nothing is said for another host, or for one that does not exist: not under its name, nor under our own
        lies: list[Any] = []
        for host, where in ((VICTIM, far), ("evilhost", cell), (THIEF, far)):
            lies += [
                HostReport(host, where, "x", "evil", inventory=HUGE, guests={server: PowerState.SHUTDOWN}, hypervisor_hostname=host),
                Heartbeat(host, where, "evil", 1, 1, "x", changed={server: PowerState.SHUTDOWN}),
                Heartbeat(host, where, "evil", 2, leaving=True),
                AgentReturned(host, where, "q", (server,), agent="evil"),
                Result(host, where, server, FencingToken(1), "start_guest", ok=False, code="driver_broke"),
            ]  # fmt: skip
        own = subjects.from_host(cell, THIEF, subjects.REPORT)
        for lie in lies:
            payload = encode(lie)
            kind = {"HostReport": "report", "Heartbeat": "heartbeat", "AgentReturned": "returned"}.get(type(lie).__name__, f"result.{EVIL}")  # fmt: skip
            await thief.publish(subjects.from_host(lie.cell, lie.host, kind), payload)
            await thief.publish(subjects.from_host(cell, THIEF, kind), payload)
            if not kind.startswith("result"):
                await thief.publish(legacy_subjects.of_cell(lie.cell, kind), payload)
        # 4. the thief is its own host; that host may not be another's node, nor many nodes
        boot = await agents_life(trial, THIEF)
        for node in (VICTIM, "evilnode", f"{VICTIM}:Open vSwitch agent"):
            await thief.publish(
                own, encode(HostReport(THIEF, cell, "x", boot, inventory=HUGE, hypervisor_hostname=node))
            )
        # 5. what cannot be read ends nobody
        for junk in (
            b"",
            b"{",
            b"[" * 100_000,
            b"\xff\xfe",
            b'{"type":"host_report"}',
            b'{"type":"heartbeat","beat":1e999}',
        ):
            await thief.publish(own, junk)
        await thief.publish(
            own, encode(HostReport(THIEF, cell, "x", boot, inventory={"VCPU": ResourceInventory(10**30)}))
        )
        conductor = "conductor-1"
        await until(lambda: "is ignored" in trial.log_of(conductor), 60.0)
        await until(lambda: "which is host host2's" in trial.log_of(conductor), 60.0)
        await until(lambda: thief.denied > 0)
    # nothing has happened to anybody else
    assert not [each for each in messages if SECRET.encode() in each[1]]
    assert {subject for subject, _ in messages} <= {subjects.to_host(cell, THIEF)}
    assert digest(file) == guest
    found = (await admin.compute("GET", f"/servers/{server}")).json()["server"]
    assert (found["status"], found["OS-EXT-STS:power_state"]) == ("ACTIVE", 1)
    after = await providers(admin, trial)
    assert {name: after.get(name) for name in (VICTIM, "evilhost", "evilnode")} == {VICTIM: before[VICTIM], "evilhost": None, "evilnode": None}  # fmt: skip
    rows = {row["host"]: row for row in (await admin.compute("GET", "/ext/host-approvals")).json()["host_approvals"]}
    assert rows[VICTIM]["refused_why"] is None
    async with asyncio.timeout(60.0):
        while rows[THIEF]["refused_why"] is None:
            await asyncio.sleep(0.1)
            found = (await admin.compute("GET", "/ext/host-approvals")).json()["host_approvals"]
            rows = {row["host"]: row for row in found}
    # and both hosts go on: the victim's owner has everything, and the thief's host is one that boots
    assert (await admin.compute("POST", f"/servers/{server}/action", {"os-stop": None})).status_code == 202
    await admin.settled(server)
    await admin.gone(server)
    other = await admin.active("other", availability_zone=f"nova:{VICTIM}", user_data=SECRET)
    await admin.gone(other["id"])


async def agents_life(trial: TrialSet, host: str) -> str:
    """What the host's agent calls its life: a thief reads it in its journal, or begins another."""

    databases = await connect_databases(trial.config)
    try:
        return await databases.cells[cell_of(trial, host)].read(lambda tx: cell_hosts.agent_of(tx, host))
    finally:
        await databases.close()


async def test_a_host_waits_for_approval_and_is_disconnected_when_it_is_withdrawn(
    trial: TrialSet, admin: Person, tmp_path: Path
) -> None:
    """Its key is let in by the broker, and nobody has approved its name: it is in no list and takes no server."""
    assert trial.guarded is not None
    assert trial.nats is not None
    make_key(tmp_path / "new.nk")
    cell = cell_of(trial, VICTIM)
    beat = subjects.from_host(cell, "newhost", subjects.HEARTBEAT)
    report = subjects.from_host(cell, "newhost", subjects.REPORT)
    trial.nats.reload(trial.guarded.with_host("newhost", cell, make_key(tmp_path / "new.nk")))
    async with as_agent(trial, THIEF, tmp_path / "new.nk") as new:

        async def say() -> dict[str, Any] | None:
            await new.publish(report, encode(HostReport("newhost", cell, "x", "life", inventory=HUGE)))
            await new.publish(beat, encode(Heartbeat("newhost", cell, "life", 1)))
            reply = await admin.compute("GET", "/ext/host-approvals/newhost")
            return reply.json()["host_approval"] if reply.status_code == 200 else None

        async with asyncio.timeout(120.0):
            while (row := await say()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert (row["status"], row["cell"], row["key"]) == ("waiting", cell, None)
        assert "newhost" not in await providers(admin, trial)
        services = (await admin.compute("GET", "/os-services")).json()["services"]
        assert "newhost" not in {each["host"] for each in services}
        reply = await admin.compute("PUT", "/ext/host-approvals/newhost", {"approval": {}})
        assert reply.status_code == 200, reply.text
        async with asyncio.timeout(120.0):
            while "newhost" not in await providers(admin, trial):
                await say()
                await asyncio.sleep(0.1)
        assert (await admin.compute("DELETE", "/ext/host-approvals/newhost")).status_code == 204
        await until(lambda: "newhost is no longer approved" in trial.log_of("conductor-1"), 120.0)
        up = {each["host"]: each["state"] for each in (await admin.compute("GET", "/os-services")).json()["services"]}
        async with asyncio.timeout(120.0):
            while up["newhost"] != "down":
                await new.publish(beat, encode(Heartbeat("newhost", cell, "life", 2)))
                await asyncio.sleep(0.1)
                listed = (await admin.compute("GET", "/os-services")).json()["services"]
                up = {each["host"]: each["state"] for each in listed}
        trial.nats.reload(trial.guarded.conf)
        await until(lambda: not new.healthy, 60.0)


# ---- the databases ----------------------------------------------------------------------------------------------------


def says(trial: TrialSet, role: str, database: str, statement: str) -> str:
    """What the server answers this role; rolled back."""
    assert trial.postgres is not None
    url = trial.postgres.url_as(role, database)
    words = [str(trial.postgres.bin / "psql"), "-X", "-q", "-t", "-d", url, "-c", f"BEGIN; {statement}; ROLLBACK"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("role", "database", "statement"),
    [
        *((f"moorage_{role}", name, "CREATE TABLE mine (a int)") for role in ("api", "conductor", "console", "metadata") for name in DATABASES),
        *((f"moorage_{role}", "region", "DROP TABLE servers") for role in ("api", "conductor")),
        *((f"moorage_{role}", "region", "TRUNCATE servers") for role in ("api", "conductor")),
        *((f"moorage_{role}", "region", "UPDATE region_version SET version_num = '9999'") for role in ("api", "conductor")),
        ("moorage_api", "region", "DELETE FROM conductors"),
        ("moorage_conductor", "region", "DELETE FROM key_pairs"),
        ("moorage_conductor", "region", "UPDATE quota_limits SET resource = 'x'"),
        ("moorage_console", "region", "DELETE FROM servers"),
        ("moorage_console", "cell1", "UPDATE servers SET host = 'x'"),
        ("moorage_metadata", "region", "SELECT * FROM console_tokens"),
        *((f"moorage_{role}", "region", f"SELECT * FROM {table}") for role in ("console", "metadata") for table in ("key_pairs", "operations", "quota_usage", "host_approvals", "inbox")),
        *((f"moorage_{role}", "cell1", f"SELECT * FROM {table}") for role in ("console", "metadata") for table in ("hosts", "actions", "migrations")),
        ("moorage_console", "region", "SELECT * FROM region_keys"),
        ("moorage_conductor", "region", "DELETE FROM turn_resets"),
        ("moorage_metadata", "cell1", "DELETE FROM actions"),
        ("moorage_metadata", "postgres", "CREATE ROLE another SUPERUSER"),
    ],
)  # fmt: skip
def test_foreign_keys_and_certificates_are_refused(trial: TrialSet, role: str, database: str, statement: str) -> None:
    said = says(trial, role, database, statement)
    assert DENIED in said or OWNERS in said


def test_the_script_can_be_repeated_and_unknown_clients_are_refused(trial: TrialSet) -> None:

    assert trial.postgres is not None
    for name in DATABASES:
        trial.postgres.run_script(name, ROLES)
    said = says(trial, "moorage", "postgres", "CREATE ROLE stranger LOGIN; COMMIT; BEGIN")
    assert "ERROR" not in said
    trial.postgres.let_in(["stranger"])
    for name in DATABASES:
        assert DENIED in says(trial, "stranger", name, "SELECT 1")


async def test_a_secured_cloud_executes_everything(trial: TrialSet) -> None:
    """What a process does beside requests too: nothing is refused to any of them, as their logs say."""
    for role in ("conductor-1", "api-1", "console", "metadata"):
        database = tomllib.loads(trial.path_of(role).read_text())["region"]["database"]
        assert f"//moorage_{role.partition('-')[0]}:" in database
    async with Person(trial.config, urls=trial.api_urls()) as admin:
        server = (await admin.active("web"))["id"]
        for action in (
            {"os-stop": None},
            {"os-start": None},
            {"createImage": {"name": "copy"}},
            {"shelve": None},
            {"unshelve": None},
        ):
            assert (await admin.compute("POST", f"/servers/{server}/action", action)).status_code == 202
            await admin.settled(server)
        async with asyncio.timeout(120.0):
            while not [each for each in await images(admin, "copy") if each["status"] == "active"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert (await admin.compute("GET", f"/servers/{server}")).json()["server"]["status"] == "ACTIVE"
        for kind, body in (
            ("/os-keypairs", {"keypair": {"name": "k", "type": "ssh"}}),
            ("/flavors", {"flavor": {"name": "f", "ram": 64, "vcpus": 1, "disk": 1}}),
            ("/os-aggregates", {"aggregate": {"name": "a"}}),
            ("/os-server-groups", {"server_group": {"name": "g", "policy": "affinity"}}),
        ):
            if kind == "/os-keypairs":
                body["keypair"]["public_key"] = KEY  # type: ignore[index]
            reply = await admin.compute("POST", kind, body)
            assert reply.status_code in (200, 201), reply.text
        await admin.gone(server)
    for name in trial.processes:
        assert DENIED not in trial.log_of(name), name


async def images(admin: Person, name: str) -> list[dict[str, str]]:
    url = f"{admin.config.api.image.url}/v2/images"
    found: list[dict[str, str]] = (await admin.http.get(url, params={"name": name})).json()["images"]
    return found


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7cPg3xnYDg2pPCCDJxVNSKrJNm5uVq3XOOVnWUbCk7 someone@example.org"
