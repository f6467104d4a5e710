"""Servers that wait for a host, in a set of real processes: whichever process is killed or paused, none is lost, and each exists once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS
from moorage_testing.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]

SETTINGS = f"""
{CHEAP_LOGINS_SETTINGS}[quota]
instances = -1
cores = -1
ram = -1

[compute]
lease_s = 10.0
lease_beat_s = 2.0
"""
HOSTS = 4
SERVERS = 9


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialSet]:
    directory: Path = tmp_path_factory.mktemp("set")
    trial = TrialSet(directory, hosts=HOSTS, settings=SETTINGS)
    try:
        trial.start()
        yield trial
    finally:
        trial.stop()


@pytest.fixture
async def admin(trial: TrialSet) -> AsyncIterator[Person]:
    async with Person(trial.config, urls=trial.api_urls()) as person:
        yield person


async def set_hosts(admin: Person, status: str) -> None:
    """All hosts in or out of service."""
    services = (await admin.compute("GET", "/os-services", binary="nova-compute")).json()["services"]
    assert len(services) == HOSTS
    for each in services:
        reply = await admin.compute("PUT", f"/os-services/{each['id']}", {"status": status})
        assert reply.status_code == 200, reply.text


async def waiters(admin: Person, name: str, count: int = SERVERS) -> list[str]:
    return list(await asyncio.gather(*(admin.boot(f"{name}{n}", hints={"moorage:wait": True}) for n in range(count))))


async def all_sleep(admin: Person, servers: list[str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows = (await admin.compute("GET", "/ext/waiting")).json()["waiting"]
            if {each["server"] for each in rows if each["state"] == "asleep"} == set(servers):
                return
            await asyncio.sleep(0.1)


async def all_active(trial: TrialSet, admin: Person, servers: list[str]) -> None:
    """Each with one guest, and nobody waits."""
    found = await asyncio.gather(*(admin.settled(each) for each in servers))
    assert {each["status"] for each in found} == {"ACTIVE"}, [each.get("fault") for each in found]
    seen = await nothing_leaked(trial.config, admin)
    assert {each: len(hosts) for each, hosts in seen.guests.items()} == dict.fromkeys(servers, 1)
    assert (await admin.compute("GET", "/ext/waiting", all_projects="1")).json()["servers"] == 0
    await asyncio.gather(*(admin.gone(each) for each in servers))


async def test_the_conductor_that_leads_is_killed_while_servers_wait(trial: TrialSet, admin: Person) -> None:
    """Whichever of them leads: both are killed, one after the other; what is freed while nobody leads is not missed."""
    for name in ("conductor-1", "conductor-2"):
        await set_hosts(admin, "disabled")
        servers = await waiters(admin, "w")
        await all_sleep(admin, servers)
        trial.kill(name)
        await set_hosts(admin, "enabled")
        await all_active(trial, admin, servers)
        trial.run(name, "conductor")


async def test_a_conductor_is_killed_while_servers_fall_asleep(trial: TrialSet, admin: Person) -> None:
    """Some of them sleep by then, some are adopted and sleep later; some are deleted meanwhile, and go at once."""
    await set_hosts(admin, "disabled")
    asked = asyncio.create_task(waiters(admin, "early"))
    trial.kill("conductor-1")
    servers = await asked
    gone, kept = servers[: SERVERS // 3], servers[SERVERS // 3 :]
    await asyncio.gather(*(admin.gone(each) for each in gone))
    await all_sleep(admin, kept)
    await set_hosts(admin, "enabled")
    await all_active(trial, admin, kept)
    trial.run("conductor-1", "conductor")


async def test_a_long_paused_conductor_loses_no_waiting_boot(trial: TrialSet, admin: Person) -> None:
    """Paused while boots fall asleep; others adopt what it executed, and it finds itself fenced."""
    await set_hosts(admin, "disabled")
    asked = asyncio.create_task(waiters(admin, "paused"))
    trial.pause("conductor-1")
    servers = await asked
    await all_sleep(admin, servers)
    trial.resume("conductor-1")
    await all_sleep(admin, servers)
    await set_hosts(admin, "enabled")
    await all_active(trial, admin, servers)


async def test_the_database_restarts_while_servers_wait(trial: TrialSet, admin: Person) -> None:
    await set_hosts(admin, "disabled")
    servers = await waiters(admin, "outage")
    await all_sleep(admin, servers)
    assert trial.postgres is not None
    await asyncio.to_thread(trial.postgres.restart)
    async with asyncio.timeout(PATIENCE_S):
        while (await admin.compute("GET", "/os-services")).status_code != 200:  # noqa: ASYNC110 - another process answers
            await asyncio.sleep(0.2)
    await set_hosts(admin, "enabled")
    await all_active(trial, admin, servers)
