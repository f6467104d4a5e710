"""The harness proves a sound story, and finds each planted fault."""

import pytest
from parts import every_part
from toy import ASKED, TOY, Toy

from moorage.testing.sagas import PARTS, Part, prove


@every_part
async def test_each_part_tries_its_share(part: Part) -> None:
    assert (await prove(TOY, ASKED, Toy, part)).total > 10


def test_the_shares_of_a_part_are_all_of_it() -> None:
    for way in {part.way for part in PARTS}:
        mine = [part for part in PARTS if part.way == way]
        assert [(part.share, part.of) for part in mine] == [(share, len(mine)) for share in range(len(mine))]


@pytest.mark.matrix
async def test_a_sound_story_is_proved() -> None:
    proof = await prove(TOY, ASKED, Toy)
    assert proof.total > 500
    assert proof.commits == 4, "begun, claimed, past the point of no return, done"
    assert proof.cases["killed"] == proof.cases["overtaken"] > 100
