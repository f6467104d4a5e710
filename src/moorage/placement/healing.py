"""Sets claims to the true amounts, when no database was restored: the same as `claims.restore`, with conditions."""

from collections.abc import Mapping

from moorage.model.ids import HostId, ProviderId
from moorage.model.verdict import InventoryState
from moorage.model.world import GroupAsk
from moorage.placement import claims
from moorage.sql import Tx
from moorage.store.region.placement import claim_statements, recount
from moorage.store.region.placement.claim_statements import Key, Owner
from moorage.store.region.placement.tables import stamp


def heal(
    tx: Tx,
    owner: Owner,
    host: HostId | None,
    truth: Mapping[Key, int],
    found: Mapping[Key, int],
    group: GroupAsk | None,
) -> bool:
    """Set a consumer's allocations, in its owner's name; the consumer is created if it does not exist.

    `host`: None: it is on no host, and keeps only addresses. `found`: its allocations when the difference was found.
    Returns False, and the caller rolls back, when it has other allocations by now, or a provider has no such inventory.
    """
    before = claim_statements.owner(tx, owner.consumer)
    if claim_statements.held(tx, owner.consumer) != dict(found):
        return False
    if before is not None:
        owner = before._replace(project=owner.project, user=owner.user)
    if host is not None:
        return not claims.restore(tx, owner, host, truth, group)
    claims.keep_addresses(tx, owner.consumer, truth)
    return dict(truth) == claim_statements.held(tx, owner.consumer)


def sum_again(tx: Tx, provider: ProviderId, resource: str) -> tuple[InventoryState, ...]:
    """Set a counter to the sum of its allocations."""
    row = recount.used(tx, (provider, resource), stamp(tx))
    return () if row is None else (row,)
