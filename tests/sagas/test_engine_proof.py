"""The proof accepts a correct saga, and finds each planted fault."""

import pytest
from tests.helpers.proof_parameters import every_part
from tests.helpers.toy_saga import ASKED, TOY, Toy

from moorage_testing.fault_points import PointRecorder
from moorage_testing.proof_cases import Case, Tried
from moorage_testing.proof_parts import PARTS, ProofPart
from moorage_testing.saga_proof import prove


@every_part
async def test_each_part_runs_its_share_of_the_points(part: ProofPart) -> None:
    assert (await prove(TOY, ASKED, Toy, part)).total > 10


def test_the_shares_of_a_part_are_complete() -> None:
    for way in {part.way for part in PARTS}:
        mine = [part for part in PARTS if part.way == way]
        assert [(part.share, part.of) for part in mine] == [(share, len(mine)) for share in range(len(mine))]


@pytest.mark.matrix
async def test_a_correct_saga_is_proved() -> None:
    proof = await prove(TOY, ASKED, Toy)
    assert proof.total + proof.spared > 500
    assert proof.commits == 4, "begun, claimed, past the point of no return, done"
    assert proof.cases["killed"] > 100
    assert proof.cases["overtaken"] > 100


async def test_skipped_points_are_equivalent_to_tested_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried nevertheless, the executors of such a case come by the same as those of the case in whose place it was spared."""
    same, add = Tried.same, Tried.add
    alike: list[Case] = []

    def added(self: Tried, case: Case, recorder: PointRecorder) -> None:
        if (other := same(self, case)) is not None:
            passed = [seen for each, seen, _ in self._cases[case.way, case.at] if each is other]
            assert passed == [recorder.passed], f"{case} and {other}"
            alike.append(case)
        add(self, case, recorder)

    monkeypatch.setattr(Tried, "same", lambda *_: None)
    monkeypatch.setattr(Tried, "add", added)
    proof = await prove(TOY, ASKED, Toy, *(part for part in PARTS if part.way in {"dying", "cancelling", "overtaken"}))
    assert proof.spared == 0
    assert len(alike) > 50
    assert {each.way for each in alike} == {"cancel", "interrupt", "killed, then cancelled", "overtaken, cancelled"}
