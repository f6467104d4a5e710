"""The exit code of `moorage host` is 0 only if nothing is left on the host; and the output of a refusal."""

from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cli import cloud, move
from moorage.cli import host as command


class Reply:
    status_code = 202

    def __init__(self, drain: dict[str, Any]) -> None:
        self.drain = drain

    def json(self) -> dict[str, Any]:
        return {"drain": self.drain}


class Connection:
    """A cloud whose one drain stays as it is."""

    def __init__(self, drain: dict[str, Any]) -> None:
        self.drain, self.compute = drain, self

    def post(self, *_: Any, **__: Any) -> Reply:
        return Reply(self.drain)


def a_drain(status: str, **counts: int) -> dict[str, Any]:
    every = dict.fromkeys(("waiting", "moving", "confirming", "done", "left"), 0) | counts
    return {"id": "1", "host": "host1", "status": status, "why": "", "counts": every, "servers": []}


@pytest.mark.parametrize(
    ("words", "drain", "code"),
    [
        ("drain host1", a_drain("done", done=2), 0),
        ("drain host1", a_drain("incomplete", done=1, left=1), 1),
        ("drain host1", a_drain("cancelled", waiting=1), 1),
        ("drain host1 --timeout 0", a_drain("running", moving=1), 1),
        ("drain host1 --no-wait", a_drain("waiting", waiting=2), 0),
        ("drain host1 --plan", a_drain("planned", waiting=2), 0),
        ("drain host1 --plan", a_drain("planned", waiting=1, left=1), 1),
        ("drain host1 --plan --no-wait", a_drain("planned", left=1), 1),
        ("show-drain host1", a_drain("running", waiting=1), 1),
        ("show-drain host1", a_drain("waiting"), 1),
        ("show-drain host1 --wait --timeout 0", a_drain("running", confirming=1), 1),
        ("show-drain host1", a_drain("done", done=1), 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_exit_code_is_0_only_when_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, words: str, drain: dict[str, Any], code: int
) -> None:
    def get(connection: Connection, path: str, **asked: Any) -> dict[str, Any]:
        return {"drains": [drain]} if path == "/ext/drains" else {"drain": drain}

    monkeypatch.setattr(cloud, "connect", lambda *_: Connection(drain))
    monkeypatch.setattr(cloud, "get", get)
    assert command.main(words.split()) == code


class Page:
    """What a proxy answers for a cloud that is not there."""

    status_code, reason, content = 502, "Bad Gateway", b"<html>"

    def json(self) -> Any:
        raise ValueError


def test_a_proxys_page_is_a_refusal_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = Page()
    there = SimpleNamespace(find_server=lambda *_, **__: None, post=lambda *_, **__: page, get=lambda *_, **__: page)
    monkeypatch.setattr(cloud, "connect", lambda *_: SimpleNamespace(compute=there))
    with pytest.raises(SystemExit) as ended:
        move.main(["show", "first"])
    assert ended.value.code == 1
    assert command.main(["drain", "host1"]) == 2
    monkeypatch.setattr(cloud, "get", lambda *_: {"moves": [{"id": "1"}]})
    assert move.main(["cancel", "first"]) == 1
    assert capsys.readouterr().err == "moorage: Bad Gateway (502)\n" * 3
