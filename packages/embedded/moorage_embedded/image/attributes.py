"""The attributes of an image: checked against the published schema, with the limits and reserved names that it does not have."""

from typing import Any
from uuid import uuid4

from moorage_embedded.http_kit.values import DRAFT_4, ValueSchema
from moorage_embedded.image.faults import bad, forbidden, not_allowed, read_only, reserved, too_large
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.request import ImageSettings, fine, now, second
from moorage_embedded.image.schemas import IMAGE, WORD_MAX_CHARS
from moorage_embedded.image.store import BASE, Doc

VALUE_MAX_CHARS = 65_535
NUMBER_MAX = 2**31 - 1

DISALLOWED = frozenset({"direct_url", "self", "file", "schema", "stores"})
READ_ONLY = frozenset(
    {
        "created_at", "updated_at", "status", "checksum", "size", "virtual_size", "direct_url", "self", "file",
        "schema", "id", "os_hash_algo", "os_hash_value", "stores",
    }
)  # fmt: skip
RESERVED = frozenset({"location", "deleted", "deleted_at"})
RESERVED_PREFIX = "os_glance"
CHECKED = frozenset(
    {
        "id", "name", "owner", "visibility", "protected", "os_hidden", "container_format", "disk_format", "min_ram",
        "min_disk", "tags",
    }
)  # fmt: skip
"""Base attributes that a request may set."""


_ATTRIBUTES = {name: ValueSchema(DRAFT_4 | IMAGE["properties"][name]) for name in CHECKED}
_PROPERTY = ValueSchema(DRAFT_4 | IMAGE["additionalProperties"])


def check(name: str, value: Any) -> None:
    """One attribute, base or a user's own. Raises Fault with 400."""
    if (reason := _ATTRIBUTES.get(name, _PROPERTY).reason(value)) is not None:
        raise bad(f"Provided object does not match schema 'image': {reason}")
    if name in {"min_ram", "min_disk"}:
        _check_number(value)
    if name in {"name", "owner"} and value is not None and any(ord(letter) > 0xFFFF for letter in value):
        raise bad("Only characters of the Basic Multilingual Plane are allowed.")
    if name not in CHECKED and len(str(value)) > VALUE_MAX_CHARS:
        raise bad(f"The value of a property may have {VALUE_MAX_CHARS} characters at most.")
    for word in value if isinstance(value, list) else [value]:
        if isinstance(word, str) and "\0" in word:
            raise bad(f"{name}: a word may not hold the character NUL.")


def _check_number(value: int) -> None:
    if value < 0:
        raise bad(f"Invalid value '{value}': Cannot be a negative value.")
    if value > NUMBER_MAX:
        raise bad(f"Invalid value '{value}': Cannot be greater than {NUMBER_MAX}.")


def check_name(name: str) -> None:
    """May an image have a property of this name?"""
    if not name or len(name) > WORD_MAX_CHARS:
        raise bad("Custom property should not be greater than 255 characters.")
    if "\0" in name:
        raise bad("The name of a property may not hold the character NUL.")
    if name in RESERVED or name.startswith(RESERVED_PREFIX):
        raise reserved(name)


def check_limits(doc: Doc, settings: ImageSettings) -> None:
    own = sum(1 for name in doc if name not in BASE)
    if own > settings.properties_max:
        raise too_large(
            f"The limit has been exceeded on the number of allowed image properties. Attempted: {own},"
            f" Maximum: {settings.properties_max}"
        )
    if len(doc["tags"]) > settings.tags_max:
        raise too_large(
            f"The limit has been exceeded on the number of allowed image tags. Attempted: {len(doc['tags'])},"
            f" Maximum: {settings.tags_max}"
        )


def check_visibility(who: ImageCaller, visibility: str) -> None:
    """Everybody's images are the administrators' to make."""
    if visibility == "public" and not who.admin:
        raise not_allowed("publicize_image")


def new_image(who: ImageCaller, said: Any, settings: ImageSettings) -> tuple[Doc, str]:
    """The document of an image about to be made, and the moment of its birth."""
    if not isinstance(said, dict):
        raise bad("Provided object does not match schema 'image': it is not an object")
    for name in DISALLOWED:
        if name in said:
            raise read_only(name)
    for name, value in said.items():
        if name in BASE and name not in CHECKED:
            raise read_only(name)
        if name not in BASE:
            if name == "locations":
                raise forbidden("It's not allowed to add locations if locations are invisible.")
            check_name(name)
        check(name, value)
    owner = said.get("owner", who.project)
    if not who.admin and owner != who.project:
        raise forbidden(f"You are not permitted to create images owned by '{owner}'.")
    if not who.member:
        raise not_allowed("add_image")
    moment = now()
    doc = blank(said.get("id") or str(uuid4()), owner, second(moment))
    doc |= {name: value for name, value in said.items() if name not in {"id", "tags"}}
    doc["owner"] = owner
    doc["tags"] = sorted(set(said.get("tags", ())))
    check_visibility(who, doc["visibility"])
    check_limits(doc, settings)
    return doc, fine(moment)


def blank(id: str, owner: str | None, born: str) -> Doc:
    """An image without any attributes."""
    return {
        "id": id,
        "name": None,
        "status": "queued",
        "visibility": "shared",
        "owner": owner,
        "protected": False,
        "os_hidden": False,
        "container_format": None,
        "disk_format": None,
        "min_ram": 0,
        "min_disk": 0,
        "size": None,
        "virtual_size": None,
        "checksum": None,
        "os_hash_algo": None,
        "os_hash_value": None,
        "created_at": born,
        "updated_at": born,
        "tags": [],
        "self": f"/v2/images/{id}",
        "file": f"/v2/images/{id}/file",
        "schema": "/v2/schemas/image",
    }
