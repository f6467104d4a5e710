"""A service that keeps failing is not called, then probed by one call at a time, and used again when it answers (N19)."""

import pytest

from moorage.clients.circuit_breaker import REST_MOST_S, Breaker, Permit
from moorage.model.errors import CircuitOpen

MAKE, BIND, LIST = "POST ports", "PUT ports", "GET ports"


class Hours:
    """A clock that the test holds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hours() -> Hours:
    return Hours()


@pytest.fixture
def breaker(hours: Hours) -> Breaker:
    return Breaker("network", failures_max=3, rest_s=2.0, monotonic=hours)


def fail(breaker: Breaker, *kinds: str, reached: bool = True) -> None:
    for kind in kinds:
        passage = breaker.enter(kind)
        passage.failed("the network service failed", reached=reached)
        passage.left()


def answer(breaker: Breaker, kind: str) -> None:
    breaker.enter(kind).answered()


def refused(breaker: Breaker, kind: str) -> CircuitOpen:
    with pytest.raises(CircuitOpen) as found:
        breaker.enter(kind)
    return found.value


def test_failures_in_a_row_open_the_circuit(breaker: Breaker) -> None:
    fail(breaker, MAKE, MAKE)
    answer(breaker, MAKE)
    fail(breaker, MAKE, MAKE)
    assert not breaker.open_circuits(), "an answer between them: they are not in a row"
    fail(breaker, MAKE)
    said = refused(breaker, MAKE)
    assert said.retry_after_s == 2.0
    assert str(said) == "the network service failed, 3 times in a row; it is asked again in a moment"
    assert [(each.neighbour, each.calls, each.failures) for each in breaker.open_circuits()] == [("network", MAKE, 3)]


def test_one_failing_kind_of_call_does_not_block_others(breaker: Breaker) -> None:
    fail(breaker, MAKE, MAKE, MAKE)
    refused(breaker, MAKE)
    answer(breaker, LIST)
    fail(breaker, LIST, LIST)
    answer(breaker, LIST)


def test_several_failing_kinds_or_no_answer_open_the_whole_circuit(breaker: Breaker) -> None:
    fail(breaker, MAKE, BIND, LIST)
    for kind in (MAKE, BIND, LIST, "DELETE ports"):
        refused(breaker, kind)
    assert [each.calls for each in breaker.open_circuits()] == [""]


def test_an_unreachable_service_opens_the_whole_circuit(breaker: Breaker) -> None:
    fail(breaker, MAKE, MAKE, MAKE, reached=False)
    refused(breaker, LIST)
    assert [each.calls for each in breaker.open_circuits()] == [""], "this kind of call is not to blame"


def test_one_probe_at_a_time_is_sent(breaker: Breaker, hours: Hours) -> None:
    fail(breaker, MAKE, MAKE, MAKE)
    hours.now += 1.9
    refused(breaker, MAKE)
    hours.now += 0.2
    probe = breaker.enter(MAKE)
    assert refused(breaker, MAKE).retry_after_s > 0, "not two probes at once"
    probe.answered()
    passages = [breaker.enter(MAKE) for _ in range(10)]
    assert len(passages) == 10
    assert not breaker.open_circuits()
    fail(breaker, MAKE, MAKE)
    assert not breaker.open_circuits(), "it counts from the beginning again"


def test_each_failed_probe_lengthens_the_pause(breaker: Breaker, hours: Hours) -> None:
    fail(breaker, MAKE, MAKE, MAKE)
    rests = []
    for _ in range(5):
        rests.append(refused(breaker, MAKE).retry_after_s)
        hours.now += rests[-1]
        fail(breaker, MAKE)
    assert rests == [2.0, 4.0, 8.0, REST_MOST_S, REST_MOST_S]
    hours.now += REST_MOST_S
    answer(breaker, MAKE)
    fail(breaker, MAKE, MAKE, MAKE)
    assert refused(breaker, MAKE).retry_after_s == 2.0


def test_a_cancelled_probe_decides_nothing_and_allows_another(breaker: Breaker, hours: Hours) -> None:
    fail(breaker, MAKE, MAKE, MAKE)
    hours.now += 2.0
    breaker.enter(MAKE).left()
    assert breaker.open_circuits()
    answer(breaker, MAKE)
    assert not breaker.open_circuits()


def test_late_results_of_earlier_calls_are_ignored(breaker: Breaker, hours: Hours) -> None:
    early: list[Permit] = [breaker.enter(MAKE) for _ in range(4)]
    fail(breaker, MAKE, MAKE, MAKE)
    early[0].failed("late")
    early[1].answered()
    assert refused(breaker, MAKE).retry_after_s == 2.0, "neither longer nor over"
    hours.now += 2.0
    answer(breaker, MAKE)
    early[2].failed("later still")
    fail(breaker, MAKE, MAKE)
    assert not breaker.open_circuits()


def test_retry_after_is_respected(breaker: Breaker) -> None:
    for asked_s in (1.0, 1.0, 30.0):
        breaker.enter(MAKE).failed("busy", rest_s=asked_s)
    assert refused(breaker, MAKE).retry_after_s == 30.0


def test_the_circuit_breaker_can_be_disabled(hours: Hours) -> None:
    never = Breaker("image", failures_max=0, monotonic=hours)
    fail(never, *[LIST] * 50)
    fail(never, *[LIST] * 50, reached=False)
    assert not never.open_circuits()
