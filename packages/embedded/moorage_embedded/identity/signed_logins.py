"""`/v3/ec2tokens` and `/v3/s3tokens`: a token in exchange for a request that is signed with a credential of type `ec2`.

Only services ask, which have the request before them. The token is of the credential's user and project, with what its blob
limits it to: the roles of a trust, or of an application credential.
"""

import base64
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from starlette.responses import Response

from moorage.model.errors import Invalid, NotFound, Unauthenticated
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import json_response
from moorage_embedded.identity import signatures, store
from moorage_embedded.identity.auth_routes import rendered
from moorage_embedded.identity.authentication import ends_at
from moorage_embedded.identity.credentials import EC2, id_of
from moorage_embedded.identity.effective_roles import refused
from moorage_embedded.identity.request import IdentityCall, Routes
from moorage_embedded.identity.store import Record
from moorage_embedded.identity.tokens import SIGNED, Claims, new_audit_id
from moorage_embedded.identity.trust_chain import trust_in_effect
from moorage_embedded.identity.trust_scope import scoped_to_trust

SIGNED_LIFE_S = 15 * 60.0
"""How long a signature is good after the time that it names; Keystone's default."""
MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


def _signature_of_ec2(secret: str, said: Record) -> list[str]:
    """With the host as it was said, and without its port, which some clients do not sign."""
    host = str(said["host"])
    hosts = [host, urlsplit(f"//{host}").hostname or ""] if ":" in host else [host]
    return [signatures.of_ec2(secret, said, each) for each in hosts]


def _signature_of_s3(secret: str, said: Record) -> list[str]:
    return [signatures.of_s3(secret, base64.urlsafe_b64decode(str(said["token"])))]


def _check_age(said: Record, now: float) -> None:
    params, headers = said.get("params") or {}, said.get("headers") or {}
    at = params.get("Timestamp") or headers.get("X-Amz-Date") or params.get("X-Amz-Date")
    if not at:
        return
    signed = datetime.fromisoformat(at)
    if now > (signed if signed.tzinfo else signed.replace(tzinfo=UTC)).timestamp() + SIGNED_LIFE_S:
        raise Unauthenticated("Credential is expired")


async def _exchange(call: IdentityCall, action: str, sign: Callable[[str, Record], list[str]]) -> Claims:
    call.require(call.has("admin") or call.has("service"), action)
    whole = await call.document()
    if not whole:
        raise Invalid("request must include a request body")
    said: Any = whole.get("credentials") or whole.get("credential") or whole.get("ec2Credentials")
    if not isinstance(said, dict) or not isinstance(said.get("access"), str):
        raise Unauthenticated("EC2 Signature not supplied")
    id_ = id_of(EC2, json.dumps({"access": said["access"]}))
    row = await call.context.read(lambda tx: store.get(tx, "credentials", id_))
    if row is None or row["type"] != EC2:
        raise NotFound("EC2 access key not found.")
    try:
        pair = cast("Record", json.loads(call.context.seal.reveal(row["blob"])))
        signed = sign(str(pair["secret"]), said)
        if not any(hmac.compare_digest(each.encode(), str(said["signature"]).encode()) for each in signed):
            raise refused()
        _check_age(said, call.context.clock())
    except MALFORMED:
        raise refused() from None
    return await _claims(call, row, pair)


async def _claims(call: IdentityCall, row: Record, pair: Record) -> Claims:
    """The facts of the token. Raises Unauthenticated where the user has no role, or the limits are of somebody else."""
    now = call.context.clock()
    whole = Claims(row["user_id"], (SIGNED,), "", "", now, now + call.context.token_life_s, (new_audit_id(),))
    if trust := pair.get("trust_id"):
        trustee = await call.context.read(lambda tx: _trustee(tx, row, str(trust), now))
        return await scoped_to_trust(call.context, msgspec.structs.replace(whole, user=trustee), {"id": str(trust)})
    claims = msgspec.structs.replace(whole, scope="project", scope_id=row["project_id"])
    if lent := pair.get("app_cred_id"):
        ends = await call.context.read(lambda tx: _end_of(tx, row, str(lent)))
        if ends <= now:
            raise refused()
        claims = msgspec.structs.replace(
            claims, application_credential=str(lent), expires_at=min(claims.expires_at, ends)
        )
    await call.context.standing(claims)
    return claims


def _trustee(tx: Tx, row: Record, id_: str, now: float) -> str:
    """The trust is the user's own, as trustee, or as trustor of one that impersonates."""
    try:
        trust = trust_in_effect(tx, id_, now)
    except NotFound:
        raise refused() from None
    parties = [trust["trustee_user_id"], *([trust["trustor_user_id"]] if trust["impersonation"] else [])]
    if row["user_id"] not in parties or row["project_id"] != trust["project_id"]:
        raise refused()
    return str(trust["trustee_user_id"])


def _end_of(tx: Tx, row: Record, id_: str) -> float:
    """Until when the application credential is good."""
    lent = store.get(tx, "application_credentials", id_)
    if lent is None or lent["user_id"] != row["user_id"] or lent["project_id"] != row["project_id"]:
        raise refused()
    return ends_at(lent)


async def ec2(call: IdentityCall) -> Response:
    claims = await _exchange(call, "ec2tokens_validate", _signature_of_ec2)
    return json_response(await rendered(call, claims), 200, {"x-subject-token": call.context.seal.seal(claims)})


async def s3(call: IdentityCall) -> Response:
    """The token is described, and not given out."""
    return json_response(await rendered(call, await _exchange(call, "s3tokens_validate", _signature_of_s3)))


ROUTES: Routes = {"ec2tokens": {"POST": ec2}, "s3tokens": {"POST": s3}}
