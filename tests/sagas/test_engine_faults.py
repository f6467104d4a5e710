"""The proof finds each planted fault: a proof that cannot fail proves nothing."""

from typing import Any

import pytest
from tests.helpers import toy_saga
from tests.helpers.toy_saga import ASKED, TOY, Toy, ToyRun

from moorage.model.errors import Internal
from moorage.saga import Run, Saga, Step, step
from moorage_testing.saga_proof import ProofFailed, prove


async def nothing(run: ToyRun) -> None:
    """An undo that somebody forgot to write."""


async def reads_its_own_result(run: ToyRun) -> None:
    run.context.disks.discard((run.input.server, run[toy_saga.claim_host]))
    assert run[toy_saga.attach_disk] is None


async def reads_a_lost_result(run: ToyRun) -> None:
    assert run[toy_saga.bind_ports]
    run.context.guests.pop(run.input.server, None)


async def works_once_only(run: ToyRun) -> None:
    del run.context.rows[run.input.server]


async def undo_leaves_no_token(run: ToyRun) -> None:
    run.context.guests.pop(run.input.server, None)  # leaves no turn behind


async def makes_more_each_time(run: ToyRun) -> tuple[str, ...]:
    made = f"{run.input.server}-{len(run.context.ports)}"
    run.context.ports |= {made: None}
    return (made,)


async def accepts_a_late_do(run: ToyRun) -> int:
    for name in run[toy_saga.make_ports]:
        run.context.ports[name] = run[toy_saga.claim_host]
    return 1


async def ignores_the_token(run: ToyRun) -> None:
    run.context.guests[run.input.server] = run[toy_saga.claim_host]


async def does_not_read_first(run: ToyRun) -> str:
    run.context.fence(run)
    run.context.letters.append(run.input.server)
    return ""


async def writes_outside_the_commit(run: ToyRun) -> str:
    tables = run.context.region.tables
    host = next(host for host in ("birch", "cedar", "delta") if host not in run.tried)
    tables["free"][host] -= 1
    tables["claims"][run.input.server] = host
    return await run.commit(lambda tx: host)


async def claims_and_forgets(run: ToyRun) -> str:
    """The old claim is not dropped when another host is claimed."""
    free, claims = "free", "claims"

    def work(tx: Any) -> str:
        host = next(host for host in ("birch", "cedar", "delta") if host not in run.tried)
        tx.tables[free][host] -= 1
        tx.tables[claims][run.input.server] = host
        return str(host)

    return await run.commit(work)


FAULTS: dict[str, Step[Any, Any, Any]] = {
    "ports are not deleted": toy_saga.make_ports.but(undo=nothing),
    "the claim is not released": toy_saga.claim_host.but(undo=nothing),
    "ports stay bound": toy_saga.bind_ports.but(do=accepts_a_late_do),
    "the disk stays attached": toy_saga.attach_disk.but(undo=nothing),
    "the row stays": toy_saga.record_server.but(undo=nothing),
    "the guest stays": toy_saga.start_guest.but(undo=nothing),
    "an undo reads its own result": toy_saga.attach_disk.but(undo=reads_its_own_result),
    "an undo reads what was lost": toy_saga.start_guest.but(undo=reads_a_lost_result),
    "an undo works only once": toy_saga.record_server.but(undo=works_once_only),
    "an undo leaves the door open": toy_saga.start_guest.but(do=ignores_the_token, undo=undo_leaves_no_token),
    "a do doubles": toy_saga.make_ports.but(do=makes_more_each_time),
    "a do does not look": toy_saga.send_letter.but(do=does_not_read_first),
    "a region step writes outside its commit": toy_saga.claim_host.but(do=writes_outside_the_commit),
    "a claim is replaced but not dropped": toy_saga.claim_host.but(do=claims_and_forgets),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
async def test_injected_engine_faults_are_found(fault: str) -> None:
    with pytest.raises(ProofFailed):
        await prove(TOY.but(FAULTS[fault]), ASKED, Toy)


async def test_a_missing_host_local_mark_is_found() -> None:
    moved: Step[Any, Any, Any] = Step(toy_saga.attach_disk.do)
    moved.undo_with = toy_saga.attach_disk.undo_with
    with pytest.raises(ProofFailed, match=r"attach_disk|start_guest|bind_ports|record_server"):
        await prove(TOY.but(moved), ASKED, Toy)


class TestRefusedAtImport:
    def test_no_undo_and_no_reason(self) -> None:
        @step
        async def leave_it(run: Run[toy_saga.Asked, Toy]) -> None: ...

        with pytest.raises(Internal, match="neither an undo nor a reason"):
            Saga("x/1", toy_saga.Asked, leave_it)

    def test_a_needed_result_of_a_later_step_is_refused(self) -> None:
        with pytest.raises(Internal, match="needs claim_host"):
            Saga("x/1", toy_saga.Asked, toy_saga.make_ports, toy_saga.bind_ports)

    def test_two_steps_with_one_name_are_refused(self) -> None:
        with pytest.raises(Internal, match="one name"):
            Saga("x/1", toy_saga.Asked, toy_saga.make_ports, toy_saga.make_ports)

    def test_no_version(self) -> None:
        with pytest.raises(Internal, match="version"):
            Saga("x", toy_saga.Asked, toy_saga.make_ports)

    def test_host_local_outside(self) -> None:
        with pytest.raises(Internal, match="host-local"):
            Saga("x/1", toy_saga.Asked, toy_saga.make_ports, toy_saga.claim_host, toy_saga.attach_disk)
