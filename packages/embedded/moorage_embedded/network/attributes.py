"""Checks bodies against attribute tables: defaults, conversion, validation, and who may set an attribute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from typing_extensions import override

from moorage_embedded.network import validators
from moorage_embedded.network.faults import bad, forbidden
from moorage_embedded.network.policy import NetworkCaller


class _Unset:
    """An attribute that was not said, which is not the same as null."""

    @override
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
REQUIRED: Final = object()

Rule: TypeAlias = Callable[[NetworkCaller], bool]


def admin(who: NetworkCaller) -> bool:
    return who.admin


def service(who: NetworkCaller) -> bool:
    return who.service


def admin_or_service(who: NetworkCaller) -> bool:
    return who.admin or who.service


@dataclass(frozen=True)
class Attr:
    """One attribute of a noun."""

    check: validators.Check | None = None
    default: Any = UNSET
    convert: Callable[[Any], Any] | None = None
    post: bool = True
    put: bool = True
    may_post: Rule | None = None
    may_put: Rule | None = None
    may_read: Rule | None = None


def read_only(may_read: Rule | None = None) -> Attr:
    return Attr(post=False, put=False, may_read=may_read)


def settled(value: Any, attr: Attr, name: str) -> Any:
    if attr.convert is not None:
        value = attr.convert(value)
    if attr.check is not None and (reason := attr.check(value)):
        raise bad(f"Invalid input for {name}. Reason: {reason}.")
    return value


def _named(body: Any, attrs: Mapping[str, Attr]) -> dict[str, Any]:
    """A copy with `tenant_id` folded into `project_id`, and no attribute that the noun has not."""
    if not isinstance(body, dict):
        raise bad("Body contains invalid data")
    if unknown := [key for key in body if key not in attrs and key != "tenant_id"]:
        raise bad(f"Unrecognized attribute(s) '{', '.join(sorted(unknown))}'")
    said = dict(body)
    if "tenant_id" in said:
        tenant = said.pop("tenant_id")
        if said.setdefault("project_id", tenant) != tenant:
            raise bad("'project_id' and 'tenant_id' do not match")
    return said


def for_create(noun: str, body: Any, attrs: Mapping[str, Attr], who: NetworkCaller) -> dict[str, Any]:
    """Every attribute that may be said at creation, said or by default; UNSET where neither."""
    said = _named(body, attrs)
    full: dict[str, Any] = {}
    for name, attr in attrs.items():
        if name not in said:
            if attr.post and name != "project_id":
                if attr.default is REQUIRED:
                    raise bad(f"Failed to parse request. Required attribute '{name}' not specified")
                full[name] = attr.default() if callable(attr.default) else attr.default
            continue
        if not attr.post:
            raise bad(f"Attribute '{name}' not allowed in POST")
        if attr.may_post is not None and said[name] != attr.default and not attr.may_post(who):
            raise forbidden(f"create_{noun}", f"create_{noun}:{name}")
        full[name] = settled(said[name], attr, name)
    if "project_id" in attrs:
        full["project_id"] = _owner(said.get("project_id"), who)
    return full


def _owner(said: Any, who: NetworkCaller) -> str:
    if said is None or said == who.project:
        if not who.project:
            raise bad("Running without keystone AuthN requires that project_id is specified")
        return who.project
    if reason := validators.text(255)(said):
        raise bad(f"Invalid input for project_id. Reason: {reason}.")
    if not (who.admin or who.service):
        raise bad(
            "Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin privileges"
        )
    return str(said)


def for_update(noun: str, body: Any, attrs: Mapping[str, Attr], who: NetworkCaller) -> dict[str, Any]:
    """Just what was said, if it may be."""
    said = _named(body, attrs)
    changes: dict[str, Any] = {}
    for name, value in said.items():
        attr = attrs[name]
        if not attr.put:
            raise bad(f"Cannot update read-only attribute {name}")
        if attr.may_put is not None and not attr.may_put(who):
            raise forbidden(f"update_{noun}", f"update_{noun}:{name}")
        changes[name] = settled(value, attr, name)
    return changes
