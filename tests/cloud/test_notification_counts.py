"""What notifications cost a boot: nothing when nobody wants them, and a statement in commits that are made anyway when somebody does."""

from collections import Counter

import pytest
from conftest import Running, Start

from moorage.main.config import Hosts, Notifications
from moorage.testing.waiting import until

BOOTS = 5


async def spent(running: Running) -> tuple[Counter[str], Counter[str]]:
    """Statements and commits by step of some boots, one after the other."""
    meter = running.cloud.region.meter
    await running.admin.active("warm")
    await until(lambda: meter.commits["region", "end"] == 1)  # a server is shown ACTIVE before its operation ends
    before = meter.statements.copy(), meter.commits.copy()
    for number in range(BOOTS):
        await running.admin.active(f"s{number}")
        await until(lambda wanted=number + 2: meter.commits["region", "end"] == wanted)  # type: ignore[misc]
    found: list[Counter[str]] = []
    for now, then in zip((meter.statements, meter.commits), before, strict=True):
        counted: Counter[str] = Counter()
        for (database, label), number in (now - then).items():
            if label in STEPS:
                counted[f"{database.rstrip('0123456789')}:{label}"] += number
        found.append(counted)
    return found[0], found[1]


STEPS = ("accept", "claim_host", "record_server", "announce", "end")


@pytest.mark.slow
async def test_a_boot_pays_one_statement_for_each_commit_that_says_something(start: Start) -> None:
    hosts = Hosts(count=2)
    seen = {}
    for name, wanted in (
        ("off", Notifications()),
        ("on", Notifications(bus=True, notification_format="both")),
        ("states", Notifications(bus=True, notify_on_state_change="vm_and_task_state")),
    ):
        async with start(notifications=wanted, hosts=hosts) as running:
            seen[name] = await spent(running)
            for server in (await running.admin.compute("GET", "/servers")).json()["servers"]:
                await running.admin.gone(server["id"])
    (off, commits), (on, on_commits), (states, states_commits) = seen["off"], seen["on"], seen["states"]
    assert commits == on_commits == states_commits
    assert on - off == Counter({"region:claim_host": BOOTS, "region:end": BOOTS})
    assert states - off == Counter({"region:accept": BOOTS, "region:claim_host": BOOTS, "region:end": BOOTS})
    assert off - on == Counter()
