"""A host may report only itself; hosts of release 0.1.0, which do not name themselves, are accepted once."""

import logging

import pytest
from msgspec.structs import replace

from moorage.agent.report_subjects import Outgoing
from moorage.bus import legacy_subjects, subjects
from moorage.bus.command_messages import EMPTY, Command, Result
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport, ReportWanted
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import encode
from moorage.bus.sender_checks import KEPT_MAX, FromHost, Senders
from moorage.bus.verbs import Verb
from moorage.model.clock import SystemClock
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PhysicalFunction, ResourceInventory
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId

CELL, HOST, ASKER = CellId("c1"), "n1.example.org", ConductorId("k")
SERVER = ServerId("7f4b2c1e-0000-4000-8000-000000000001")
BEAT = Heartbeat(HOST, CELL, "life1")
REPORT = HostReport(HOST, CELL, "id", "life1")
RETURNED = AgentReturned(HOST, CELL, "question", agent="life1")
RESULT = Result(HOST, CELL, SERVER, FencingToken(1), "start_guest", ok=True)
SAID: list[tuple[str, FromHost]] = [
    (subjects.HEARTBEAT, BEAT),
    (subjects.REPORT, REPORT),
    (subjects.RETURNED, RETURNED),
    (f"result.{ASKER}", RESULT),
]


@pytest.fixture
def senders() -> Senders:
    return Senders(SystemClock())


@pytest.mark.parametrize(("kind", "message"), SAID)
def test_a_host_may_report_only_itself(senders: Senders, kind: str, message: FromHost) -> None:
    payload = encode(message)
    assert senders.read(subjects.from_host(CELL, HOST, kind), payload) == message
    for cell, host in ((CELL, "n2"), (CellId("c2"), HOST), (CELL, "n1"), (CELL, "n1-example-org")):
        assert senders.read(subjects.from_host(cell, host, kind), payload) is None
    assert senders.forged == 4


def test_message_kinds_that_hosts_never_send_are_ignored(senders: Senders, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    subject = subjects.from_host(CELL, HOST, subjects.REPORT)
    command = Command(SERVER, FencingToken(9), "s", Verb.DESTROY_GUEST, OperationId("o"), 1e12, ASKER)
    for payload in (encode(ReportWanted(HOST)), encode(command)):
        assert senders.read(subject, payload) is None
    assert senders.read(subject, b"{") is None  # that of which nothing can be read is no forgery
    assert senders.forged == 2
    assert sum("hosts do not say" in each.message for each in caplog.records) == 1  # however many there are


def test_a_repeated_message_is_handled_once(senders: Senders) -> None:
    named, unnamed = (
        subjects.from_host(CELL, HOST, subjects.HEARTBEAT),
        legacy_subjects.of_cell(CELL, subjects.HEARTBEAT),
    )
    assert senders.read(unnamed, encode(BEAT)) == BEAT  # of release 0.1.0, as far as anybody knows
    assert senders.read(named, encode(BEAT)) == BEAT
    for message in (BEAT, REPORT, RETURNED):
        assert senders.read(unnamed, encode(message)) is None
    earlier = Heartbeat(HOST, CELL, "life2")  # the release before is back on that host
    assert senders.read(unnamed, encode(earlier)) == earlier
    assert senders.forged == 0


def test_the_number_of_remembered_messages_is_limited(senders: Senders) -> None:
    for number in range(KEPT_MAX + 10):
        host = f"n{number}"
        senders.read(subjects.from_host(CELL, host, subjects.HEARTBEAT), encode(Heartbeat(host, CELL, f"life{number}")))
    assert len(senders._named) == KEPT_MAX


async def test_an_agent_answers_on_the_subjects_of_its_peer() -> None:
    bus = MemoryBus()
    named, unnamed = (
        {kind: subject(kind) for kind in (subjects.HEARTBEAT, subjects.RETURNED)}
        for subject in (
            lambda kind: subjects.from_host(CELL, HOST, kind),
            lambda kind: legacy_subjects.of_cell(CELL, kind),
        )
    )
    outgoing = Outgoing(bus, CELL, HOST)
    await outgoing.publish(RETURNED)
    assert (bus.published[named[subjects.RETURNED]], bus.published[unnamed[subjects.RETURNED]]) == (1, 0)
    await outgoing.publish(RETURNED)  # nobody has answered: whoever listens may be of release 0.1.0
    assert (bus.published[named[subjects.RETURNED]], bus.published[unnamed[subjects.RETURNED]]) == (2, 1)
    outgoing.note_conductor(True)
    await outgoing.publish(BEAT)
    assert (bus.published[named[subjects.HEARTBEAT]], bus.published[unnamed[subjects.HEARTBEAT]]) == (1, 0)
    outgoing.note_conductor(False)
    outgoing.note_conductor(True)  # conductors of both releases are there
    await outgoing.publish(BEAT)
    assert (bus.published[named[subjects.HEARTBEAT]], bus.published[unnamed[subjects.HEARTBEAT]]) == (2, 1)


@pytest.mark.parametrize("knows_senders", [True, False])
async def test_an_answer_is_sent_to_the_subject_of_the_caller(knows_senders: bool) -> None:
    bus = MemoryBus()
    command = Command(
        SERVER, FencingToken(1), "s", Verb.POWER_ON, OperationId("o"), 1.0, ASKER, EMPTY, knows_senders=knows_senders
    )
    await Outgoing(bus, CELL, HOST).answer(command, RESULT)
    patterns = [subjects.results_for(ASKER), legacy_subjects.results_for(ASKER)]
    listed = [[subjects.matches(pattern, subject) for pattern in patterns] for subject in bus.published]
    assert listed == [[knows_senders, not knows_senders]]


AMOUNT = ResourceInventory(10)
BEYOND = [
    replace(REPORT, level=1_000),
    replace(REPORT, level=-1),
    replace(REPORT, inventory={"VCPU": ResourceInventory(2**31)}),
    replace(REPORT, inventory={"VCPU": ResourceInventory(-1)}),
    replace(REPORT, inventory={"VCPU": replace(AMOUNT, step_size=0)}),
    replace(REPORT, inventory={"VCPU": replace(AMOUNT, allocation_ratio=1e300)}),
    replace(REPORT, inventory={"a b": AMOUNT}),
    replace(REPORT, inventory={f"CUSTOM_{n}": AMOUNT for n in range(201)}),
    replace(REPORT, traits=("x" * 256,)),
    replace(REPORT, traits=tuple(f"CUSTOM_{n}" for n in range(2_001))),
    replace(REPORT, physical_networks=("p" * 256,)),
    replace(REPORT, cpu_info={"a": "x" * 70_000}),
    replace(REPORT, boot="b" * 256),
    replace(REPORT, hypervisor_hostname="h" * 191),
    replace(REPORT, physical_functions=(PhysicalFunction("ens1", "0000:80:00.0", "p", vendor_id="v" * 9),)),
    replace(REPORT, physical_functions=(PhysicalFunction("ens1", "0000:80:00.0", "p", ("f" * 33,)),)),
    replace(REPORT, physical_functions=(PhysicalFunction("i" * 190, "0000:80:00.0", "p"),)),
    replace(REPORT, up_since=2**63),
    replace(BEAT, beat=2**63),
    replace(RETURNED, agent="a" * 256),
    replace(RESULT, turn=FencingToken(2**63)),
]


@pytest.mark.parametrize("message", BEYOND)
def test_too_large_values_are_ignored(senders: Senders, message: FromHost) -> None:
    """A report of level 1,000 was stored, and from then on no process could read its picture any more."""
    kind = next(kind for kind, each in SAID if type(each) is type(message))
    assert senders.read(subjects.from_host(CELL, HOST, kind), encode(message)) is None
    assert senders.forged == 1


@pytest.mark.parametrize("payload", [b"\xc9", b'{"type":"heartbeat","host":"\xc9"}', b"[" * 100_000, b""])
def test_unreadable_messages_are_ignored(senders: Senders, payload: bytes) -> None:
    assert senders.read(subjects.from_host(CELL, HOST, subjects.HEARTBEAT), payload) is None
