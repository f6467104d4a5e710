"""A turn is bounded by what the cell knows: ignored beyond it, obeyed when the cell has said so, and by nothing before it says anything."""

from moorage.agent.turn_bounds import AHEAD_MAX, ASK_EVERY_S, TOLD_MAX, TurnBounds
from moorage.bus.command_messages import Command
from moorage.bus.host_messages import NOT_TOLD_UP_TO, ServersOfHost
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import ConductorId, OperationId, ServerId

SERVER = ServerId("s")


class Hands:
    """A clock that a test sets."""

    now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def order(number: int, server: ServerId = SERVER) -> Command:
    return Command(server, FencingToken(number), "x", "power_off", OperationId("o"), 0.0, ConductorId("c"))


async def test_a_turn_is_bounded_by_what_the_cell_tells() -> None:
    questions: list[float] = []
    clock = Hands()

    async def ask() -> None:
        questions.append(clock.now_s)

    bounds = TurnBounds("h", clock, ask)
    assert not await bounds.is_too_far(order(10**9)), "the cell's release tells nothing"
    bounds.note(ServersOfHost("q"))
    assert not await bounds.is_too_far(order(10**9))
    bounds.note(ServersOfHost("q", newest={}))
    most = NOT_TOLD_UP_TO + AHEAD_MAX
    assert not await bounds.is_too_far(order(most))
    assert await bounds.is_too_far(order(most + 1))
    assert await bounds.is_too_far(order(most + 1))
    assert questions == [0.0], "a flood asks the cell once"
    clock.now_s += ASK_EVERY_S
    assert await bounds.is_too_far(order(most + 1))
    assert len(questions) == 2
    bounds.note(ServersOfHost("q", newest={SERVER: most}))
    assert not await bounds.is_too_far(order(most + AHEAD_MAX)), "it really had so many"
    assert await bounds.is_too_far(order(most + AHEAD_MAX + 1))
    bounds.note(ServersOfHost("q", newest={SERVER: 1}))
    assert not await bounds.is_too_far(order(most + AHEAD_MAX)), "an answer that overtook another lowers nothing"
    bounds.note(ServersOfHost("q", newest={ServerId(str(each)): 900 for each in range(TOLD_MAX)}))
    assert len(bounds._newest) == TOLD_MAX
