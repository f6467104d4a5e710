"""Finds doubtful servers (RULES §26), and what the others say about each: its claim, and the hosts that report its guest."""

from collections.abc import Iterator

from moorage.conductor.audit.doubt_decisions import move_over
from moorage.conductor.audit.finding_builder import finding
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.model.audit import Finding
from moorage.model.server import Server
from moorage.store.doubts import Doubt, doubt_about, seq_of
from moorage.store.region.audit_reads import Mapped

KIND = "server_doubtful"
BY_HAND = "put the newer database back, or decide by hand (docs/operating/recover.md)"
ADOPT = "put the region's newer database back, or stop every process and run `moorage db adopt`"


def doubtful(page: SnapshotPage) -> Iterator[tuple[Mapped, Server, Doubt]]:
    """Servers that no operation holds, and whose numbers contradict each other."""
    for where, row in page.settled:
        doubt = doubt_about(row, where)
        if doubt is not None and not row.deleted:
            yield where, row, doubt


def of_servers(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Where claim and guest are on one host, a repair lets the record say so."""
    for where, row, doubt in doubtful(page):
        claimed, guests = claimed_on(page, row, site), page.guests.get(where.id, [])
        settles = claimed is not None and guests == [claimed] and _follows_claim(page, row, claimed)
        why_not = ADOPT if doubt is Doubt.REGION_OLDER else "" if settles else BY_HAND
        known = where.recorded_seq if doubt is Doubt.RECORD_OLDER else where.op_seq
        yield finding(
            KIND,
            where.id,
            row.host or "",
            where.id,
            expected=f"operation {known}; its claim is on {claimed or 'no host'}, its guest on {', '.join(guests) or 'no host'}",
            found=f"operation {seq_of(row)}; the record names {row.host or 'no host'}",
            why_not=why_not,
        )


def _follows_claim(page: SnapshotPage, row: Server, claimed: str) -> bool:
    """Whether the claim tells how the record must be: no move holds one beside it, and one flavor fits it."""
    moves = {each.uuid for each in page.moves.get(row.id, [])} | (
        {row.moved.migration} if row.moved is not None else set()
    )
    held = page.held[row.id]
    return not moves & page.held.keys() and move_over(row, claimed, str(held.owner.host), held.amounts) is not None


def claimed_on(page: SnapshotPage, row: Server, site: ServicesSnapshot) -> str | None:
    """The name of the host that the server's claim names."""
    held = page.held.get(row.id)
    return None if held is None or held.owner.host is None else site.hosts.get(held.owner.host)
