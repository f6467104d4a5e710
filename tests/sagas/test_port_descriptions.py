"""A cell's conductor sends port descriptions to hosts: newer ones at once, all after a loss, and nothing that is too large."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from moorage.bus import subjects
from moorage.bus.description_messages import PortDescriptions
from moorage.bus.host_messages import HostReport
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import encode, read
from moorage.conductor.known_hosts import KnownHosts
from moorage.conductor.port_descriptions import (
    MESSAGE_MAX_BYTES,
    NOT_SERVED_S,
    SETTLES_WITHIN_S,
    WAIT_S,
    PortDescriber,
    messages_for,
)
from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId, PortId
from moorage.model.port_description import (
    ADDRESSES_PER_PART,
    AddressSetPart,
    ChangedHosts,
    FilterRule,
    HostDescriptions,
    PortDescription,
    PortFilter,
    Present,
)

CELL, HOST = CellId("cell1"), "real1"
BROKER_MAX_BYTES = 1024 * 1024


class StillClock(SystemClock):
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def monotonic(self) -> float:
        return self.at


class Service:
    """The network service, in as far as it describes ports."""

    def __init__(self) -> None:
        self.ports: dict[PortId, PortDescription] = {}
        self.sets: dict[str, tuple[AddressSetPart, ...]] = {}
        self.version, self.served, self.out = 0, True, False
        self.says_changes = True
        """Its release does."""
        self.asked: list[int] = []
        self.looked: list[int] = []

    def put(self, *ports: str, wanted: PortFilter | None = None) -> None:
        self.version += 1
        for each in ports:
            self.ports[PortId(each)] = PortDescription(PortId(each), self.version, filter=wanted)

    def remove(self, port: str) -> None:
        self.version += 1
        del self.ports[PortId(port)]

    async def described_hosts(self, after: int, wait_s: int) -> ChangedHosts | None:
        self.looked.append(after)
        if self.out:
            raise Unavailable("the network service is out")
        if not self.served or not self.says_changes:
            return None
        return ChangedHosts(self.version, (HOST,) if self.version > after else ())

    async def port_descriptions(self, host: str, after: int) -> HostDescriptions | None:
        self.asked.append(after)
        if self.out:
            raise Unavailable("the network service is out")
        if not self.served:
            return None
        parts: Sequence[AddressSetPart] = [part for each in self.sets.values() for part in each]
        return HostDescriptions(
            self.version,
            tuple(each for each in self.ports.values() if each.version > after),
            tuple(each for each in parts if each.version > after),
            Present(tuple(self.ports), tuple(self.sets)),
        )


class Ground:
    """One host, whose agent has what arrives."""

    def __init__(self, room: Path) -> None:
        self.clock, self.bus, self.service = StillClock(), MemoryBus(), Service()
        self.hosts, self.agent, self.lossy = KnownHosts(), DescribedPorts(room), False
        self.sizes: list[int] = []
        self.describer = PortDescriber(CELL, self.hosts, self.service, self.bus, self.clock)  # type: ignore[arg-type]
        known = self.hosts[HOST]
        known.begin("boot-1")
        known.stored(HostReport(HOST, CELL, "id", "boot-1", takes_descriptions=True), known.doubts)

    async def start(self) -> None:
        await self.bus.subscribe(subjects.to_host(CELL, HOST), self._hear)
        self.beat()

    async def _hear(self, subject: str, payload: bytes) -> None:
        message = read(payload)
        assert isinstance(message, PortDescriptions)
        self.sizes.append(len(payload))
        if not self.lossy:
            self.agent.take(message.ports, message.sets, message.present, message.version)
            self.agent.save()

    def beat(self) -> None:
        known = self.hosts[HOST]
        known.heard, known.described = self.clock.at, self.agent.digest

    async def round(self, pass_s: float = 1.0) -> int:
        """A second passes, with what the host says of itself. How many messages were sent."""
        self.clock.at += pass_s
        self.beat()
        before = len(self.sizes)
        await self.describer.await_changes(0)
        await self.describer.round()
        while not self.bus.quiet:
            await SystemClock().sleep(0.001)
        return len(self.sizes) - before


@pytest.fixture
async def ground(tmp_path: Path) -> Ground:
    made = Ground(tmp_path)
    await made.start()
    return made


async def test_a_newer_description_is_sent_once(ground: Ground) -> None:
    ground.service.put("one", "two")
    assert await ground.round() == 1
    assert set(ground.agent.ports) == {"one", "two"}
    assert await ground.round(20) == 0
    ground.service.put("two")
    assert await ground.round() == 1
    assert {name: each.version for name, each in ground.agent.ports.items()} == {"one": 1, "two": 2}
    ground.service.remove("one")
    assert await ground.round() == 1
    assert set(ground.agent.ports) == {"two"}
    assert ground.service.asked == [0, 1, 2]


async def test_nobody_is_asked_about_when_nothing_changed(ground: Ground) -> None:
    ground.service.put("one")
    await ground.round()
    for _ in range(60):
        assert await ground.round() == 0
    assert ground.service.asked == [0]
    assert ground.service.looked == [0, *[1] * 60], "which waits at the service"


async def test_a_service_that_does_not_wait_is_not_asked_again_at_once(ground: Ground) -> None:
    ground.service.put("one")
    assert await ground.describer.await_changes(WAIT_S), "it had something to say"
    assert not await ground.describer.await_changes(WAIT_S), "it answered at once, and with nothing, as one that stops"


async def test_a_service_that_does_not_say_what_changed_is_asked_for_each_host(ground: Ground) -> None:
    ground.service.says_changes = False
    ground.service.put("one")
    assert await ground.round() == 1
    ground.service.put("two")
    assert await ground.round() == 1
    assert set(ground.agent.ports) == {"one", "two"}
    assert len(ground.service.looked) == 1
    ground.service.says_changes = True
    await ground.round(NOT_SERVED_S)
    before = len(ground.service.asked)
    for _ in range(10):
        await ground.round()
    assert len(ground.service.asked) == before


async def test_a_change_that_could_not_be_asked_for_is_asked_for_again(ground: Ground) -> None:
    ground.service.put("one")
    await ground.round()
    ground.service.put("two")
    await ground.describer.await_changes(0)
    ground.service.out = True
    await ground.describer.round()
    ground.service.out = False
    assert await ground.round() == 1
    assert set(ground.agent.ports) == {"one", "two"}


async def test_a_service_of_an_older_state_is_asked_for_all(ground: Ground) -> None:
    ground.service.version = 50
    ground.service.put("one")
    await ground.round()
    ground.service.version = 10
    await ground.round()
    assert ground.service.asked == [0, 51]


async def test_a_lost_description_is_sent_again(ground: Ground) -> None:
    ground.service.put("one")
    ground.lossy = True
    assert await ground.round() == 1
    ground.lossy = False
    assert await ground.round() == 0, "a beat that was sent before says nothing"
    assert await ground.round(SETTLES_WITHIN_S * 2) == 1
    assert set(ground.agent.ports) == {"one"}
    assert await ground.round(SETTLES_WITHIN_S * 2) == 0


async def test_a_host_that_never_confirms_is_sent_descriptions_less_often(ground: Ground) -> None:
    ground.service.put("one")
    ground.lossy = True
    sent = [await ground.round(10) for _ in range(60)]
    assert 5 < sum(sent) < 25


async def test_a_restarted_agent_is_asked_for_its_versions_first(ground: Ground) -> None:
    ground.service.put("one")
    await ground.round()
    known = ground.hosts[HOST]
    known.begin("boot-2")
    known.stored(HostReport(HOST, CELL, "id", "boot-2", takes_descriptions=True), known.doubts)
    ground.beat()
    assert await ground.round() <= 1
    assert await ground.round(20) == 0
    ground.agent.forget()
    assert await ground.round(20) == 1
    assert set(ground.agent.ports) == {"one"}


async def test_a_service_without_descriptions_is_asked_rarely(ground: Ground) -> None:
    ground.service.served = False
    for _ in range(30):
        await ground.round()
    assert len(ground.service.asked) == 1
    await ground.round(NOT_SERVED_S)
    assert len(ground.service.asked) == 2


async def test_an_outage_of_the_service_changes_nothing(ground: Ground) -> None:
    ground.service.put("one")
    await ground.round()
    ground.service.out = True
    for _ in range(3):
        assert await ground.round(20) == 0
    assert set(ground.agent.ports) == {"one"}
    ground.service.out = False
    ground.service.put("two")
    assert await ground.round() == 1


async def test_ports_that_a_host_does_not_wire_are_reported_once(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    known = ground.hosts[HOST]
    report = HostReport(
        HOST, CELL, "id", "boot-1", takes_descriptions=True, not_wired=("port one: a rule is left out",)
    )
    known.stored(report, known.doubts)
    for _ in range(3):
        await ground.round()
    assert caplog.text.count("port one: a rule is left out") == 1


async def test_hosts_without_support_get_no_descriptions(ground: Ground) -> None:
    known = ground.hosts[HOST]
    known.stored(HostReport(HOST, CELL, "id", "boot-1"), known.doubts)
    ground.service.put("one")
    assert await ground.round() == 0
    assert ground.service.asked == []


async def test_no_message_is_too_large_for_the_broker(ground: Ground) -> None:
    """Forty thousand members, and two hundred ports of a hundred rules each."""
    six = [f"2001:db8:ffff:ffff:ffff:ffff:{number:04x}:ffff/128" for number in range(40_000)]
    rules = tuple(FilterRule("ingress", 6, 6, n, n + 1, prefix=f"2001:db8:{n:x}::/64") for n in range(100))
    ground.service.put(*(f"{number:036d}" for number in range(200)), wanted=PortFilter(rules=rules))
    cuts = [tuple(six[at : at + ADDRESSES_PER_PART]) for at in range(0, len(six), ADDRESSES_PER_PART)]
    ground.service.sets["g"] = tuple(AddressSetPart("g", 1, n, len(cuts), cut) for n, cut in enumerate(cuts))
    assert await ground.round() > 5
    assert max(ground.sizes) < BROKER_MAX_BYTES
    assert len(ground.agent.ports) == 200
    assert ground.agent.sets["g"].addresses == tuple(six)
    assert await ground.round(20) == 0


def test_too_large_messages_are_split() -> None:
    wide = PortFilter(rules=tuple(FilterRule("ingress", 4, 6, n, n) for n in range(2_000)))
    ports = tuple(PortDescription(PortId(f"p{n}"), 1, filter=wide) for n in range(20))
    made = list(messages_for(HOST, HostDescriptions(1, ports, (), Present())))
    assert len(made) > 1
    assert [each.present is not None for each in made] == [False] * (len(made) - 1) + [True]
    assert all(len(encode(each)) < MESSAGE_MAX_BYTES * 1.2 for each in made)
    assert [port for each in made for port in each.ports] == list(ports)
    assert msgspec.json.decode(encode(made[0]), type=PortDescriptions) == made[0]
