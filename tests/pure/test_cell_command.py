"""The exit code of `moorage cell drain` is 0 only if nothing is left in the cell; and its output."""

from typing import Any

import pytest

from moorage.cli import cell as command
from moorage.cli import cell_drain, cloud


class Reply:
    status_code = 202

    def __init__(self, drain: dict[str, Any]) -> None:
        self.drain = drain

    def json(self) -> dict[str, Any]:
        return {"cell_drain": self.drain}


class Connection:
    """A cloud whose one drain stays as it is."""

    def __init__(self, drain: dict[str, Any]) -> None:
        self.drain, self.compute = drain, self

    def post(self, *_: Any, **__: Any) -> Reply:
        return Reply(self.drain)


def a_drain(status: str, **counts: int) -> dict[str, Any]:
    every = dict.fromkeys(("waiting", "moving", "confirming", "done", "left"), 0) | counts
    hosts = [{"host": "host1", "drain": "2", "progress": "done", "counts": {"done": 2}, "why": ""}]
    hosts += [{"host": "host2", "drain": None, "progress": "waiting", "counts": {}, "why": ""}]
    gone = [{"server": "s", "name": "old", "cell": "cell2", "progress": "left", "attempts": 3, "why": "no room"}]
    return {
        "id": "1",
        "cell": "cell1",
        "status": status,
        "why": "",
        "counts": every,
        "hosts": hosts,
        "offloaded": gone,
    }


@pytest.mark.parametrize(
    ("words", "drain", "code"),
    [
        ("drain cell1", a_drain("done", done=2), 0),
        ("drain cell1", a_drain("incomplete", done=1, left=1), 1),
        ("drain cell1", a_drain("cancelled", waiting=1), 1),
        ("drain cell1 --timeout 0", a_drain("running", moving=1), 1),
        ("drain cell1 --no-wait", a_drain("waiting", waiting=2), 0),
        ("drain cell1 --plan", a_drain("planned", waiting=2), 0),
        ("drain cell1 --plan", a_drain("planned", waiting=1, left=1), 1),
        ("show-drain cell1", a_drain("running", waiting=1), 1),
        ("show-drain cell1 --wait --timeout 0", a_drain("running", confirming=1), 1),
        ("show-drain cell1", a_drain("done", done=1), 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_exit_code_is_0_only_when_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, words: str, drain: dict[str, Any], code: int
) -> None:
    def get(connection: Connection, path: str, **asked: Any) -> dict[str, Any]:
        return {"cell_drains": [drain]} if path == "/ext/cell-drains" else {"cell_drain": drain}

    monkeypatch.setattr(cloud, "get", get)
    monkeypatch.setattr(cloud, "connect", lambda name: Connection(drain))
    assert command.main(words.split()) == code


def test_printed_output() -> None:
    told = a_drain("running", done=2, left=1)
    assert cell_drain.bar(told) == f"[{'#' * 15}{'.' * 15}] 1/2 hosts  2 done, 1 left"
    said = "\n".join(cell_drain.lines(told))
    assert said.startswith("drain of cell1: running (1)")
    assert "host1  done      2 done" in said
    assert said.endswith("old        left      cell2  no room")
