"""Stored formats only get new fields: journals, records of servers and hosts (RULES §19); and what the last releases wrote is read completely.

`MOORAGE_BLESS=1 pytest tests/pure/test_stored_golden.py` writes down what was added; it refuses to bless anything else.
`tests/upgrade/write_samples.py` makes the samples, once for each release.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from tests.helpers.format_growth import broken, described

from moorage.model.action import ActionEvent
from moorage.model.cell_drain import CellDrainRequest, HostPart, RecordRow
from moorage.model.drain import DrainRequest, DrainServer
from moorage.model.host import Host, HostTroubles
from moorage.model.host_ports import Plumbed
from moorage.model.network import NetworkFacts, Port
from moorage.model.notification import Notification
from moorage.model.record_copy import ServerCopy
from moorage.model.server import Server
from moorage.model.verdict import DecisionRecord
from moorage.operations.registry import SAGAS
from moorage.saga import Cause, Line

GOLDEN = Path(__file__).parent.parent / "golden" / "stored"
SAMPLES = sorted((GOLDEN / "samples").glob("*.json"))


def stored() -> dict[str, Any]:
    """Everything that is kept as JSON and read again by another release, by the name of its golden file."""
    found: dict[str, Any] = {
        "line": Line,
        "server": Server,
        "host": Host,
        "host_troubles": HostTroubles,
        "ledger": DecisionRecord,
        "notification": Notification,
        "action_event": ActionEvent,
        "left_by_a_failed_attempt": Plumbed,
        "network": NetworkFacts,
        "port": Port,
        "cause": Cause,
        "drain.asked": DrainRequest,
        "drain.server": DrainServer,
        "cell_drain.asked": CellDrainRequest,
        "cell_drain.host": HostPart,
        "cell_drain.record": RecordRow,
        "record_copy": ServerCopy,
    }
    for name, saga in SAGAS.items():
        plain = name.replace("/", "_")
        found[f"{plain}.asked"] = saga.input_type
        for step in saga.steps:
            found[f"{plain}.{step.name}"] = get_type_hints(step.do)["return"]
    return found


APART = (Server, Host, DecisionRecord, NetworkFacts, Port, Cause)
"""Described in files of their own, and by name in the others."""


@pytest.mark.parametrize("name", sorted(stored()))
def test_stored_formats_have_only_new_fields(name: str) -> None:
    file, now = GOLDEN / f"{name}.json", described(stored()[name], APART)
    then = json.loads(file.read_text()) if file.exists() else {}
    assert broken(then, now) == []
    if os.environ.get("MOORAGE_BLESS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    else:
        assert then == now, "it has grown: look at it, then bless it (MOORAGE_BLESS=1)"


def test_no_golden_was_forgotten() -> None:
    """A saga that goes takes its golden files along, when no row can name it any more; a renamed step is a new version."""
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(stored())


@pytest.mark.parametrize(
    ("then", "now"), [(tuple[int, ...], tuple[str, ...]), (str, int), (int | None, int), (Server, Host)]
)
def test_a_changed_type_is_detected(then: Any, now: Any) -> None:
    assert broken(described(then), described(now))


class _Before(msgspec.Struct):
    size: int
    name: str = ""


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([("size", int), ("title", str, "")], "name is gone"),
        ([("size", str), ("name", str, "")], "size was"),
        ([("size", int), ("name", str, ""), ("more", int)], "more has no default"),
        ([("size", int), ("name", str)], "name has no default"),
        ([("size", int), ("name", str, ""), ("more", int, 0)], None),
        ([("size", int), ("name", str | None, None)], None),
    ],
)
def test_the_golden_check_finds_a_change(fields: list[Any], says: str | None) -> None:
    after = msgspec.defstruct("_Before", fields, kw_only=True)
    found = broken(described(_Before), described(after))
    assert (says in found[0]) if says else (found == [])


def lost(then: Any, now: Any, where: str = "") -> Iterator[str]:
    """What was written, and is not there when it has been read and written again."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key, value in then.items():
            if key in now:
                yield from lost(value, now[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is lost"
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, pair in enumerate(zip(then, now, strict=True)):
            yield from lost(*pair, f"{where}[{place}]")
    elif then != now:
        yield f"{where} was {then}, and is {now}"


def read_again(kind: Any, text: str | bytes) -> list[str]:
    """Decode as this release, encode, and compare."""
    again = msgspec.json.encode(msgspec.json.decode(text, type=kind))
    return list(lost(msgspec.json.decode(text), msgspec.json.decode(again)))


def test_the_comparison_finds_a_change() -> None:
    after = msgspec.defstruct("After", [("kept", int), ("renamed", list[int], msgspec.field(default_factory=list))])
    assert read_again(after, b'{"kept": 1, "named": [1]}') == [".named is lost"]
    assert read_again(after, b'{"kept": 1, "renamed": [1]}') == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda file: file.stem)
def test_samples_of_a_release_are_read_completely(sample: Path) -> None:
    """Each request, line, result and record, through this release's types; whoever wrote it meant all of it."""
    wrong: list[str] = []
    sagas: set[str] = set()
    for each in json.loads(sample.read_text()):
        for operation in each["operations"]:
            saga = SAGAS[operation["saga"]]
            sagas.add(saga.name)
            wrong += read_again(saga.input_type, operation["asked"])
            steps = {step.name: get_type_hints(step.do)["return"] for step in saga.steps}
            for line in operation["journal"].splitlines():
                wrong += read_again(Line, line)
                answer = json.loads(line)
                assert set(answer.get("steps", ())) <= set(steps)
                if answer["type"] == "result" and "value" in answer:
                    wrong += read_again(steps[answer["step"]], json.dumps(answer["value"]))
        for kind, texts in (
            (Server, each["servers"]),
            (Host, each["hosts"]),
            (tuple[ActionEvent, ...], each["actions"]),
        ):
            for text in texts:
                wrong += read_again(kind, text)
    assert wrong == []
    assert sagas, "a release that wrote nothing proves nothing"


def test_every_release_has_samples() -> None:
    released = (GOLDEN.parent.parent / "upgrade" / "RELEASES").read_text().splitlines()
    assert {file.stem for file in SAMPLES} == {line.split()[0] for line in released if line and line[0] != "#"}
