"""The harness proves a sound story, and finds each planted fault."""

from toy import ASKED, TOY, Toy

from moorage.testing.sagas import prove


async def test_a_sound_story_is_proved() -> None:
    proof = await prove(TOY, ASKED, Toy)
    assert proof.total > 500
    assert proof.commits == 4, "begun, claimed, past the point of no return, done"
    assert proof.cases["killed"] == proof.cases["overtaken"] > 100
