"""A plan that balances cells: it never makes them less balanced, every move fits, and it moves where this helps."""

import random
from functools import partial

import pytest
from tests.helpers.world_builder import Cloud

from moorage.model.ids import CellId, HostId, ProviderId, ServerId
from moorage.model.world import Ask, NicRequirement
from moorage.scheduler.balance import GAIN_LEAST, Balance, Levels, MovableServer, MoveRequest
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial

JUDGE = partial(rank, profile=Profile())
A, B = CellId("a"), CellId("b")
MOVES_MAX = 50


class Fleet:
    """Hosts of some cells, and servers on them, each with an address of a segment of its cell."""

    def __init__(self) -> None:
        self.cloud = Cloud()
        self.free: dict[str, dict[str, int]] = {}
        self.segments: dict[str, int] = {}
        self.of_cell: dict[CellId, list[str]] = {}
        self.residents: list[MovableServer] = []
        self.at: dict[ServerId, str] = {}

    def host(
        self, name: str, cell: CellId, memory: int, servers: list[tuple[int, str]], *, disabled: bool = False
    ) -> None:
        """`servers`: memory and segment of each."""
        used = sum(each for each, _ in servers)
        self.free[name] = {"MEMORY_MB": memory - used, "VCPU": 64}
        self.cloud.host(
            name, 64, memory, cell=str(cell), used=used, cell_disabled=disabled, wired=tuple(self.of_cell[cell])
        )
        for number, (size, segment) in enumerate(servers):
            id = ServerId(f"{name}-{number}")
            self.at[id] = name
            self.residents.append(MovableServer(id, cell, size, ((ProviderId(segment), 1),), cost=size))

    def segment(self, name: str, cell: CellId, total: int, used: int) -> None:
        self.of_cell.setdefault(cell, []).append(name)
        self.segments[name] = total - used
        self.cloud.segment(name, total - used, total)

    def wish(self, one: MovableServer) -> MoveRequest:
        """It may have an address of any segment."""
        nic = NicRequirement("n", tuple(ProviderId(each) for each in self.segments))
        ask = Ask(
            resources={"MEMORY_MB": one.memory_mib, "VCPU": 1},
            nics=(nic,),
            leaves=HostId(self.at[one.server]),
            prefer_cell=one.cell,
        )
        return MoveRequest((ask,), (one.addresses[0],))

    def planned(self) -> Balance:
        balance = Balance(Trial(self.cloud.world(), JUDGE), self.residents)
        while len(balance.moves) < MOVES_MAX and (best := balance.best()) is not None:
            one, target = best
            balance.place(one, target, self.wish(one))
        return balance


def fleet_of(seed: int) -> Fleet:
    dice, fleet = random.Random(seed), Fleet()
    for cell in [CellId(f"cell{number}") for number in range(dice.randint(1, 4))]:
        on: dict[str, list[list[tuple[int, str]]]] = {}
        names = [f"{cell}-s{number}" for number in range(dice.randint(1, 2))]
        hosts = [[(dice.choice([512, 1024, 4096]), dice.choice(names)) for _ in range(dice.randint(0, 8))]
                 for _ in range(dice.randint(1, 4))]  # fmt: skip
        on[cell] = hosts
        for name in names:
            used = sum(segment == name for servers in hosts for _, segment in servers)
            fleet.segment(name, cell, used + dice.choice([0, 1, 3, 20]), used)
        disabled = dice.random() < 0.2
        for number, servers in enumerate(hosts):
            room = sum(size for size, _ in servers) + dice.choice([0, 512, 4096, 32768])
            fleet.host(f"{cell}-h{number}", cell, room or 512, servers, disabled=disabled)
    return fleet


@pytest.mark.parametrize("seed", range(60))
def test_every_move_of_a_plan_fits_and_improves_the_balance(seed: int) -> None:
    fleet = fleet_of(seed)
    before, balance = Levels(fleet.cloud.world()), fleet.planned()
    last = before.unevenness()
    assert len({each.resident.server for each in balance.moves}) == len(balance.moves)
    for move in balance.moves:
        one, choice = move.resident, move.choice
        assert move.unevenness <= last - GAIN_LEAST * before.unevenness()
        last = move.unevenness
        room = fleet.free[choice.name]
        for name, amount in (("MEMORY_MB", one.memory_mib), ("VCPU", 1)):
            assert room[name] >= amount, "without what moves before it gave back"
            room[name] -= amount
        (segment,) = choice.segments
        assert segment is not None
        assert fleet.segments[segment] >= 1
        assert segment in fleet.of_cell[choice.cell]
        fleet.segments[segment] -= 1
        assert choice.cell != one.cell
        assert {one.cell, choice.cell} <= set(before.cells), "who is closed takes nobody and is left alone"
    # counted once more, from what is where at the end
    memory = dict.fromkeys(before.cells, 0)
    for one in fleet.residents:
        cell = next((each.choice.cell for each in balance.moves if each.resident is one), one.cell)
        if cell in memory:
            memory[cell] += one.memory_mib
    assert {each.cell: each.memory_used_mib for each in balance.levels.rounded()} == memory


def test_the_cheapest_effective_moves_come_first_and_the_plan_ends() -> None:
    fleet = Fleet()
    for cell in (A, B):
        fleet.segment(f"s-{cell}", cell, 100, 8 if cell == A else 0)
    fleet.host("a1", A, 16384, [(2048, "s-a")] * 8)
    fleet.host("b1", B, 16384, [])
    fleet.residents = [each._replace(cost=10 - number) for number, each in enumerate(fleet.residents)]
    balance = fleet.planned()
    assert [each.resident.cost for each in balance.moves] == [3, 4, 5, 6]
    assert balance.levels.unevenness() == pytest.approx(0)
    assert [(each.memory_used_mib, each.addresses_used) for each in balance.levels.rounded()] == [(8192, 4), (8192, 4)]
    assert [(each.memory_used_mib, each.addresses_used) for each in balance.before] == [(16384, 8), (0, 0)]


def test_addresses_alone_can_cause_moves() -> None:
    fleet = Fleet()
    fleet.segment("s-a", A, 10, 9)
    fleet.segment("s-b", B, 10, 1)
    fleet.host("a1", A, 65536, [(64, "s-a")] * 9)
    fleet.host("b1", B, 65536, [(576, "s-b")])
    balance = fleet.planned()
    assert len(balance.moves) == 4
    assert [each.addresses_used for each in balance.levels.rounded()] == [5, 5]


def test_a_cell_without_capacity_is_not_tried_endlessly() -> None:
    fleet = Fleet()
    fleet.segment("s-a", A, 100, 40)
    fleet.segment("s-b", B, 100, 0)
    fleet.host("a1", A, 65536, [(1024, "s-a")] * 40)
    for number in range(40):
        fleet.host(f"b{number}", B, 1000, [])  # much together, and nowhere enough for one
    asked = 0
    balance = Balance(Trial(fleet.cloud.world(), JUDGE), fleet.residents)
    while (best := balance.best()) is not None:
        asked += 1
        refused = balance.place(*best, fleet.wish(best[0]))
        assert refused is not None
        assert "not enough memory" in refused.fault()  # type: ignore[union-attr]
    assert (asked, balance.moves) == (5, [])
