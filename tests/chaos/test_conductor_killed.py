"""A set of real processes on PostgreSQL and NATS: whichever process is killed or paused, every accepted server exists once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import nothing_leaked
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS
from moorage_testing.waiting import until

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
lease_s = 6.0
lease_beat_s = 1.0
"""


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialSet]:
    directory: Path = tmp_path_factory.mktemp("set")
    trial = TrialSet(directory, hosts=4, settings=SETTINGS)
    try:
        trial.start()
        yield trial
    finally:
        trial.stop()


@pytest.fixture
async def admin(trial: TrialSet) -> AsyncIterator[Person]:
    async with Person(trial.config, urls=trial.api_urls()) as person:
        yield person


async def all_active(admin: Person, servers: list[str]) -> None:
    """Every one ACTIVE: there is room for all."""
    found = await asyncio.gather(*(admin.settled(each) for each in servers))
    wrong = [(each["id"], each["status"], each.get("fault")) for each in found if each["status"] != "ACTIVE"]
    assert wrong == []


async def all_once(trial: TrialSet, admin: Person, servers: list[str]) -> None:
    """One guest, one port, one claim for each, and nothing beside."""
    seen = await nothing_leaked(trial.config, admin)
    assert set(seen.servers) == set(servers)
    assert {each: len(hosts) for each, hosts in seen.guests.items()} == dict.fromkeys(servers, 1)
    assert {each: len(seen.ports.get(each, [])) for each in servers} == dict.fromkeys(servers, 1)
    assert {each: len({host for host, _ in seen.claims[each]}) for each in servers} == dict.fromkeys(servers, 1)


async def tidied(admin: Person, servers: list[str]) -> None:
    await asyncio.gather(*(admin.gone(each) for each in servers))


async def test_a_conductor_is_killed_in_the_middle_of_fifty_boots(trial: TrialSet, admin: Person) -> None:
    asked = [asyncio.create_task(admin.boot(f"many-{number}")) for number in range(50)]
    servers = [await each for each in asked[:25]]
    trial.kill("conductor-1")
    servers += [await each for each in asked[25:]]
    await all_active(admin, servers)
    await all_once(trial, admin, servers)
    assert "adopted" in trial.log_of("conductor-2")
    trial.run("conductor-1", "conductor")
    await tidied(admin, servers)
    await nothing_leaked(trial.config, admin)


async def test_an_api_process_is_killed_right_after_it_accepted(trial: TrialSet, admin: Person) -> None:
    async with Person(trial.config, urls=trial.api_urls()[1:]) as there:
        servers = list(await asyncio.gather(*(there.boot(f"orphan-{number}") for number in range(12))))
    trial.kill("api-2")
    admin.urls = trial.api_urls()[:1]
    await all_active(admin, servers)
    await all_once(trial, admin, servers)
    await tidied(admin, servers)
    trial.run("api-2", *trial.api_arguments(1))


async def test_a_paused_conductor_has_lost_its_operations(trial: TrialSet, admin: Person) -> None:
    asked = [asyncio.create_task(admin.boot(f"slow-{number}")) for number in range(20)]
    servers = [await each for each in asked[:10]]
    trial.pause("conductor-1")
    servers += [await each for each in asked[10:]]
    await all_active(admin, servers)
    before = await nothing_leaked(trial.config, admin)
    at = len(trial.log_of("conductor-1"))
    trial.resume("conductor-1")
    await until(
        lambda: (
            "lost its lease" in trial.log_of("conductor-1")[at:]
            or "executed by another" in trial.log_of("conductor-1")[at:]
        )
    )
    await all_active(admin, servers)
    after = await nothing_leaked(trial.config, admin)
    assert (after.servers, after.guests, after.claims) == (before.servers, before.guests, before.claims)
    await all_once(trial, admin, servers)
    await tidied(admin, servers)


async def test_the_database_restarts_in_the_middle_of_boots(trial: TrialSet, admin: Person) -> None:
    """What was accepted waits for it; what was not accepted was refused clearly, and left nothing."""
    postgres = trial.postgres
    assert postgres is not None
    first = [asyncio.create_task(admin.boot(f"early-{number}")) for number in range(10)]
    servers = [await each for each in first]
    restarting = asyncio.create_task(asyncio.to_thread(postgres.restart))
    during = await asyncio.gather(*(admin.ask_boot(f"during-{number}") for number in range(5)))
    await restarting
    assert {reply.status_code for reply in during} <= {202, 503}
    servers += [str(reply.json()["server"]["id"]) for reply in during if reply.status_code == 202]
    await all_active(admin, servers)
    seen = await nothing_leaked(trial.config, admin)
    accepted_unheard = set(seen.servers) - set(servers)  # the commit was done, and its reply was lost
    await all_once(trial, admin, [*servers, *accepted_unheard])
    await tidied(admin, list(seen.servers))


async def test_every_api_process_serves_the_same_placement(trial: TrialSet, admin: Person) -> None:
    """The catalog names the first; what was written at one is read at the other, and a boot's claim at both."""
    token = trial.token()
    server = (await admin.active("counted"))["id"]
    async with httpx.AsyncClient(timeout=30) as client:
        identity = f"{trial.config.api.identity.url}/v3/auth/catalog"
        catalog = (await client.get(identity, headers={"X-Auth-Token": token})).json()["catalog"]
        named = {point["url"] for each in catalog if each["type"] == "placement" for point in each["endpoints"]}
        first, second = trial.placement_urls()
        assert named == {first}

        async def ask(url: str, method: str, path: str, body: object = None) -> Any:
            headers = {"X-Auth-Token": token, "OpenStack-API-Version": "placement 1.39"}
            reply = await client.request(method, url + path, headers=headers, json=body)
            assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
            return reply.json() if reply.content else None

        claimed = await ask(first, "GET", f"/allocations/{server}")
        assert claimed == await ask(second, "GET", f"/allocations/{server}")
        host = next(iter(claimed["allocations"]))
        assert claimed["allocations"][host]["resources"]["VCPU"] == 1
        made = await ask(second, "POST", "/resource_providers", {"name": "elsewhere"})
        uuid = made["uuid"]
        stock = {"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 5}}}
        await ask(first, "PUT", f"/resource_providers/{uuid}/inventories", stock)
        found = await ask(second, "GET", f"/allocation_candidates?resources=DISK_GB:5&in_tree={uuid}")
        assert list(found["provider_summaries"]) == [uuid]
        await ask(second, "DELETE", f"/resource_providers/{uuid}")
        gone = await client.get(f"{first}/resource_providers/{uuid}", headers={"X-Auth-Token": token})
        assert gone.status_code == 404
    await tidied(admin, [server])
