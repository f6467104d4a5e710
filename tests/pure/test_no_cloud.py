"""A command of the client where no cloud answers: one sentence, and no traceback."""

import pytest

from moorage.cli import cloud

exceptions = pytest.importorskip("keystoneauth1.exceptions")


def test_a_cloud_that_does_not_answer_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def command(words: list[str]) -> int:
        raise exceptions.ConnectFailure(
            "Unable to establish connection to http://127.0.0.1:1/v3: HTTPConnectionPool(…)"
        )

    assert cloud.run(command, []) == 2
    said = capsys.readouterr().err
    assert said == (
        "moorage: the cloud does not answer: Unable to establish connection to http://127.0.0.1:1/v3. Is it running "
        "(`moorage up`)?\n"
    )


def test_what_a_command_returns_is_kept() -> None:
    assert cloud.run(lambda words: len(words), ["a"]) == 1
