"""What a returning agent decides in every case, and what it must never do in any."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.convergence import ConvergencePlan, converge
from moorage.agent.report import changes, host_id
from moorage.bus.host_messages import ServerTurn
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PowerState, digest
from moorage.model.ids import ServerId

A, B = ServerId("a"), ServerId("b")
ON, OFF = PowerState.RUNNING, PowerState.SHUTDOWN


def test_a_guest_that_moved_away_is_destroyed() -> None:
    plan = converge({A: ON}, {A: FencingToken(1)}, {A}, [ServerTurn(A, FencingToken(2), here=False)])
    assert plan == ConvergencePlan(know=((A, FencingToken(2)),), destroy=(A,))


def test_a_repeated_convergence_after_a_kill_is_safe() -> None:
    told = [ServerTurn(A, FencingToken(2), here=False)]
    assert converge({}, {A: FencingToken(1)}, {A}, told) == ConvergencePlan(know=((A, FencingToken(2)),))
    assert converge({}, {A: FencingToken(2)}, {A}, told) == ConvergencePlan()


def test_a_guest_that_a_driver_made_too_late_is_destroyed() -> None:
    told = [ServerTurn(A, FencingToken(1).undo(), here=False)]
    assert converge({A: ON}, {A: FencingToken(1).undo()}, set(), told) == ConvergencePlan(destroy=(A,))
    assert (
        converge({A: ON}, {A: FencingToken(1)}, set(), [ServerTurn(A, FencingToken(1), here=False)])
        == ConvergencePlan()
    )


def test_a_deleted_server_is_forgotten_without_a_token() -> None:
    assert converge({A: ON}, {A: FencingToken(5)}, {A}, [ServerTurn(A, gone=True)]) == ConvergencePlan(
        destroy=(A,), forget=(A,)
    )
    assert converge({}, {A: FencingToken(5)}, set(), [ServerTurn(A, gone=True)]) == ConvergencePlan(forget=(A,))


def test_guests_the_cell_did_not_name_are_left_alone() -> None:
    assert converge({A: ON, B: ON}, {A: FencingToken(1)}, {A}, []) == ConvergencePlan()


def test_a_cell_that_knows_less_than_the_host_destroys_nothing() -> None:
    assert (
        converge({A: ON}, {A: FencingToken(3)}, {A}, [ServerTurn(A, FencingToken(2), here=False)]) == ConvergencePlan()
    )
    assert converge({A: ON}, {A: FencingToken(3)}, {A}, [ServerTurn(A, None, here=False)]) == ConvergencePlan()


def test_a_guest_without_a_journal_that_belongs_elsewhere_is_destroyed() -> None:
    assert converge({A: ON}, {}, set(), [ServerTurn(A, FencingToken(1), here=False)]).destroy == (A,)


def test_only_guests_that_were_on_and_should_be_are_started() -> None:
    told = [ServerTurn(A, FencingToken(1)), ServerTurn(B, FencingToken(1), running=False)]
    states, turns = {A: OFF, B: OFF}, {A: FencingToken(1), B: FencingToken(1)}
    assert converge(states, turns, {A, B}, told).start == (A,)
    assert converge(states, turns, set(), told).start == ()
    assert converge({A: ON, B: OFF}, turns, {A, B}, told).start == ()
    assert converge({A: PowerState.PAUSED}, turns, {A}, told).start == ()
    assert converge({}, turns, {A}, told).start == ()


_turns = st.one_of(st.none(), st.builds(FencingToken, st.integers(1, 3), st.integers(0, 1), st.integers(0, 1)))
_servers = st.sampled_from([ServerId(each) for each in "abcd"])
_told = st.builds(ServerTurn, _servers, _turns, st.booleans(), st.booleans(), st.booleans())


@given(
    guests=st.dictionaries(_servers, st.sampled_from(PowerState)),
    turns=st.dictionaries(_servers, _turns.filter(bool)),
    running=st.sets(_servers),
    told=st.lists(_told, unique_by=lambda each: each.server),
)
def test_never_the_wrong_guest(
    guests: dict[ServerId, PowerState],
    turns: dict[ServerId, FencingToken],
    running: set[ServerId],
    told: list[ServerTurn],
) -> None:
    plan, said = converge(guests, turns, running, told), {each.server: each for each in told}
    for server in plan.destroy:
        cell = said[server]
        assert cell.gone or (
            not cell.here
            and cell.turn is not None
            and (server not in turns or cell.turn > turns[server] or cell.turn == turns[server].undo())
        )
    assert set(plan.start) <= running - set(plan.destroy)
    for server, turn in plan.know:
        assert server not in turns or turn > turns[server]


def test_the_digest_is_of_the_states_and_not_of_their_order() -> None:
    assert digest({A: ON, B: OFF}) == digest({B: OFF, A: ON}) != digest({A: OFF, B: ON})


def test_changes_list_new_changed_and_removed_guests() -> None:
    assert changes({A: ON}, {A: OFF, B: ON}) == {A: OFF, B: ON}
    assert changes({A: ON, B: ON}, {B: ON}) == {A: PowerState.NOSTATE}


def test_the_id_of_a_host_depends_on_its_name_only() -> None:
    assert host_id("n1") == host_id("n1") != host_id("n2")
