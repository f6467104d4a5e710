"""The log of one process: lines for people, or JSON for machines (`log_format`).

Most of what is logged comes from outside: a path, a name, another service's error, the text of an exception.  It is never written
unchanged: characters that are not printable are escaped, and further lines of a record (a traceback) are indented, so that every
line that starts at the left margin was written by Moorage itself.  In JSON a record is one line.
"""

import logging
import sys
import time
from typing import Any

import msgspec
from typing_extensions import override

from moorage.main.config import Config
from moorage.model.json_types import JsonObject
from moorage.model.task_context import global_request_id, operation_id, request_id

MESSAGE_MAX_CHARACTERS = 8_192
TRACEBACK_MAX_CHARACTERS = 32_768
INDENT = "    "


def escaped(text: str) -> str:
    """Return the text on one line and with printable characters only: a line break is `\\n`, a terminal's escape `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, most: int) -> str:
    """Return the beginning of the text, at most `most` characters, and how much is missing."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} characters more)"


class TextFormatter(logging.Formatter):
    """Writes a record as time, level, logger and message; the traceback of an error follows, indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    @override
    def format(self, record: logging.LogRecord) -> str:
        record.message = escaped(shortened(record.getMessage(), MESSAGE_MAX_CHARACTERS))
        record.asctime = self.formatTime(record)
        lines = [self.formatMessage(record)]
        lines.extend(INDENT + escaped(line) for line in _traceback(self, record).split("\n") if line)
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object on one line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        seconds, milliseconds = time.gmtime(record.created), int(record.msecs)
        fields: JsonObject = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', seconds)}.{milliseconds:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shortened(record.getMessage(), MESSAGE_MAX_CHARACTERS),
            "process": record.process,
        }
        carried = global_request_id.get()
        if of_request := request_id.get() or carried:
            fields["request_id"] = of_request
        if carried and carried != of_request:
            fields["global_request_id"] = carried
        if of_operation := operation_id.get():
            fields["operation_id"] = of_operation
        if traceback := _traceback(self, record):
            fields["traceback"] = traceback
        line = msgspec.json.encode({name: _writable(value) for name, value in fields.items()}).decode()
        return line if line.isprintable() else "".join(each if each.isprintable() else _in_json(each) for each in line)


def _writable(value: Any) -> Any:
    """Replace single surrogates, with which Python represents bytes that are not UTF-8: JSON cannot represent them."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _in_json(character: str) -> str:
    """Escape a character that JSON leaves unchanged, and that a terminal or a reader of lines interprets."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback, shortened if necessary: its last part is kept, because it says what failed."""
    text = formatter.formatException(record.exc_info) if record.exc_info else ""
    if record.stack_info:
        text = f"{text}\n{record.stack_info}"
    return text[-TRACEBACK_MAX_CHARACTERS:]


def set_up_log(config: Config) -> None:
    """Send the log of all loggers of this process to its standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.log_format == "json" else TextFormatter())
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
