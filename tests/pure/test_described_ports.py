"""Port descriptions arrive in any order, twice, in parts, or not at all; a host never replaces one with an older one."""

import random
from pathlib import Path

import pytest

from moorage.drivers.libvirt import described_ports
from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ServerId, SubnetId
from moorage.model.port_description import AddressSetPart, PortDescription, Present, arp_set_id, held_digest
from moorage.model.route_description import ArpEntry, SubnetHints

ONE, TWO = PortId("one"), PortId("two")
NET = NetworkId("net")


def test_the_higher_version_holds(tmp_path: Path) -> None:
    held = DescribedPorts(tmp_path)
    assert held.take([PortDescription(ONE, 5, mac="fa:16:3e:00:00:0b")], (), None, 5)
    assert not held.take([PortDescription(ONE, 4, mac="fa:16:3e:00:00:0a")], (), None, 5)
    assert not held.take([PortDescription(ONE, 5, mac="fa:16:3e:00:00:0c")], (), None, 5)
    assert held.ports[ONE].mac == "fa:16:3e:00:00:0b"
    assert not held.take((), (), Present(), 4), "a list that is older than the port says nothing of it"
    assert held.take((), (), Present(), 5)
    assert not held.ports


def test_changed_dhcp_options_of_subnets_are_used(tmp_path: Path) -> None:
    """A name server that went is told no longer; what nobody describes stays as it was when the port was bound."""
    held = DescribedPorts(tmp_path)
    four = VifAddress(
        "10.0.0.5", SubnetId("four"), "10.0.0.0/24", dns=("1.2.3.4",), routes=(("0.0.0.0/0", "10.0.0.9"),)
    )
    six = VifAddress("fd00::5", SubnetId("six"), "fd00::/64", dns=("fd00::53",))
    vif = VifData(ONE, NetworkId("n"), "fa:16:3e:00:00:01", "bridge", addresses=(four, six))
    guest = GuestSpec(ServerId("s"), "guest", 1, 128, vifs=(vif,))
    assert held.as_described(guest) is guest
    held.take([PortDescription(ONE, 1)], (), None, 1)
    assert held.as_described(guest) is guest, "an earlier release says nothing of subnets"
    hints = (SubnetHints(SubnetId("four"), ("9.8.7.6",)), SubnetHints(SubnetId("six")))
    held.take([PortDescription(ONE, 2, subnets=hints)], (), None, 2)
    told = held.as_described(guest).vifs[0].addresses
    assert [(each.address, each.dns, each.routes) for each in told] == [
        ("10.0.0.5", ("9.8.7.6",), ()),
        ("fd00::5", (), ()),
    ]


def test_a_set_is_used_when_all_its_parts_arrived(tmp_path: Path) -> None:
    held = DescribedPorts(tmp_path)
    new = [AddressSetPart("s", 2, number, 3, (f"10.0.0.{number}",)) for number in range(3)]
    old = [AddressSetPart("s", 1, number, 2, ("10.1.0.1",)) for number in range(2)]
    assert not held.take((), [old[0], new[2], new[0]], None, 2)
    assert not held.take((), [old[1]], None, 2)
    assert "s" not in held.sets
    assert held.take((), [new[1], new[1]], None, 2)
    assert held.sets["s"].addresses == ("10.0.0.0", "10.0.0.1", "10.0.0.2")
    assert not held.take((), old, None, 2)
    for bad in (AddressSetPart("t", 1, 3, 3), AddressSetPart("t", 1, -1, 2), AddressSetPart("t", 1, 0, 10**9)):
        assert not held.take((), [bad], None, 2)
    assert held.take((), (), Present(), 2)
    assert not held.sets


def test_descriptions_survive_a_restart(tmp_path: Path) -> None:
    held = DescribedPorts(tmp_path)
    held.take([PortDescription(ONE, 5)], [AddressSetPart("s", 3, addresses=("10.0.0.1",))], None, 5)
    empty = held_digest({}, {})
    assert held.digest == empty, "it says what is on its disk"
    held.save()
    assert held.digest == held_digest({ONE: 5}, {"s": 3})
    numbers = held.numbers([TWO, ONE])
    again = DescribedPorts(tmp_path)
    again.load()
    assert (again.ports, again.sets, again.digest) == (held.ports, held.sets, held.digest)
    assert again.numbers([ONE, "three", TWO]) == numbers | {"three": max(numbers.values()) + 1}
    assert again.numbers(["four"])["four"] == described_ports.FIRST_NUMBER
    again.forget()
    assert not list(tmp_path.iterdir())


def test_neighbours_of_a_network_come_in_several_sets(tmp_path: Path) -> None:
    held = DescribedPorts(tmp_path)
    one, two = ArpEntry("10.0.1.5", "fa:16:3e:00:00:05"), ArpEntry("10.0.2.5", "fa:16:3e:00:00:06")
    parts = [AddressSetPart(arp_set_id(NET, each.address), 3, arp_entries=(each,)) for each in (one, two)]
    assert parts[0].id != parts[1].id
    assert held.take((), [*parts, AddressSetPart("group", 3, addresses=("10.0.3.1",))], None, 3)
    assert held.arp_entries() == {NET: {one.address: one.mac, two.address: two.mac}}
    held.take((), (), Present((), (parts[1].id,)), 4)
    assert held.arp_entries() == {NET: {two.address: two.mac}}


def test_a_file_of_another_release_holds_until_all_is_sent_again(tmp_path: Path) -> None:
    """It may lack what that release could not read of the same version."""
    held = DescribedPorts(tmp_path)
    held.take(
        [PortDescription(ONE, 5, mac="fa:16:3e:00:00:0d")], [AddressSetPart("s", 3, addresses=("10.0.0.1",))], None, 5
    )
    held.save()
    file = tmp_path / described_ports.FILE
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"form":%d,' % described_ports.FORM, b""))
    assert file.read_bytes() != whole
    again = DescribedPorts(tmp_path)
    again.load()
    assert again.ports[ONE].mac == "fa:16:3e:00:00:0d"
    assert again.sets["s"].addresses == ("10.0.0.1",)
    assert again.digest != held.digest
    assert again.take([PortDescription(ONE, 5, mac="fa:16:3e:00:00:0d", bound=True)], [], None, 5)
    assert again.ports[ONE].bound


@pytest.mark.parametrize("text", ["", "{", '{"ports": 3}', '{"ports": {"x": {"port": "x"}}}', "\0\xff"])
def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / described_ports.FILE).write_bytes(text.encode("latin-1"))
    held = DescribedPorts(tmp_path)
    held.load()
    assert held.digest == held_digest({}, {})
    assert held.take([PortDescription(ONE, 1)], (), None, 1)
    held.save()


def test_numbers_of_ports_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described_ports, "NUMBER_MAX", described_ports.FIRST_NUMBER + 1)
    assert len(DescribedPorts(tmp_path).numbers(["a", "b", "c"])) == 2


@pytest.mark.parametrize("seed", range(60))
def test_the_newest_version_wins_in_any_order(tmp_path: Path, seed: int) -> None:
    """Three states, one after the other, whose messages are mixed, doubled and lost; then the last state is sent whole."""
    dice = random.Random(seed)
    held = DescribedPorts(tmp_path)
    last: list[tuple[list[PortDescription], list[AddressSetPart], Present | None, int]] = []
    every = []
    for version in (1, 2, 3):
        ports = [PortDescription(PortId(f"p{n}"), version) for n in range(4) if dice.random() < 0.7]
        sets = [
            AddressSetPart(f"s{n}", version, part, 2, (f"10.{version}.{n}.{part}",))
            for n in range(3) if dice.random() < 0.7
            for part in range(2)
        ]  # fmt: skip
        present = Present(tuple(each.port for each in ports), tuple(sorted({each.id for each in sets})))
        last = [*(([each], [], None, version) for each in ports), *(([], [each], None, version) for each in sets)]
        last.append(([], [], present, version))
        every += last
    mixed = [each for each in every for _ in range(dice.randrange(3))]
    dice.shuffle(mixed)
    seen: dict[str, int] = {}
    for message in mixed:
        held.take(*message)
        now = {name: each.version for name, each in held.ports.items()}
        assert all(now[name] >= seen[name] for name in now if name in seen)
        seen |= now
    for message in last:
        held.take(*message)
    _, _, present, _ = last[-1]
    assert present is not None
    assert set(held.ports) == set(present.ports)
    assert set(held.sets) == set(present.sets)
    assert all(each.version == 3 for each in (*held.ports.values(), *held.sets.values()))
