"""The last release together with this one: separate processes on its databases, exchanged one by one under load (S0.22, S2.12).

Each step kills one process and starts it with the other release, while boots, deletes, attaches and stops are under way; then
everything that was acknowledged must be kept, and nothing be left over.  Forward in the documented order, all the way back, and
forward again in the wrong order: harmless, if not recommended.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from moorage import __version__
from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.api_user import Person
from moorage_testing.fault_rounds import ProcessFault, Rounds
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.releases import Installed, installed, last_release, releases, version_of
from moorage_testing.up_process import UpProcess

pytestmark = pytest.mark.slow
no_servers = pytest.mark.skipif(
    find_binaries() is None or nats_server_program() is None, reason="no PostgreSQL or NATS here"
)
SETTINGS = "\n[quota]\ninstances = -1\ncores = -1\nram = -1\n\n[compute]\nhost_silence_s = 150.0\n"
"""Both agents end at one time, and on a busy machine they are not back in half a minute: boots wait for them."""
CONDUCTORS, APIS, AGENTS = ("conductor-1", "conductor-2"), ("api-1", "api-2"), ("agent-host1", "agent-host2")
NEIGHBOURS = ("embedded",)
NO_ROOM = "no free address"
"""The one cause for which a boot may fail: the routed network of a trial set is small."""
SEED = 11
UNDER_WAY = 6
SIX_HOSTS = "[hosts]\ncount = 6\n\n"
"""As the last release has by default: it does not know the hosts seven and eight."""
STATUS_S = 180.0
"""A process that was killed is listed for half a minute."""
NOW = __version__

Steps = Sequence[tuple[str, ...]]
DOCUMENTED: Steps = (*((each,) for each in (*CONDUCTORS, *APIS)), AGENTS, NEIGHBOURS)
BACKWARDS: Steps = DOCUMENTED[::-1]
WRONG: Steps = (NEIGHBOURS, AGENTS, *((each,) for each in (*APIS, *CONDUCTORS)))


@pytest.fixture(scope="module")
def last() -> Installed:
    return installed(last_release())


@pytest.fixture
async def trial(tmp_path: Path, last: Installed) -> AsyncIterator[TrialSet]:
    """All of the last release, on databases that it made."""
    every = [each for step in DOCUMENTED for each in step]
    trial = TrialSet(tmp_path, hosts=2, settings=SETTINGS, durability="none", releases=dict.fromkeys(every, last))
    try:
        await asyncio.to_thread(trial.start)
        yield trial
    finally:
        await asyncio.to_thread(trial.stop)


def test_the_last_release_is_the_newest_before_this_one(last: Installed) -> None:
    assert version_of(last) == last.release.version
    known = releases("# a comment\n0.10.0 c\n0.2.0 b\n0.1.0 a\n")
    assert [each.version for each in known] == ["0.1.0", "0.2.0", "0.10.0"]
    assert last_release("0.2.0").version == "0.1.0"
    with pytest.raises(LookupError):
        last_release("0.1.0")


async def exchange(trial: TrialSet, player: Rounds, step: tuple[str, ...], release: Installed | None) -> None:
    """Under load, these processes end and come back as the other release (None: ours)."""
    for name in step:
        if release is None:
            trial.releases.pop(name, None)
        else:
            trial.releases[name] = release
    totals = await player.play(
        [ProcessFault("kill", name, 0.4 + 0.8 * number, 0.0) for number, name in enumerate(step)]
    )
    said = f"after {', '.join(step)} became {'ours' if release is None else release.release.version}"
    assert totals.lost == [], said
    assert (totals.leaked, totals.stuck) == ([], []), said
    assert [reason for reason in totals.reasons if NO_ROOM not in reason] == [], said


async def in_play(trial: TrialSet, api_process: str, **wanted: dict[str, int]) -> None:
    """What `moorage status` says of each role's releases, asked of one of our APIs; "" does not say."""
    url = trial.api_urls()[APIS.index(api_process)]
    async with Person(trial.config, urls=[url]) as admin:
        deadline = time.monotonic() + STATUS_S
        while True:
            answer = (await admin.compute("GET", "/ext/gates")).json()["gates"]["releases"]
            seen: dict[str, dict[str, int]] = {}
            for each in answer:
                seen.setdefault(each["role"], {})[each["release"]] = each["count"]
            if seen == wanted:
                return
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.1)


@pytest.mark.postgres
@no_servers
async def test_forward_back_and_forward_again(trial: TrialSet, last: Installed) -> None:
    player = Rounds(trial, SEED)
    old = last.release.version
    for step in DOCUMENTED:
        await exchange(trial, player, step, None)
        if step == (APIS[-1],):
            await in_play(trial, APIS[0], agent={old: 2}, api={NOW: 2}, conductor={NOW: 2})
    await in_play(trial, APIS[1], agent={NOW: 2}, api={NOW: 2}, conductor={NOW: 2})
    for step in BACKWARDS:
        await exchange(trial, player, step, last)
    for step in WRONG:
        await exchange(trial, player, step, None)
        if step == (APIS[-1],):
            await in_play(trial, APIS[0], agent={NOW: 2}, api={NOW: 2}, conductor={"": 2})
    await in_play(trial, APIS[1], agent={NOW: 2}, api={NOW: 2}, conductor={NOW: 2})
    assert player.totals.acknowledged > 5 * player.totals.rounds


@pytest.fixture
def upped(tmp_path: Path) -> Iterator[UpProcess]:
    up = UpProcess(tmp_path, SIX_HOSTS)
    yield up
    if up.process is not None:
        up.end(signal.SIGKILL)


async def test_a_data_directory_is_brought_forward_and_back(upped: UpProcess, last: Installed) -> None:
    """`moorage up` of either release on one directory, killed with operations under way; nothing that was promised is lost."""
    standing: dict[str, list[str]] = {}
    under_way: list[str] = []
    going: list[str] = []
    for number, release in enumerate((last, None, last, None, None)):
        upped.release = release
        upped.start()
        async with Person(upped.config) as admin:
            for each in under_way:
                assert (await admin.settled(each))["status"] == "ACTIVE"
            for each in going:
                await admin.absent(each)
            if number:
                seen = await nothing_leaked(upped.config, admin)
                assert set(seen.servers) == {*standing, *under_way}
                assert {each: seen.guests[each] for each in standing} == standing
            kept = [(await admin.active(f"stays-{number}", networks=name))["id"] for name in ("private", "routed")]
            wish = {"interfaceAttachment": {"net_id": await admin.id_of("network", "private")}}
            for each in (*standing, *under_way, *kept):
                reply = await admin.compute("POST", f"/servers/{each}/os-interface", wish)
                assert reply.status_code == 200, reply.text
            going = under_way
            standing = {each: on for each, on in guests_on_disk(upped.config.data).items() if each not in going}
            under_way = [await admin.boot(f"under-way-{number}-{each}") for each in range(UNDER_WAY)]
            for each in going:
                await admin.delete(each)
        upped.end(signal.SIGKILL)
