"""`/v3/users/{id}/credentials/OS-EC2`: pairs of access key and secret that the service makes; credentials of type `ec2` by another path."""

import json
import uuid

from starlette.responses import Response

from moorage.model.errors import Invalid, NotFound
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import store
from moorage_embedded.identity.credentials import EC2, id_of, keep
from moorage_embedded.identity.request import IdentityCall, Routes, listing
from moorage_embedded.identity.store import Record


def _shown(call: IdentityCall, row: Record) -> Record:
    pair = json.loads(call.context.seal.reveal(row["blob"]))
    return {
        "user_id": row["user_id"],
        "tenant_id": row["project_id"],
        "access": pair["access"],
        "secret": pair.get("secret"),
        "trust_id": pair.get("trust_id"),
        "links": {"self": f"{call.context.url}/users/{row['user_id']}/credentials/OS-EC2/{pair['access']}"},
    }


async def create(call: IdentityCall) -> Response:
    """Create an EC2 credential. Raises Invalid without a valid `tenant_id`."""
    call.require_credentials()
    user, project = call.path("user"), (await call.document()).get("tenant_id")
    call.require(user == call.user_id or call.has("admin"))
    if not isinstance(project, str) or not 0 < len(project) <= 64:
        raise Invalid("'tenant_id' is a required property and must be the id of a project.")
    blob = json.dumps({"access": uuid.uuid4().hex, "secret": uuid.uuid4().hex, "trust_id": None})
    row: Record = {"id": id_of(EC2, blob), "user_id": user, "project_id": project, "type": EC2}
    row["blob"] = call.context.seal.hide(blob)
    await call.context.write(lambda tx: keep(tx, row))
    return json_response({"credential": _shown(call, row)}, 201)


async def index(call: IdentityCall) -> Response:
    user = call.path("user")
    call.require(user == call.user_id or call.may_read())
    call.require_credentials()
    await call.context.read(lambda tx: store.need(tx, "users", user, "user"))
    rows = await call.context.read(lambda tx: store.find(tx, "credentials", {"user_id": user, "type": EC2}))
    return listing(call, "credentials", [_shown(call, row) for row in rows])


async def _needed(call: IdentityCall) -> Record:
    """The user's pair with this access key."""
    id = id_of(EC2, json.dumps({"access": call.path("access")}))
    row = await call.context.read(lambda tx: store.need(tx, "credentials", id, "credential"))
    if row["user_id"] != call.path("user") or row["type"] != EC2:
        raise NotFound(f"Could not find credential: {id}.")
    return row


async def show(call: IdentityCall) -> Response:
    call.require(call.path("user") == call.user_id or call.may_read())
    call.require_credentials()
    return json_response({"credential": _shown(call, await _needed(call))})


async def delete(call: IdentityCall) -> Response:
    call.require(call.path("user") == call.user_id or call.has("admin"))
    call.require_credentials()
    row = await _needed(call)
    await call.context.write(lambda tx: store.remove(tx, "credentials", row["id"], "credential"))
    return empty_response()


ROUTES: Routes = {
    "users/{user}/credentials/OS-EC2": {"POST": create, "GET": index},
    "users/{user}/credentials/OS-EC2/{access}": {"GET": show, "DELETE": delete},
}
