"""What bodies may be: JSON schemas, and texts that stand for true or false."""

from typing import Any, TypeAlias

from moorage_embedded.http_kit.values import ValueSchema
from moorage_embedded.volume.faults import bad

Schema: TypeAlias = dict[str, Any]

TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
FALSE = frozenset({"0", "f", "false", "off", "n", "no"})
SHOWN_CHARS = 200

UUID = r"^\{?(urn:uuid:)?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\}?$"
TEXT: Schema = {"type": "string", "maxLength": 255}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"\S"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"], "maxLength": 255}
ID: Schema = {"type": "string", "pattern": UUID}
ID_OR_NULL: Schema = {"type": ["string", "null"], "pattern": UUID}
FLAG: Schema = {"enum": [True, False, *(word for each in TRUE | FALSE for word in {each, each.upper(), each.title()})]}
FLAG_OR_NULL: Schema = {"enum": [None, *FLAG["enum"]]}
SIZE: Schema = {"type": ["integer", "string"], "pattern": r"^[0-9]{1,10}$", "minimum": 1, "maximum": 2**31 - 1}
SIZE_OR_NULL: Schema = {**SIZE, "type": ["integer", "string", "null"]}
ANY: Schema = {}
_KEY = r"^[a-zA-Z0-9\-_:. /]{1,255}$"
METADATA: Schema = {"type": "object", "patternProperties": {_KEY: TEXT}, "additionalProperties": False}
METADATA_OR_NULL: Schema = {**METADATA, "type": ["object", "null"]}
IMAGE_METADATA: Schema = {
    "type": "object",
    "patternProperties": {_KEY: {"type": "string", "maxLength": 65_535}},
    "additionalProperties": False,
}
SPECS: Schema = {
    "type": "object",
    "patternProperties": {r"^[a-zA-Z0-9\-_:.]{1,255}$": TEXT_OR_NULL},
    "additionalProperties": False,
}


def obj(properties: dict[str, Schema], *required: str, more: bool = False, **words: Any) -> Schema:
    """An object with these members."""
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": more}
    return schema | words


def under(name: str, inner: Schema) -> Schema:
    """A body with one member of this name."""
    return obj({name: inner}, name)


class Check(ValueSchema):
    """One schema; calling it raises 400 with the member that is wrong."""

    def __call__(self, said: Any) -> Any:
        if (wrong := self.wrong(said)) is not None:
            path = "/".join(str(each) for each in wrong.path[1:]) or "body"
            what = str(wrong.message).removeprefix(f"{wrong.name} ")
            shown = repr(wrong.value)[:SHOWN_CHARS]
            raise bad(f"Invalid input for field/attribute {path}. Value: {shown}. It {what}.")
        return said


def flag(said: Any) -> bool:
    """One of the checked texts, as true or false."""
    return said if isinstance(said, bool) else str(said).strip().lower() in TRUE


def strict_flag(name: str, said: Any) -> bool:
    """True or false, or 400."""
    word = str(said).strip().lower()
    if word not in TRUE | FALSE:
        raise bad(f"Invalid input received: '{name} = {str(said)[:SHOWN_CHARS]}'")
    return word in TRUE


def stripped(said: dict[str, Any], *names: str) -> None:
    """Spaces around names and descriptions are removed."""
    for name in names:
        if isinstance(said.get(name), str):
            said[name] = said[name].strip()
