"""What a trust is worth now: whether it is in effect, along the chain of trusts it came from, and the roles it still gives."""

from moorage.model.errors import Forbidden, NotFound
from moorage.sql import Tx
from moorage_embedded.identity import role_grants, store
from moorage_embedded.identity.effective_roles import (
    EffectiveRoles,
    direct_roles,
    domain_of,
    expanded,
    named,
    refused,
)
from moorage_embedded.identity.store import Record
from moorage_embedded.identity.tokens import Claims

REDELEGATIONS_MAX = 3
"""How often a trust can be passed on; Keystone's default."""


def trust_in_effect(tx: Tx, id_: str, now: float) -> Record:
    """The trust. Raises NotFound for one that there is not, or that has ended or is used up."""
    row = store.get(tx, "trusts", id_)
    over = row is None or (row["expires_at"] is not None and row["expires_at"] < now)
    if row is None or over or (row["remaining_uses"] is not None and row["remaining_uses"] <= 0):
        raise NotFound(f"Could not find trust: {id_[:64]}.")
    return row


def chain_of(tx: Tx, trust: Record) -> list[Record]:
    """The trust and those it came from, the first of them last. Raises NotFound when one is gone, Forbidden when one forbids it."""
    chain = [trust]
    while (above := chain[-1]["redelegated_trust_id"]) and len(chain) <= REDELEGATIONS_MAX:
        parent = store.need(tx, "trusts", above, "trust")
        check_redelegation(parent, chain[-1])
        agent = store.get(tx, "users", parent["trustee_user_id"])
        if agent is None or not agent["enabled"]:
            raise Forbidden("One of the trust agents is disabled or deleted")
        chain.append(parent)
    return chain


def check_redelegation(parent: Record, trust: Record) -> None:
    """Whether this trust may come from that one. Raises Forbidden."""
    if not 0 < parent["redelegation_count"] <= REDELEGATIONS_MAX:
        raise Forbidden(
            f"Remaining redelegation depth of {parent['redelegation_count']} out of allowed range of"
            f" [0..{REDELEGATIONS_MAX}]"
        )
    if trust["remaining_uses"] is not None:
        raise Forbidden('Field "remaining_uses" must not be set in order to redelegate a trust')
    ends, latest = trust["expires_at"], parent["expires_at"]
    if latest is not None and (ends is None or ends > latest):
        raise Forbidden("Requested expiration time is more than redelegated trust can provide")
    if not set(trust["roles"]) <= set(parent["roles"]):
        raise Forbidden("Some of requested roles are not in redelegated trust")
    if trust["impersonation"] and not parent["impersonation"]:
        raise Forbidden(
            "Impersonation is not allowed because redelegated trust does not specify impersonation. Redelegated trust"
            f" id: {parent['id']}"
        )


def held_roles(tx: Tx, user: str, project: str | None) -> set[str]:
    """The ids of the roles that a trustor can give: those held on the project, with all they imply."""
    if not project:
        return set()
    return set(expanded(direct_roles(tx, user, "project", project), role_grants.implications(tx)))


def delegated_roles(tx: Tx, trust: Record) -> list[str]:
    """The ids of the roles of a trust with those that they imply. Raises Forbidden, unless the first trustor still has each,
    and NotFound as `chain_of`.
    """
    first = chain_of(tx, trust)[-1]
    roles = expanded(trust["roles"], role_grants.implications(tx))
    if not roles or not set(roles) <= held_roles(tx, first["trustor_user_id"], trust["project_id"]):
        raise Forbidden("Trustee has no delegated roles.")
    return roles


def stand_on_trust(tx: Tx, claims: Claims) -> EffectiveRoles:
    """The standing behind a token that is scoped to a trust. Raises Unauthenticated also when the trustor has lost a role, or the
    trustor or the trustee is disabled or has a new password.
    """
    trust = store.get(tx, "trusts", claims.trust)
    target = None if trust is None else store.get(tx, "projects", trust["project_id"] or "")
    if trust is None or target is None or not target["enabled"]:
        raise refused()
    parties = {id_: store.get(tx, "users", id_) for id_ in (trust["trustor_user_id"], trust["trustee_user_id"])}
    since = 0.0
    for each in parties.values():
        if each is None or not each["enabled"]:
            raise refused()
        domain_of(tx, each)
        since = max(since, each["tokens_from"])
    user = parties.get(claims.user)
    try:
        roles = named(tx, delegated_roles(tx, trust))
    except (Forbidden, NotFound):
        raise refused() from None
    if user is None or claims.issued_at < since or not roles:
        raise refused()
    home, above = domain_of(tx, user), domain_of(tx, target)
    return EffectiveRoles(user, home, project=target, project_domain=above, roles=roles, trust=trust, tokens_from=since)
