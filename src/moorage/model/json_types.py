"""JSON as Python values, where a body or a document has no type of its own."""

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object, or one that is about to be encoded."""
