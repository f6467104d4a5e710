"""Scopes a token to a trust: it is the trustee's, has the roles that were lent, and acts as the trustor if the trust says so."""

import msgspec

from moorage.model.errors import Forbidden, NotFound
from moorage.sql import Tx
from moorage_embedded.identity import store
from moorage_embedded.identity.context import IdentityContext
from moorage_embedded.identity.effective_roles import refused
from moorage_embedded.identity.tokens import Claims
from moorage_embedded.identity.trust_chain import delegated_roles, trust_in_effect


async def scoped_to_trust(context: IdentityContext, claims: Claims, said: object) -> Claims:
    """The facts of the token; one use of the trust is gone then. Raises Forbidden for anybody but the trustee and where the
    trustor can lend no more, Unauthenticated where the trust is not in effect.
    """
    id_ = said.get("id") if isinstance(said, dict) else None
    if claims.application_credential or not isinstance(id_, str):
        raise refused()
    try:
        final = await context.read(lambda tx: _scoped(tx, claims, id_, context.clock()))
        await context.standing(final)
        if await context.read(lambda tx: trust_in_effect(tx, id_, context.clock())["remaining_uses"]) is not None:
            await context.write(lambda tx: _use(tx, id_, context.clock()))
    except NotFound:
        raise refused() from None
    return final


def _scoped(tx: Tx, claims: Claims, id_: str, now: float) -> Claims:
    trust = trust_in_effect(tx, id_, now)
    if claims.user != trust["trustee_user_id"]:
        raise Forbidden("User is not a trustee.")
    trustor = store.need(tx, "users", trust["trustor_user_id"], "user")
    if not trustor["enabled"]:
        raise Forbidden("Trustor is disabled.")
    delegated_roles(tx, trust)
    ends = claims.expires_at if trust["expires_at"] is None else min(claims.expires_at, trust["expires_at"])
    user = trustor["id"] if trust["impersonation"] else claims.user
    return msgspec.structs.replace(
        claims, user=user, scope="project", scope_id=trust["project_id"], expires_at=ends, trust=id_
    )


def _use(tx: Tx, id_: str, now: float) -> None:
    """Raises NotFound when another request took the last use."""
    trust = trust_in_effect(tx, id_, now)
    store.change(tx, "trusts", id_, {"remaining_uses": trust["remaining_uses"] - 1}, "trust")
