"""Where a question to a host goes while a fleet is upgraded, and what an order brings for images."""

import msgspec
import pytest
from tests.cloud.test_agent_calls import HandHost, begun
from tests.helpers.agent_host import CELL, HOST, SERVER, command_context, guest

from moorage.bus import subjects
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import CacheImage, ConsoleOutput, ConsoleText, OfSnapshot
from moorage.bus.host_messages import Heartbeat
from moorage.bus.image_tickets import needed_by
from moorage.bus.messages import encode, read
from moorage.bus.permissions import of_agent, of_process
from moorage.bus.rescue_messages import RescueGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import UnknownOutcome
from moorage.model.ids import ImageId
from moorage.model.image_ticket import ImageTicket, TicketSecret
from moorage.model.rescue import RescueSpec
from moorage_testing.waiting import until

ORDERS, QUESTIONS = subjects.to_host(CELL, HOST.host), subjects.ask_host(CELL, HOST.host, Verb.CONSOLE_OUTPUT)


async def say(host: HandHost, *, takes_questions: bool) -> None:
    beat = Heartbeat(HOST.host, CELL, "b", takes_questions=takes_questions)
    await host.bus.publish(subjects.from_host(CELL, HOST.host, subjects.HEARTBEAT), encode(beat))
    await until(lambda: host.bus.quiet)


async def test_a_question_goes_where_its_agent_hears_it() -> None:
    host, caller = await begun(resend_s=10.0)

    async def ask() -> None:
        with pytest.raises(UnknownOutcome):
            await caller.ask(HOST, SERVER, Verb.CONSOLE_OUTPUT, ConsoleOutput(1), ConsoleText, 0.05)

    sent = host.bus.published
    await ask()
    assert (sent[QUESTIONS], sent[ORDERS]) == (1, 0), "nothing is known of it: as today's"
    await say(host, takes_questions=False)  # an earlier release, or its broker's configuration is one
    await ask()
    assert (sent[QUESTIONS], sent[ORDERS]) == (1, 1)
    await say(host, takes_questions=True)
    await ask()
    assert (sent[QUESTIONS], sent[ORDERS]) == (2, 1)
    await caller.stop()


def test_who_may_order_while_there_are_earlier_agents() -> None:
    orders = "moorage.cell.c1.host.*"
    for role in ("api", "console"):
        assert orders not in of_process(role, ["c1"]).publish
        assert orders in of_process(role, ["c1"], earlier_agents=True).publish
    assert orders in of_process("conductor", ["c1"]).publish
    assert of_process("console", ["c1"]).publish == ("moorage.cell.c1.ask.*.get_console",)
    assert not any("destroy" in each or each.endswith((".ask.>", ".*.*")) for each in of_process("api", ["c1"]).publish)
    assert of_agent("c1", "h").subscribe == ("moorage.cell.c1.host.h", "moorage.cell.c1.ask.h.*")


async def test_each_sending_of_an_order_brings_a_new_ticket() -> None:
    now_s = [1_000.0]
    secret = TicketSecret("s", lambda: now_s[0])
    host, caller = await begun(resend_s=0.02)
    caller.sign_with(secret)
    heard: list[Command] = []

    async def on_message(_: str, payload: bytes) -> None:
        command = read(payload)
        assert isinstance(command, Command)
        heard.append(command)
        now_s[0] += 60.0

    await host.bus.subscribe(ORDERS, on_message)
    spec = guest()
    image = ImageId("2f0a2f9e-0000-4000-8000-000000000001")
    with pytest.raises(UnknownOutcome):
        await caller.start_guest(HOST, command_context(patience_s=0.3), msgspec.structs.replace(spec, image=image))
    tickets = [each for command in heard for each in command.tickets]
    assert len(tickets) == len(heard) >= 2
    granted = [secret.granted(each.text) for each in tickets]
    assert {(each.image, each.direction, each.host) for each in granted} == {(image, "read", HOST.host)}
    assert granted[-1].expires > granted[0].expires
    await caller.stop()


def test_an_order_has_tickets_for_what_it_needs_and_for_nothing_else() -> None:
    image = ImageId("i1")
    rescue = RescueGuest(RescueSpec("r", {"kernel_id": "k", "ramdisk_id": "d", "base_image_ref": "b"}))
    assert needed_by(Verb.RESCUE_GUEST, rescue) == tuple(ImageTicket(each, "read") for each in "rkd")
    assert needed_by(Verb.CACHE_IMAGE, CacheImage("c")) == (ImageTicket("c", "read"),)
    assert needed_by(Verb.UPLOAD_SNAPSHOT, OfSnapshot(image)) == (ImageTicket(image, "fill"),)
    assert needed_by(Verb.DROP_SNAPSHOT, OfSnapshot(image)) == ()
    assert needed_by(Verb.POWER_ON, None) == ()
