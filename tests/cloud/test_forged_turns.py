"""What is forged on the bus under a host's subjects: questions do nothing but ask, a turn far ahead is ignored, and an operator takes
back one that is not.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared

from moorage.agent.turn_bounds import AHEAD_MAX
from moorage.bus import subjects
from moorage.bus.command_messages import Command, ResultKey
from moorage.bus.guest_payloads import ConsoleOutput, PowerOff
from moorage.bus.host_messages import NOT_TOLD_UP_TO
from moorage.bus.messages import encode, pack
from moorage.bus.verbs import READS, Verb
from moorage.model.fencing_token import LAST_ATTEMPT, FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.store.region import numbers
from moorage_testing.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
EVIL = ConductorId("evil")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


class Forger:
    """Publishes commands in nobody's name to the host of one server, and hears the answers."""

    def __init__(self, running: Running, server: dict[str, Any]) -> None:
        self.bus, self.server = running.cloud.region.bus, ServerId(server["id"])
        self.host = server["OS-EXT-SRV-ATTR:host"]
        self.cell = next(plan.cell for plan in running.cloud.plans if plan.host == self.host)
        self.heard: list[bytes] = []

    async def listen(self) -> None:
        async def on_message(_: str, payload: bytes) -> None:
            self.heard.append(payload)

        await self.bus.subscribe(subjects.results_for(EVIL), on_message)

    async def is_listed(self, admin: Any) -> str:
        """Wait until the host is among the approved ones, which is written now and then; returns the path of the server's turn there."""
        async with asyncio.timeout(30):
            while (await admin.compute("GET", f"/ext/host-approvals/{self.host}")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return f"/ext/host-turns/{self.host}/{self.server}"

    async def publish(self, subject: str, verb: Verb, number: int, **fields: Any) -> None:
        command = Command(
            self.server, FencingToken(number), f"{verb}/{number}", verb, OperationId("o"), 4e9, EVIL,
            left_s=30.0, knows_senders=True, **fields,
        )  # fmt: skip
        await self.bus.publish(subject, encode(command))

    async def order(self, verb: Verb, number: int) -> None:
        await self.publish(subjects.to_host(self.cell, self.host), verb, number)

    async def ask(self, verb: Verb, number: int = 1, named: Verb | None = None, **fields: Any) -> None:
        subject = subjects.ask_host(self.cell, self.host, named or verb)
        await self.publish(subject, verb, number, **fields)


def guests(running: Running, host: str) -> Any:
    return running.cloud.fleet.drivers[host]._guests


async def test_where_questions_are_asked_nothing_is_ordered(running: Running) -> None:
    server = await running.admin.active("asked", networks="none")
    forger = Forger(running, server)
    await forger.listen()
    for verb in sorted(set(Verb) - READS):
        await forger.ask(verb, LAST_ATTEMPT)
        await forger.ask(verb, LAST_ATTEMPT, named=Verb.CONSOLE_OUTPUT)
    await forger.ask(Verb.SET_ADMIN_PASSWORD, named=Verb.CONSOLE_OUTPUT)
    agent = running.cloud.fleet.agents[forger.host]
    turn = agent._journal.turn_of(forger.server)
    untaken = ResultKey(forger.server, turn or FencingToken(0), "start_guest")
    results = agent._journal.untaken(10)
    await forger.ask(Verb.CONSOLE_OUTPUT, payload=pack(ConsoleOutput(3)), taken=(untaken, *results))
    await until(lambda: len(forger.heard) > 0)
    await until(lambda: running.cloud.region.bus.quiet)
    assert len(forger.heard) == 1, "one of all was a question"
    assert agent._journal.turn_of(forger.server) == turn
    assert set(results) <= set(agent._journal.untaken(10)), "a question acknowledges nothing"
    assert forger.server in guests(running, forger.host)
    await running.admin.gone(server["id"])


@pytest.mark.parametrize("told", [False, True])
async def test_a_turn_far_ahead_is_ignored_and_a_near_one_taken_back(running: Running, told: bool) -> None:
    admin = running.admin
    server = await admin.active("forged", networks="none")
    forger = Forger(running, server)
    path = await forger.is_listed(admin)
    await forger.listen()

    async def reboot() -> None:
        answer = await admin.compute("POST", f"/servers/{server['id']}/action", {"reboot": {"type": "HARD"}})
        assert answer.status_code == 202, answer.text
        await admin.settled(server["id"])

    await forger.order(Verb.DESTROY_GUEST, 100_000)
    await forger.order(Verb.DESTROY_GUEST, NOT_TOLD_UP_TO + AHEAD_MAX + 1)
    await forger.ask(Verb.CONSOLE_OUTPUT, payload=pack(ConsoleOutput(3)))
    await until(lambda: len(forger.heard) == 1)
    assert forger.server in guests(running, forger.host)
    shown = await admin.compute("GET", path)
    assert shown.status_code == 200, shown.text
    assert not shown.json()["host_turn"]["ahead"]
    assert (await admin.compute("DELETE", path)).status_code == 409
    # within the bound it is obeyed, and the host is deaf to its cell's conductors from then on
    await forger.publish(
        subjects.to_host(forger.cell, forger.host), Verb.POWER_OFF, NOT_TOLD_UP_TO, payload=pack(PowerOff(0.0))
    )
    await until(lambda: guests(running, forger.host)[forger.server].power is PowerState.SHUTDOWN)
    if told:  # the region has heard of it: it has gone back, or somebody lies, and an administrator decides
        await running.cloud.region.databases.region.write(
            lambda tx: numbers.overtaken(tx, {forger.server: NOT_TOLD_UP_TO})
        )
        answer = await admin.compute("POST", f"/servers/{server['id']}/action", {"reboot": {"type": "HARD"}})
        assert answer.status_code == 409, answer.text
    assert (await admin.compute("GET", path)).json()["host_turn"]["ahead"] is not told
    assert (await admin.compute("DELETE", path)).status_code == 202
    async with asyncio.timeout(30):
        while (await admin.compute("GET", path)).json()["host_turn"]["ahead"]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    await reboot()
    assert guests(running, forger.host)[forger.server].power is PowerState.RUNNING
    await admin.gone(server["id"])


async def test_a_delete_that_a_forged_turn_held_up_ends_when_it_is_taken_back(running: Running) -> None:
    admin = running.admin
    server = await admin.active("deleted", networks="none")
    forger = Forger(running, server)
    path = await forger.is_listed(admin)
    await forger.order(Verb.POWER_OFF, NOT_TOLD_UP_TO)
    await until(lambda: _turn(running, forger) == FencingToken(NOT_TOLD_UP_TO))
    first = await admin.compute("DELETE", f"/servers/{server['id']}")
    assert first.status_code in {204, 409}, first.text  # 409: the region has heard of the turn already
    assert (await admin.compute("DELETE", path)).status_code == 202
    if first.status_code == 409:
        assert (await admin.compute("DELETE", f"/servers/{server['id']}")).status_code == 204
    async with asyncio.timeout(60):
        while (await admin.server(server["id"])) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert forger.server not in guests(running, forger.host)


async def test_unknown_hosts_and_servers(running: Running) -> None:
    unknown = "11111111-2222-4333-8444-555555555555"
    host = next(iter(running.cloud.fleet.drivers))
    for method in ("GET", "DELETE"):
        assert (await running.admin.compute(method, f"/ext/host-turns/{host}/{unknown}")).status_code == 404
        assert (await running.admin.compute(method, f"/ext/host-turns/nowhere/{unknown}")).status_code == 404


def _turn(running: Running, forger: Forger) -> FencingToken | None:
    agent = running.cloud.fleet.agents[forger.host]
    return agent._journal.turn_of(forger.server)
