"""Input of clients is escaped in log lines; and the format of lines."""

import io
import json
import logging
from datetime import UTC, datetime

import pytest

from moorage.main.config import Config
from moorage.main.logs import MESSAGE_MAX_CHARACTERS, JsonFormatter, TextFormatter, escaped, set_up_log
from moorage.model.task_context import global_request_id, operation_id, request_id

FORGED = "/v2.1/x\n2026-11-22 01:00:00,000 INFO    moorage.api.app: req-0 DELETE /servers 204\x1b[31m\r\x9b\u2028\u202e\x00\ud800"


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


def logged(formatter: logging.Formatter, out: io.StringIO, *said: object, failure: BaseException | None = None) -> str:
    log = logging.Logger("moorage.test")
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    log.addHandler(handler)
    log.error(*said, exc_info=failure)
    out.getvalue().encode()  # what a file or a terminal can take
    return out.getvalue()


def test_unprintable_characters_are_escaped() -> None:
    assert escaped("Überall 日本 fits") == "Überall 日本 fits"
    assert escaped("a\nb\tc\x1b[0m\x7f\x85") == "a\\nb\\tc\\x1b[0m\\x7f\\x85"
    assert escaped("\u2028\u202e\ud800\U000e0001") == "\\u2028\\u202e\\ud800\\U000e0001"


def test_a_path_cannot_add_a_log_line(lines: io.StringIO) -> None:
    said = logged(TextFormatter(), lines, "%s %s", "GET", FORGED)
    assert said.count("\n") == 1
    assert said[:-1].isprintable()
    assert "\\n2026-11-22 01:00:00,000 INFO" in said


def failing(text: str) -> BaseException:
    try:
        raise ValueError(text)
    except ValueError as failure:
        return failure


def test_lines_of_a_traceback_are_indented(lines: io.StringIO) -> None:
    said = logged(TextFormatter(), lines, "it failed", failure=failing(FORGED)).splitlines()
    assert said[0].endswith("moorage.test: it failed")
    assert len(said) > 4
    assert all(line.startswith("    ") and line.isprintable() for line in said[1:])


def test_long_messages_are_cut(lines: io.StringIO) -> None:
    said = logged(TextFormatter(), lines, "%s", "x" * 1_000_000)
    assert len(said) < MESSAGE_MAX_CHARACTERS + 200
    assert said.endswith(f"… ({1_000_000 - MESSAGE_MAX_CHARACTERS} characters more)\n")
    long = logged(TextFormatter(), io.StringIO(), "it failed", failure=failing("x" * 1_000_000))
    assert len(long) < 40_000


def test_json_logs_have_one_object_per_line(lines: io.StringIO) -> None:
    of_request, of_operation = request_id.set("req-1"), operation_id.set("op-1")
    carried = global_request_id.set("req-global")
    try:
        said = logged(JsonFormatter(), lines, "%s", FORGED, failure=failing(FORGED))
    finally:
        request_id.reset(of_request)
        operation_id.reset(of_operation)
        global_request_id.reset(carried)
    assert said.count("\n") == 1
    assert said[:-1].isprintable()
    record = json.loads(said)
    assert record["message"] == FORGED.replace("\ud800", "\\ud800")
    assert record["level"] == "error"
    assert record["logger"] == "moorage.test"
    assert (record["request_id"], record["global_request_id"], record["operation_id"]) == (
        "req-1",
        "req-global",
        "op-1",
    )
    assert "ValueError" in record["traceback"]
    assert abs((datetime.now(UTC) - datetime.fromisoformat(record["time"])).total_seconds()) < 60


def test_json_lines_without_a_request_have_no_request_field(lines: io.StringIO) -> None:
    record = json.loads(logged(JsonFormatter(), lines, "ready"))
    assert sorted(record) == ["level", "logger", "message", "process", "time"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_all_loggers_use_the_format(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Libraries too: theirs are not left to handlers of their own."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        set_up_log(Config(log_format=form))  # type: ignore[arg-type]
        for name in ("moorage.api.app", "uvicorn.error", "asyncio"):
            logging.getLogger(name).error("%s", FORGED)
        output = capsys.readouterr().err.splitlines()
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert len(output) == 3
    assert all(line.isprintable() for line in output)
