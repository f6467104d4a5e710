"""`/os-keypairs`: a user's own keys, or with `user_id` somebody else's for administrators."""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from moorage.api.call import AnyCall, Call, Response
from moorage.api.routes import LIMIT, Param, Params, Route
from moorage.api.schema import Body, Name
from moorage.api.timestamps import micros, now_us
from moorage.api.version_changes import v2_092
from moorage.model.errors import Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.model.keypair import KeyPair
from moorage.model.quota import count_limit
from moorage.operations.records import keypairs as writes
from moorage.store.region import keypairs as reads
from moorage.store.region import quotas

RULE = "os_compute_api:os-keypairs:"
NAME_FORM = re.compile(r"^[_\-\@\. a-zA-Z0-9]+$")


class NewKeyPair(Body):
    never_null: ClassVar[Mapping[str, str]] = {"public_key": "'string'", "user_id": "'string'"}

    name: Name
    public_key: str | None = None
    type: Literal["ssh", "x509"] = "ssh"
    user_id: str | None = None


class CreateKeypairBody(Body):
    keypair: NewKeyPair


def _row(pair: KeyPair) -> JsonObject:
    return {
        "name": pair.name,
        "public_key": pair.public_key,
        "fingerprint": pair.fingerprint,
        "type": pair.type,
    }


def _user(call: AnyCall, rule: str, requested_user: str | None) -> str:
    user = requested_user or call.principal.user
    call.require(RULE + rule, {"user_id": user})
    return user


async def create(call: Call[CreateKeypairBody]) -> Response:
    """Import a key pair, or make one. Raises Invalid for a name that is not allowed, and for a missing public key."""
    new = call.body.keypair
    name = re.sub(r" +", " ", new.name.strip())
    if not NAME_FORM.match(name):
        raise Invalid(
            f"Invalid input for field/attribute name. Value: {new.name}. {new.name!r} does not match '{NAME_FORM.pattern}'"
        )
    if new.public_key is None and call.version >= v2_092.KEYS_ARE_IMPORTED_ONLY:
        shown = {"name": name}
        raise Invalid(f"Invalid input for field/attribute keypair. Value: {shown}. 'public_key' is a required property")
    user = _user(call, "create", new.user_id)
    private: str | None = None
    public = new.public_key
    config = await call.context.limits_of(call.project)
    limits = await call.context.region.read(
        lambda tx: quotas.both_limits(tx, call.project, call.principal.user, config)
    )
    most = count_limit(config, "key_pairs", limits)
    if public is None:
        await writes.refuse_early(call.context.region, user, name, most)
        private, public = await writes.generate(user, new.type)
    pair = KeyPair(0, user, name, new.type, public, writes.fingerprint(public, new.type), now_us(call.context.clock))
    await writes.add(call.context.region, pair, most)
    shown = _row(pair) | {"user_id": user}
    return Response(201, {"keypair": shown if private is None else shown | {"private_key": private}})


async def index(call: Call[None]) -> Response:
    """List a user's key pairs. Raises Invalid for an unknown marker."""
    user = _user(call, "index", call.first("user_id"))
    limit, marker = call.page()
    if marker is not None and await call.context.region.read(lambda tx: reads.get(tx, user, marker)) is None:
        raise Invalid(f"Marker {marker} could not be found.")
    pairs = await call.context.region.read(lambda tx: reads.page(tx, user, marker, limit))
    body: JsonObject = {"keypairs": [{"keypair": _row(pair)} for pair in pairs]}
    if pairs and (links := call.next_links("os-keypairs", pairs, pairs[-1].name, limit)):
        body["keypairs_links"] = links
    return Response(body=body)


async def show(call: Call[None]) -> Response:
    """Show one key pair. Raises NotFound when the user has none of that name."""
    user, name = _user(call, "show", call.first("user_id")), call.path["name"]
    pair = await call.context.region.read(lambda tx: reads.get(tx, user, name))
    if pair is None:
        raise NotFound(f"Keypair {name} not found for user {user}")
    shown = _row(pair) | {
        "user_id": pair.user,
        "id": pair.number,
        "created_at": micros(pair.created_at),
        "updated_at": micros(pair.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
    return Response(body={"keypair": shown})


async def delete(call: Call[None]) -> Response:
    user = _user(call, "delete", call.first("user_id"))
    await writes.delete(call.context.region, user, call.path["name"])
    return Response(204)


_OF_USER = {"user_id": Param(since=(2, 10))}
_ONE = Params(_OF_USER, strict=(2, 75))
_PAGED = Params({**_OF_USER, "limit": Param((2, 35), form=LIMIT.form), "marker": Param((2, 35))}, strict=(2, 75))

ROUTES = (
    Route("GET", "/os-keypairs", index, params=_PAGED),
    Route("POST", "/os-keypairs", create, takes=CreateKeypairBody),
    Route("GET", "/os-keypairs/{name}", show, params=_ONE),
    Route("DELETE", "/os-keypairs/{name}", delete, params=_ONE),
)
