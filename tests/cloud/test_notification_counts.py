"""What notifications cost a boot: nothing when they are off, and one statement in existing commits when they are on."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.cloud.conftest import Running, Start

from moorage.main.config import Hosts
from moorage.main.config_notifications import Notifications
from moorage.model.notification import Notification
from moorage.sql import Tx, current_label
from moorage.store.outbox import OutboxTable

BOOTS = 5


async def booted(running: Running, name: str) -> None:
    """A server is shown ACTIVE before its operation ends."""
    await running.wait_until_unlocked((await running.admin.active(name))["id"])


async def spent(running: Running) -> tuple[Counter[str], Counter[str]]:
    """Statements and commits by step of some boots, one after the other."""
    meter = running.cloud.region.meter
    await booted(running, "warm")
    before, told = (meter.statements.copy(), meter.commits + meter.shared), TOLD.copy()
    for number in range(BOOTS):
        await booted(running, f"s{number}")
    found: list[Counter[str]] = []
    for now, then in zip((meter.statements, meter.commits + meter.shared), before, strict=True):
        counted: Counter[str] = Counter()
        for (database, label), number in (now - then).items():
            if label in STEPS:
                counted[f"{database.rstrip('0123456789')}:{label}"] += number
        found.append(counted)
    found[0].update({f"told:{label}": number for label, number in (TOLD - told).items()})
    return found[0], found[1]


def count_the_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the step whose commit it is in; whatever is told in one is one statement."""
    write = OutboxTable.write

    class Counting:
        """Counts this transaction's statements; the database's meter counts those of others that run at the same time too."""

        def __init__(self, tx: Tx) -> None:
            self.tx = tx

        def run(self, statement: Any, parameters: Any = None) -> None:
            TOLD[current_label()] += 1
            self.tx.run(statement, parameters)

    def counted(self: OutboxTable, tx: Tx, notifications: Sequence[Notification]) -> None:
        write(self, cast("Tx", Counting(tx)), notifications)

    monkeypatch.setattr(OutboxTable, "write", counted)


TOLD: Counter[str] = Counter()
STEPS = ("accept", "claim_host", "record_server", "announce", "end")


@pytest.mark.slow
async def test_a_boot_costs_one_statement_for_each_notifying_commit(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_the_told(monkeypatch)
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
    for each in (commits, on_commits, states_commits):  # fewer where one was in a commit of somebody else's
        assert set(each) <= set(commits)
        assert max(each.values()) <= BOOTS
    for told, steps in ((on, ("claim_host", "end")), (states, ("accept", "claim_host", "end"))):
        assert {label: told[f"told:{label}"] for label in STEPS} == {label: BOOTS * (label in steps) for label in STEPS}
        for label in (
            "claim_host",
            "record_server",
            "announce",
            "end",
        ):  # an acceptance may also read what a cache lost
            kind = "region" if label in ("claim_host", "end") else "cell"
            assert told[f"{kind}:{label}"] - off[f"{kind}:{label}"] == BOOTS * (label in steps)
    assert [label for label in off if label.startswith("told:")] == []
