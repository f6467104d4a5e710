"""Access rules: what a token of an application credential may call.  Kept once for each user, and lent to several credentials."""

import time
import uuid
from typing import Any, cast

from starlette.responses import Response

from moorage.model.errors import Forbidden, Invalid, NotFound
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import store
from moorage_embedded.identity.request import IdentityCall, Routes, listing
from moorage_embedded.identity.store import Record

METHODS = frozenset({"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"})
PATH_CHARS_MAX = 225
RULES_MAX = 100
"""Of one application credential."""


def requested_rules(said: Any) -> list[Record] | None:
    """The rules of a body: each `{"id"}` of one there is, or service, method and path. Raises Invalid; None: there are none."""
    if said is None:
        return None
    if not isinstance(said, list) or len(said) > RULES_MAX:
        raise Invalid(f"'access_rules' must be a list of at most {RULES_MAX} rules.")
    return [_checked(each) for each in said]


def _checked(each: Any) -> Record:
    if not isinstance(each, dict):
        raise Invalid("An access rule must be an object.")
    rule = cast("Record", each)
    if isinstance(rule.get("id"), str) and len(rule) == 1:
        return rule
    path, service = rule.get("path"), rule.get("service")
    fits = isinstance(path, str) and path.startswith("/") and len(path) <= PATH_CHARS_MAX
    if not fits or not isinstance(service, str) or not 0 < len(service) <= 64 or rule.get("method") not in METHODS:
        raise Invalid("An access rule has 'service', 'method' and 'path', which begins with '/'.")
    return {"service": service, "method": rule["method"], "path": path}


def rule_ids(tx: Tx, user: str, rules: list[Record] | None) -> list[str] | None:
    """The ids of the rules; missing ones are created. Raises NotFound for an id that is not the user's."""
    if rules is None:
        return None
    found: list[str] = []
    for rule in rules:
        if "id" in rule:
            found.append(str(_own(tx, user, rule["id"])["id"]))
            continue
        same = store.find(tx, "access_rules", {"user_id": user, **rule})
        if not same:
            same = [{"id": _new_id(), "user_id": user, **rule}]
            store.insert(tx, "access_rules", {**same[0]}, "access rule")
        found.append(str(same[0]["id"]))
    return found


def _new_id() -> str:
    """Later ones are greater: rules are listed as they were made."""
    return f"{time.time_ns():016x}{uuid.uuid4().hex[:16]}"


def _own(tx: Tx, user: str, id_: str) -> Record:
    row = store.get(tx, "access_rules", id_)
    if row is None or row["user_id"] != user:
        raise NotFound(f"Could not find Access Rule: {id_}.")
    return row


def _linked(call: IdentityCall, row: Record) -> Record:
    rule = {name: row[name] for name in ("id", "service", "method", "path")}
    return {**rule, "links": {"self": f"{call.context.url}/users/{row['user_id']}/access_rules/{row['id']}"}}


async def index(call: IdentityCall) -> Response:
    user = call.path("id")
    call.require(user == call.user_id or call.may_read())
    call.require_application_credentials()
    equal: Record = {"user_id": user}
    for name in ("service", "method", "path"):
        if (value := call.query(name)) is not None:
            equal[name] = value
    rows = await call.context.read(lambda tx: store.find(tx, "access_rules", equal))
    return listing(call, "access_rules", [_linked(call, row) for row in rows])


async def show(call: IdentityCall) -> Response:
    user = call.path("id")
    call.require(user == call.user_id or call.may_read())
    call.require_application_credentials()
    row = await call.context.read(lambda tx: _own(tx, user, call.path("rule")))
    return json_response({"access_rule": _linked(call, row)})


async def delete(call: IdentityCall) -> Response:
    """One that a credential uses stays: without it the credential would not be what was agreed."""
    user = call.path("id")
    call.require(user == call.user_id or call.has("admin"))
    call.require_application_credentials()

    def work(tx: Tx) -> None:
        row = _own(tx, user, call.path("rule"))
        lent = store.find(tx, "application_credentials", {"user_id": user})
        if any(row["id"] in (each["access_rules"] or ()) for each in lent):
            raise Forbidden("May not delete access rule in use")
        store.remove(tx, "access_rules", row["id"], "access rule")

    await call.context.write(work)
    return empty_response()


ROUTES: Routes = {
    "users/{id}/access_rules": {"GET": index},
    "users/{id}/access_rules/{rule}": {"GET": show, "DELETE": delete},
}
