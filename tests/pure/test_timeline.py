"""The steps of an operation as owners see them: in order, with undos, and without internal data of the journal."""

from moorage.operations.timeline import timeline
from moorage.saga.journal import Begun, Cause, Ended, Failed, Intent, Stalled, StepResult, Undone, Unwinding, Waiting


def shown(*lines: object) -> list[tuple[str, int, str, bool]]:
    return [(each["step"], each["attempt"], each["state"], each["undo"]) for each in timeline(lines)]  # type: ignore[arg-type]


def test_a_successful_boot_under_way() -> None:
    lines = [
        Intent(("make_ports",)),
        StepResult("make_ports"),
        StepResult("claim_host", 1),
        Intent(("bind_ports", "announce"), 1),
        StepResult("bind_ports", 1),
    ]
    assert shown(*lines) == [
        ("make_ports", 0, "done", False),
        ("claim_host", 1, "done", False),
        ("bind_ports", 1, "done", False),
        ("announce", 1, "begun", False),
    ]
    assert shown(*lines, StepResult("announce"), Ended())[-1] == ("announce", 1, "done", False)


def test_a_failed_host_and_the_next() -> None:
    failed = Failed(
        Cause("start_guest", 1, public="the host failed", private="host7: secret"), (Begun("start_guest", 1),)
    )
    lines = [
        Intent(("start_guest", "announce"), 1),
        failed,
        Undone("start_guest", 1),
        Intent(("start_guest", "announce"), 2),
        StepResult("start_guest", 2),
    ]
    assert shown(*lines) == [
        ("start_guest", 1, "failed", False),
        ("start_guest", 1, "undone", True),
        ("start_guest", 2, "done", False),
        ("announce", 2, "begun", False),
    ]
    assert "secret" not in str(timeline(lines))
    assert timeline(lines)[0]["message"] == "the host failed"


def test_steps_are_undone_newest_first_and_may_wait_or_be_stuck() -> None:
    turn = Unwinding(
        "failed", Cause("claim_host", 1, public="no valid host"), open=(Begun("make_ports"), Begun("claim_host", 1))
    )
    lines = [Intent(("make_ports",)), StepResult("make_ports"), turn]
    assert shown(*lines)[-2:] == [("claim_host", 1, "begun", True), ("make_ports", 0, "begun", True)]
    waiting = [
        *lines,
        Undone("claim_host", 1),
        Waiting("make_ports", public="the network service is out", named="neutron-7"),
    ]
    assert shown(*waiting)[-1] == ("make_ports", 0, "waiting", True)
    assert "neutron-7" not in str(timeline(waiting))
    stuck = [*waiting, Stalled("make_ports", "undo", Cause(public="no answer for a day"))]
    assert timeline(stuck)[-1] | {"attempt": 0} == {
        "step": "make_ports",
        "attempt": 0,
        "state": "stuck",
        "undo": True,
        "message": "no answer for a day",
    }
    assert shown(*stuck, Undone("make_ports"))[-1] == ("make_ports", 0, "undone", True)


def test_a_cancel_is_no_failure() -> None:
    turn = Unwinding(
        "cancel", Cause("start_guest", 1, public="a delete was asked for"), open=(Begun("start_guest", 1),)
    )
    assert shown(Intent(("start_guest",), 1), turn)[0] == ("start_guest", 1, "cancelled", False)
