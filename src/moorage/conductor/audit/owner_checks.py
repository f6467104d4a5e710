"""Finds claims and attachments whose owner nobody knows: what other hands left at Placement's API or at the volume service.

They may belong to something that Moorage knows nothing of, so they are reported and never repaired.
"""

from moorage.conductor.audit.finding_builder import amounts, finding
from moorage.conductor.audit.snapshot import ServicesSnapshot
from moorage.model.audit import Finding
from moorage.model.ids import ServerId
from moorage.operations.context import SagaContext
from moorage.store.cell import audit_reads as cell_audited
from moorage.store.region import audit_reads

OWNERS_MAX = 1_000
ASKED_AGAIN_MAX = 200
"""Servers of whose attachments the volume service is asked once more; each is a call."""


async def claims(context: SagaContext, site: ServicesSnapshot) -> list[Finding]:
    """Claims for servers that were written through Placement's API, and whose server is deleted or unknown."""
    rows = await context.region.read(lambda tx: audit_reads.foreign_claims(tx, OWNERS_MAX))
    known = await _recorded(context, site, [each.owner.consumer for each in rows if not each.is_deleted])
    return [
        finding(
            "allocation_owner_unknown",
            each.owner.consumer,
            "placement",
            expected="a claim of a server that exists",
            found=f"{amounts(each.amounts)}, of {'a deleted' if each.is_deleted else 'an unknown'} server",
        )
        for each in rows
        if each.is_deleted or each.owner.consumer not in known
    ]


async def attachments(context: SagaContext, site: ServicesSnapshot) -> list[Finding]:
    """Attachments for servers that neither the region nor a cell knows."""
    if site.attachments is None or context.volumes is None or not site.cells_complete:
        return []
    named = sorted(site.attachments)
    mapped = await context.region.read(lambda tx: audit_reads.mapped_among(tx, named))
    unknown = sorted(set(named) - {str(each.id) for each in mapped})
    unknown = [each for each in unknown if each not in await _recorded(context, site, unknown)]
    findings: list[Finding] = []
    for server in unknown[:ASKED_AGAIN_MAX]:
        for each in await context.volumes.attachments_of(ServerId(server)):
            found = f"volume {each.volume}, {each.status}, for {server}"
            findings.append(
                finding("attachment_owner_unknown", each.id, "volume", expected="a known server", found=found)
            )
    return findings


async def _recorded(context: SagaContext, site: ServicesSnapshot, servers: list[str]) -> frozenset[str]:
    """Those of these servers that a cell has a record of, also a deleted one; all of them while a cell is out."""
    if not site.cells_complete:
        return frozenset(servers)
    known: set[str] = set()
    for cell in context.cells.ids if servers else ():
        ids = [ServerId(each) for each in servers]
        living = await context.cells[cell].read(lambda tx, ids=ids: cell_audited.living_among(tx, ids))  # type: ignore[misc]
        gone = await context.cells[cell].read(lambda tx, ids=ids: cell_audited.gone_among(tx, ids))  # type: ignore[misc]
        known |= {str(each.server.id) for each in living} | {str(id) for id, _ in gone}
    return frozenset(known)
