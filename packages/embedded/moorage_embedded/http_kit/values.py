"""What queries and bodies say in texts: numbers, moments, and values that a JSON schema describes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import fastjsonschema

from moorage_embedded.http_kit.answers import HttpFault

DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema"}
"""In which 1.0 is no integer."""


def bounded_number(name: str, said: str, most: int) -> int:
    """A number of a query, but `most` at the most. Raises HttpFault (400) for what is none, or negative."""
    try:
        number = int(said)
    except ValueError:
        raise HttpFault(400, f"{name} param must be an integer") from None
    if number < 0:
        raise HttpFault(400, f"{name} param must be positive")
    return min(number, most)


def moment_of(said: str) -> datetime:
    """An ISO 8601 time in UTC; one without a zone is in UTC. Raises ValueError, also where UTC would be before the year 1."""
    moment = datetime.fromisoformat(said)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as failure:
        raise ValueError(f"{said} is out of range") from failure


class ValueSchema:
    """A JSON schema, compiled when it is first needed; each API says in its own words what is wrong."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)
        self._compiled: Any = None

    def wrong(self, value: Any) -> fastjsonschema.JsonSchemaValueException | None:
        """What is wrong with a value; None: nothing."""
        if self._compiled is None:
            self._compiled = fastjsonschema.compile(self.schema, use_default=False)
        try:
            self._compiled(value)
        except fastjsonschema.JsonSchemaValueException as failure:
            return failure
        return None

    def reason(self, value: Any) -> str | None:
        """What is wrong, in the words that OpenStack's clients know: those of the library `jsonschema`, which is slower."""
        failure = self.wrong(value)
        if failure is None:
            return None
        from jsonschema import Draft4Validator  # slow to import, and needed only for refusals
        from jsonschema.exceptions import best_match

        told = best_match(Draft4Validator(self.schema).iter_errors(value))
        return str(failure.message if told is None else told.message)
