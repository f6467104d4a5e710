"""Messages only get new fields: a published field keeps its name, type and meaning (RULES §19).

`MOORAGE_BLESS=1 pytest tests/pure/test_messages_golden.py` writes down what was added; it refuses to bless anything else.
"""

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.helpers.format_growth import RENAMED

from moorage.bus.command_messages import Command, Result
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.host_messages import Heartbeat
from moorage.bus.messages import MESSAGES, PAYLOADS, encode, pack, read
from moorage.bus.verbs import Verb
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId

GOLDEN = Path(__file__).parent.parent / "golden" / "messages"
ALL = [*MESSAGES, *PAYLOADS]


def schema(kind: type[Any]) -> dict[str, Any]:
    """The message and every struct inside it, without words that are only said to people."""
    _, parts = msgspec.json.schema_components([kind])
    text = msgspec.json.encode(parts).decode()
    for now, written in RENAMED.items():
        text = text.replace(f'"{now}":', f'"{written}":').replace(f'"#/$defs/{now}"', f'"#/$defs/{written}"')
    return {name: _without_prose(part) for name, part in sorted(json.loads(text).items())}


def _without_prose(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _without_prose(value) for key, value in part.items() if key not in ("description", "title")}
    return [_without_prose(each) for each in part] if isinstance(part, list) else part


def broken(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What an old reader or an old writer would stumble over."""
    found = []
    for name, old in then.items():
        new = now.get(name)
        if new is None:
            found.append(f"{name} is gone")
        elif "properties" in old:
            for field, kind in old["properties"].items():
                if field not in new["properties"]:
                    found.append(f"{name}.{field} is gone")
                elif new["properties"][field] != kind:
                    found.append(f"{name}.{field} was {kind}, and is {new['properties'][field]}")
            found += [
                f"{name}.{field} is new and has no default" for field in set(new["required"]) - set(old["required"])
            ]
        elif "enum" in old:
            found += [f"{name} has lost {each}" for each in set(old["enum"]) - set(new["enum"])]
        elif "prefixItems" in old:
            if new["prefixItems"][: len(old["prefixItems"])] != old["prefixItems"]:
                found.append(f"{name}: places have changed")
            if new.get("minItems", 0) > old.get("minItems", 0):
                found.append(f"{name} has a new place without a default")
    return found


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_message_has_only_grown(kind: type[Any]) -> None:
    file, now = GOLDEN / f"{kind.__name__}.json", schema(kind)
    then = json.loads(file.read_text()) if file.exists() else {}
    assert broken(then, now) == []
    if os.environ.get("MOORAGE_BLESS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    else:
        assert then == now, "it has grown: look at it, then bless it (MOORAGE_BLESS=1)"


def test_no_golden_message_was_forgotten() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == {kind.__name__ for kind in ALL}


class _Before(msgspec.Struct):
    size: int
    name: str = ""


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([("size", int), ("title", str, "")], "name is gone"),
        ([("size", str), ("name", str, "")], "size was"),
        ([("size", int), ("name", str, ""), ("more", int)], "no default"),
        ([("size", int), ("name", str, ""), ("more", int, 0)], None),
    ],
)
def test_the_golden_check_finds_a_change(fields: list[Any], says: str | None) -> None:
    after = msgspec.defstruct("_Before", fields, kw_only=True)
    found = broken({"_Before": schema(_Before)["_Before"]}, {"_Before": schema(after)["_Before"]})
    assert (says in found[0]) if says else (found == [])


def test_messages_survive_encoding_and_decoding() -> None:
    command = Command(
        server=ServerId("s"),
        turn=FencingToken(3, 1, UNDO),
        step="start_guest",
        verb=Verb.DESTROY_GUEST,
        operation=OperationId("o"),
        deadline=12.5,
        reply_to=ConductorId("c"),
    )
    assert read(encode(command)) == command
    result = Result(
        "h", CellId("c1"), ServerId("s"), FencingToken(3), "x", ok=True, payload=pack(GuestNow(PowerState.RUNNING))
    )
    back = read(encode(result))
    assert isinstance(back, Result)
    assert msgspec.json.decode(back.payload, type=GuestNow).power_state is PowerState.RUNNING


def test_unknown_fields_of_newer_peers_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    beat = msgspec.json.decode(encode(Heartbeat("h", CellId("c"), "b")))
    assert read(msgspec.json.encode({**beat, "invented_later": [1]})) == Heartbeat("h", CellId("c"), "b")
    assert read(b'{"type":"invented_later"}') is None
    assert read(b"\xff") is None
    assert "is ignored" in caplog.text


def test_fencing_tokens_are_ordered() -> None:
    story = [
        FencingToken(1, 0),
        FencingToken(1, 0).undo(),
        FencingToken(1, 1),
        FencingToken(1, 1).undo(),
        FencingToken(2, 0),
    ]
    assert all(earlier < later for earlier, later in pairwise(story))
