"""`/v3/credentials`: secrets of other kinds that a user keeps here (EC2 keys, certificates, TOTP seeds); sealed in the database."""

import hashlib
import json
import uuid
from typing import Any

from starlette.responses import Response

from moorage.model.errors import Conflict, Invalid
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import store
from moorage_embedded.identity.request import IdentityCall, Routes, listing
from moorage_embedded.identity.store import Record

OF_A_USER_MAX = 100
BLOB_CHARS_MAX = 65_535
EC2 = "ec2"


def _shown(call: IdentityCall, row: Record) -> Record:
    plain = {name: row[name] for name in ("id", "user_id", "project_id", "type")}
    return {
        **plain,
        "blob": call.context.seal.reveal(row["blob"]),
        "links": {"self": f"{call.context.url}/credentials/{row['id']}"},
    }


def _text(said: Record, name: str, most: int, *, needed: bool = True) -> str | None:
    value = said.get(name)
    if value is None and not needed:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise Invalid(
            f"'{name}' is a required property of 'credential' and must be a string of at most {most} characters."
        )
    return value


def id_of(kind: str, blob: str) -> str:
    """The id: for an EC2 key the hash of its access key, as in Keystone; otherwise a new one. Raises Invalid for a
    wrong blob.
    """
    if kind != EC2:
        return uuid.uuid4().hex
    try:
        access: Any = json.loads(blob)["access"]
    except (ValueError, KeyError, TypeError) as failure:
        raise Invalid("Invalid blob in credential: an ec2 credential is JSON with 'access' and 'secret'.") from failure
    return hashlib.sha256(str(access).encode()).hexdigest()


def keep(tx: Tx, row: Record) -> None:
    """Write it down. Raises NotFound (user, project), Conflict (too many, or the same once more)."""
    store.need(tx, "users", row["user_id"], "user")
    if row["project_id"] is not None:
        store.need(tx, "projects", row["project_id"], "project")
    if len(store.find(tx, "credentials", {"user_id": row["user_id"]})) >= OF_A_USER_MAX:
        raise Conflict(f"A user has at most {OF_A_USER_MAX} credentials.")
    store.insert(tx, "credentials", row, "credential")


async def create(call: IdentityCall) -> Response:
    said = await call.body("credential")
    user, kind = _text(said, "user_id", 64), str(_text(said, "type", 255))
    call.require(user == call.user_id or call.has("admin"))
    call.require_credentials()  # a key of it would give all that its owner may do
    blob, project = str(_text(said, "blob", BLOB_CHARS_MAX)), _text(said, "project_id", 64, needed=kind == EC2)
    row: Record = {"id": id_of(kind, blob), "user_id": user, "project_id": project, "type": kind}
    row["blob"] = call.context.seal.hide(blob)

    await call.context.write(lambda tx: keep(tx, row))
    return json_response({"credential": _shown(call, row)}, 201)


async def index(call: IdentityCall) -> Response:
    """The caller's own; for callers who may read the system, all; none for whoever acts for a user within limits."""
    equal: Record = {}
    for name in ("user_id", "type"):
        if (value := call.query(name)) is not None:
            equal[name] = value
    if not call.may_read():
        equal["user_id"] = call.user_id
    rows = await call.context.read(lambda tx: store.find(tx, "credentials", equal))
    return listing(call, "credentials", [_shown(call, row) for row in rows if call.lends_nothing])


async def _own(call: IdentityCall, *, write: bool) -> Record:
    row = await call.context.read(lambda tx: store.need(tx, "credentials", call.path("id"), "credential"))
    call.require(row["user_id"] == call.user_id or (call.has("admin") if write else call.may_read()))
    call.require_credentials()
    return row


async def show(call: IdentityCall) -> Response:
    return json_response({"credential": _shown(call, await _own(call, write=False))})


def _check_limits(call: IdentityCall, row: Record, blob: str) -> None:
    """What a key pair is limited to stays. Raises Invalid."""
    if row["type"] != EC2:
        return
    was, now = json.loads(call.context.seal.reveal(row["blob"])), json.loads(blob)
    for name in ("trust_id", "app_cred_id"):
        if was.get(name) != now.get(name):
            raise Invalid(f"{name} can not be updated for credential")


async def update(call: IdentityCall) -> Response:
    """Change the blob; owner and type stay. Raises Invalid for other fields."""
    row, said = await _own(call, write=True), await call.body("credential")
    if set(said) != {"blob"}:
        raise Invalid("Only 'blob' of a credential can be changed.")
    blob = str(_text(said, "blob", BLOB_CHARS_MAX))
    id_of(row["type"], blob)  # it must stay what its kind is
    _check_limits(call, row, blob)
    sealed = call.context.seal.hide(blob)
    changed = await call.context.write(
        lambda tx: store.change(tx, "credentials", row["id"], {"blob": sealed}, "credential")
    )
    return json_response({"credential": _shown(call, changed)})


async def delete(call: IdentityCall) -> Response:
    row = await _own(call, write=True)
    await call.context.write(lambda tx: store.remove(tx, "credentials", row["id"], "credential"))
    return empty_response()


ROUTES: Routes = {
    "credentials": {"POST": create, "GET": index},
    "credentials/{id}": {"GET": show, "PATCH": update, "DELETE": delete},
}
