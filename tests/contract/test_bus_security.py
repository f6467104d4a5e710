"""Who may connect to the bus, and what each role may publish and subscribe there: with the real server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.bus_broker import C1, C2, FAR, THIEF, VICTIM, Ear, needs_program, settled

from moorage.bus import legacy_subjects, nats, subjects
from moorage.bus.broker import KeyOfHost, KeyOfProcess, Keys, configuration
from moorage.bus.nats import NatsBus
from moorage.bus.security import Security
from moorage.main.bus import make_key
from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.local_cluster.nats import NatsServer
from moorage.model.ids import CellId, ConductorId
from moorage_testing.waiting import until

pytestmark = needs_program
ASKER = ConductorId("conductor-1")
NOBODY = "{ nkey: %s }"
PROCESSES = {"conductor": ("conductor", ()), "of_c1": ("conductor", ("c1",)), "api": ("api", ()), "console": ("console", ()), "listener": ("listener", ())}  # fmt: skip


class Broker:
    """A server with TLS and a key for each role; `everything` is a key that may do all, to see what others could do."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.authority = CertificateAuthority(room)
        made = self.authority.issue("broker")
        hosts = tuple(KeyOfHost(host, cell, self.key(host)) for host, cell in ((THIEF, C1), (VICTIM, C1), (FAR, C2)))
        processes = tuple(KeyOfProcess(role, self.key(name), cells) for name, (role, cells) in PROCESSES.items())
        self.keys = Keys("", str(made.cert), str(made.key), processes=processes, hosts=hosts)
        self.server = NatsServer(conf=self.with_everything(configuration(self.keys)))

    def key(self, name: str) -> str:
        return make_key(self.room / f"{name}.nk")

    def with_everything(self, conf: str) -> str:
        return conf.replace("users: [", f"users: [\n  {NOBODY % self.key('everything')}", 1)

    def security(self, name: str, **others: Any) -> Security:
        return Security(**{"nkey": self.room / f"{name}.nk", "tls": True, "ca": self.authority.file, **others})

    @asynccontextmanager
    async def client(self, name: str, patience_s: float = 60.0, **others: Any) -> AsyncIterator[NatsBus]:
        made = await nats.connect([self.server.url], patience_s=patience_s, security=self.security(name, **others))
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("broker"))
    with made.server:
        yield made


def catalogue(cell: CellId, host: str) -> dict[str, str]:
    """Every subject that anything travels under, for one host of one cell, by what makes it."""
    return {
        "to_host": subjects.to_host(cell, host),
        "ask_host": subjects.ask_host(cell, host, "get_console"),
        "ask_host of an API": subjects.ask_host(cell, host, "set_admin_password"),
        "ask_host of a conductor": subjects.ask_host(cell, host, "freeze_guest"),
        "ask_host for no question": subjects.ask_host(cell, host, "destroy_guest"),
        "heartbeat": subjects.from_host(cell, host, subjects.HEARTBEAT),
        "report": subjects.from_host(cell, host, subjects.REPORT),
        "returned": subjects.from_host(cell, host, subjects.RETURNED),
        "result_from": subjects.result_from(cell, host, ASKER),
        "to_conductor": subjects.to_conductor(ASKER),
        "cell_hint": subjects.cell_hint(cell),
        "notification": subjects.notification("notifications", "info"),
        "EVENTS": subjects.EVENTS,
        "PICTURE": subjects.PICTURE,
        "earlier result": legacy_subjects.result_for(cell, ASKER),
        "earlier heartbeat": legacy_subjects.of_cell(cell, subjects.HEARTBEAT),
        "earlier report": legacy_subjects.of_cell(cell, subjects.REPORT),
        "earlier returned": legacy_subjects.of_cell(cell, subjects.RETURNED),
        "somebody's inbox": "_INBOX.abc.1",
        "the server's own": "$SYS.REQ.SERVER.PING",
        "unknown": "moorage.something",
        "of others": "elsewhere",
    }


PATTERNS = (
    ">",
    "*.>",
    "moorage.>",
    "moorage.cell.>",
    f"moorage.cell.{C1}.>",
    "moorage.cell.*.host.*",
    f"moorage.cell.{C1}.host.*",
    f"moorage.cell.{C1}.host.>",
    f"moorage.cell.{C1}.*.{subjects.token(VICTIM)}",
    subjects.results_for(ASKER),
    subjects.results_in_cell(C1),
    subjects.ALL_HEARTBEATS,
    subjects.ALL_CELL_HINTS,
    "moorage.hint.>",
    "moorage.notification.>",
    "_INBOX.>",
    "$SYS.>",
)
"""What an eavesdropper would subscribe to."""


def test_the_catalogue_contains_every_subject() -> None:
    """A subject that is added is added to the attacks, too."""
    makers = {name for name, made in vars(subjects).items() if callable(made) and getattr(made, "__module__", "") == subjects.__name__ and not name.startswith("_")}  # fmt: skip
    values = {name for name, made in vars(subjects).items() if name.isupper() and str(made).startswith("moorage.")}
    known = {
        "to_host",
        "ask_host",
        "from_host",
        "result_from",
        "to_conductor",
        "cell_hint",
        "notification",
        "EVENTS",
        "PICTURE",
    }
    patterns = {
        "results_for",
        "results_in_cell",
        "hosts_of",
        "heartbeats",
        "ALL_HEARTBEATS",
        "ALL_CELL_HINTS",
        "questions_to",
    }
    assert makers | values == known | patterns | {"token", "sender", "family", "matches"}


async def test_a_stolen_agent_key_can_publish_only_as_its_host(broker: Broker) -> None:
    """With its key against every subject there is, of its own host, of another and of another cell."""
    async with broker.client("everything") as watcher, broker.client(THIEF) as thief:
        ear = Ear()
        await watcher.subscribe(">", ear)
        tried = 0
        for cell, host in ((C1, VICTIM), (C2, FAR), (C2, THIEF), (C1, THIEF)):
            for subject in catalogue(cell, host).values():
                await thief.publish(subject, b"forged")
                tried += 1
        await settled(thief, watcher)
        own = f"moorage.cell.{C1}.from.{subjects.token(THIEF)}."
        await until(lambda: thief.denied + len(ear.heard) >= tried)  # the broker answers one, and passes on the other
        let_through = {subject for subject, payload in ear.heard if payload == b"forged"}
        assert let_through == {own + kind for kind in ("heartbeat", "report", "returned", f"result.{ASKER}")}
        assert thief.denied == tried - len(let_through)
        assert thief.healthy, "to be denied does not cut a host that has its own to say"


async def test_a_stolen_agent_key_receives_only_messages_to_its_host(broker: Broker) -> None:
    async with broker.client("everything") as everybody, broker.client(THIEF) as thief:
        ear = Ear()
        wanted = {*PATTERNS, *catalogue(C1, VICTIM).values(), *catalogue(C2, FAR).values(), *catalogue(C1, THIEF).values()}  # fmt: skip
        for pattern in sorted(wanted):
            await thief.subscribe(pattern, ear)
        await settled(thief)
        for cell, host in ((C1, VICTIM), (C2, FAR), (C1, THIEF)):
            for subject in catalogue(cell, host).values():
                if not subject.startswith("$SYS"):
                    await everybody.publish(subject, subject.encode())
        await settled(everybody, thief)
        await until(lambda: bool(ear.heard))
        await settled(thief)
        to_me = {
            made for name, made in catalogue(C1, THIEF).items() if name == "to_host" or name.startswith("ask_host")
        }
        assert {subject for subject, _ in ear.heard} == to_me
        assert thief.denied == len(wanted) - len(to_me)


async def test_a_conductor_of_one_cell_reaches_that_cell_only(broker: Broker) -> None:
    async with broker.client("everything") as everybody, broker.client("of_c1") as conductor:
        ear, watching = Ear(), Ear()
        await everybody.subscribe(">", watching)
        for cell in (C1, C2):
            await conductor.subscribe(subjects.hosts_of(cell, subjects.REPORT), ear)
            await conductor.subscribe(subjects.results_for(ASKER, cell), ear)
        for pattern in (subjects.ALL_HEARTBEATS, subjects.to_host(C1, VICTIM), "moorage.>"):
            await conductor.subscribe(pattern, ear)
        await settled(conductor)
        for cell, host in ((C1, VICTIM), (C2, FAR)):
            for subject in catalogue(cell, host).values():
                if not subject.startswith("$SYS"):
                    await everybody.publish(subject, b"said")
            await conductor.publish(subjects.to_host(cell, host), b"command")
        await settled(everybody, conductor)
        mine = {subjects.from_host(C1, VICTIM, subjects.REPORT), subjects.result_from(C1, VICTIM, ASKER)}
        await until(lambda: {subject for subject, _ in ear.heard} >= mine)
        await until(lambda: (subjects.to_host(C1, VICTIM), b"command") in watching.heard)
        await settled(conductor, everybody)
        assert {subject for subject, _ in ear.heard} == mine
        assert {subject for subject, payload in watching.heard if payload == b"command"} == {
            subjects.to_host(C1, VICTIM)
        }


@pytest.mark.parametrize("role", ["conductor", "api", "console", "listener"])
async def test_a_process_receives_only_the_messages_of_its_role(broker: Broker, role: str) -> None:
    needs = {
        "conductor": {"heartbeat", "report", "returned", "result_from", "to_conductor", "EVENTS"},
        "api": {"heartbeat", "result_from"},
        "console": {"heartbeat", "result_from"},
        "listener": {"notification"},
    }[role]
    questions = {name for name in catalogue(C1, FAR) if name.startswith("ask_host")}
    says = {
        "conductor": {"to_host", *questions, "to_conductor", "EVENTS", "notification"},
        "api": {"ask_host", "ask_host of an API", "to_conductor", "EVENTS", "notification"},
        "console": {"ask_host"},
        "listener": set[str](),
    }[role]
    everything = catalogue(C2, FAR)
    async with broker.client("everything") as everybody, broker.client(role) as process:
        ear, watching = Ear(), Ear()
        await everybody.subscribe(">", watching)
        for pattern in (
            *everything.values(),
            *PATTERNS,
            *(subjects.hosts_of(C2, each) for each in (subjects.HEARTBEAT, subjects.REPORT, subjects.RETURNED)),
        ):
            await process.subscribe(pattern, ear)
        await settled(process)
        for subject in everything.values():
            if not subject.startswith("$SYS"):
                await everybody.publish(subject, b"said")
            await process.publish(subject, b"mine")
        await settled(everybody, process)
        await until(lambda: {subject for subject, _ in ear.heard} >= {everything[each] for each in needs})
        await until(lambda: {s for s, payload in watching.heard if payload == b"mine"} >= {everything[each] for each in says})  # fmt: skip
        await settled(process, everybody)
        assert {subject for subject, payload in ear.heard if payload == b"said"} == {everything[each] for each in needs}
        assert {s for s, payload in watching.heard if payload == b"mine"} == {everything[each] for each in says}


@pytest.mark.parametrize("way", ["no key", "a key that nobody knows", "another authority", "the machine's authorities"])
async def test_unknown_and_untrusted_clients_are_refused_with_the_reason(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    others: dict[str, Any]
    match way:
        case "no key":
            others, why = {"nkey": None}, "it does not accept the credentials of this process"
        case "a key that nobody knows":
            make_key(tmp_path / "own.nk")
            others, why = {"nkey": tmp_path / "own.nk"}, "it does not accept the credentials of this process"
        case "another authority":
            others, why = {"ca": CertificateAuthority(tmp_path, "another").file}, "its certificate is not trusted"
        case _:
            others, why = {"ca": None}, "its certificate is not trusted"
    with caplog.at_level(logging.WARNING, "moorage.bus.nats"):
        async with broker.client(THIEF, patience_s=0.01, **others) as stranger:
            await until(lambda: any(why in each.message for each in caplog.records))
            assert not stranger.healthy
    output = [each.message for each in caplog.records if each.name == "moorage.bus.nats"]
    assert len(output) == 1, "one sentence, not one for each try"
    assert output[0].endswith("trying again until it is back")


async def test_nothing_is_sent_to_a_server_without_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever sits in between may say that the server has none: the password must not be told."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"a","version":"2.10.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.extend(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    authority = CertificateAuthority(tmp_path)
    url = f"nats://agent:the-password@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with caplog.at_level(logging.WARNING, "moorage.bus.nats"):
        bus = await nats.connect([url], patience_s=0.01, security=Security(tls=True, ca=authority.file))
        try:
            await until(lambda: "offers no TLS" in caplog.text)
            assert not bus.healthy
        finally:
            await bus.close()
            server.close()
            await server.wait_closed()
    assert not heard
    assert "the-password" not in caplog.text


async def test_client_certificates_can_be_required(tmp_path: Path) -> None:
    """Mutual TLS: without one of ours nobody is let in, whatever the key."""
    authority = CertificateAuthority(tmp_path)
    server, client = authority.issue("broker"), authority.issue("agent")
    keys = Keys(
        "", str(server.cert), str(server.key), str(authority.file), hosts=(KeyOfHost(THIEF, C1, make_key(tmp_path / "n")),)
    )  # fmt: skip
    with NatsServer(conf=configuration(keys)) as started:
        security = Security(nkey=tmp_path / "n", tls=True, ca=authority.file, cert=client.cert, key=client.key)
        inside = await nats.connect([started.url], patience_s=60.0, security=security)
        outside = await nats.connect(
            [started.url], patience_s=0.5, security=Security(nkey=tmp_path / "n", tls=True, ca=authority.file)
        )
        assert (inside.healthy, outside.healthy) == (True, False)
        await inside.close()
        await outside.close()


async def test_a_removed_key_is_disconnected_at_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with broker.server:
        async with broker.client(THIEF) as thief, broker.client("conductor") as conductor:
            kept = [each for each in broker.keys.hosts if each.host != THIEF]
            keys = Keys("", broker.keys.cert, broker.keys.key, processes=broker.keys.processes, hosts=tuple(kept))
            broker.server.reload(configuration(keys))
            await until(lambda: not thief.healthy)
            assert conductor.healthy
            broker.server.reload(configuration(broker.keys))
            await until(lambda: thief.healthy)


async def test_a_refused_subscription_is_known_and_tried_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose broker has an earlier release's configuration is asked where orders go, until that is made anew."""
    monkeypatch.setattr(nats, "REFUSED_AGAIN_S", 0.2)
    monkeypatch.setattr(nats, "PROBE_EVERY_S", 0.1)
    opened: list[str] = []
    really = nats._NatsSubscription.open

    async def opening(listener: nats._NatsSubscription, client: Any) -> None:
        opened.append(listener.pattern)
        await really(listener, client)

    monkeypatch.setattr(nats._NatsSubscription, "open", opening)
    today = broker.with_everything(configuration(broker.keys))
    pattern = subjects.questions_to(C1, THIEF)
    earlier = today.replace(f', "{pattern}"', "")
    assert earlier != today
    broker.server.reload(earlier)
    try:
        async with broker.client("everything") as everybody, broker.client(THIEF) as agent:
            ear = Ear()
            questions = await agent.subscribe(pattern, ear)
            orders = await agent.subscribe(subjects.to_host(C1, THIEF), ear)
            await until(lambda: questions.refused)
            assert not orders.refused
            tasks = len(asyncio.all_tasks())
            again = opened.count(pattern) + 8
            await until(lambda: opened.count(pattern) >= again)
            assert len(asyncio.all_tasks()) <= tasks + 2, "what was refused before is ended when it is tried again"
            broker.server.reload(today)
            await until(lambda: not questions.refused)
            await settled(agent)
            await everybody.publish(subjects.ask_host(C1, THIEF, "get_console"), b"which")
            await until(lambda: bool(ear.heard))
    finally:
        broker.server.reload(today)
