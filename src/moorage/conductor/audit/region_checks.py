"""Checks what belongs to no single server: counters, quota, images, and temporary rows."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from moorage.conductor.audit import owner_checks
from moorage.conductor.audit.finding_builder import finding
from moorage.conductor.audit.snapshot import ServicesSnapshot
from moorage.conductor.reconcilers.orphan_attachments import INTENT_OLD_US
from moorage.conductor.reconcilers.orphan_images import GRACE_S, WHOLE, OrphanImages
from moorage.conductor.reconcilers.purge import DAY_US, DELETED_SERVERS_KEPT_US, EVENTS_KEPT_US
from moorage.conductor.reconcilers.quota_usage import CorrectedUsage, QuotaUsage
from moorage.model.audit import Finding
from moorage.model.clock import Clock
from moorage.model.errors import NotFound, Problem
from moorage.model.ids import CellId, ServerId
from moorage.model.image import Image
from moorage.operations.context import SagaContext
from moorage.operations.steps.snapshot_image import MADE_FOR
from moorage.sql import Tx
from moorage.store.cell import audit_reads as cell_audited
from moorage.store.region import audit_reads, console_tokens, inbox, volume_intents
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements

OLD_OPERATION_US = 60 * 1_000_000
OVERDUE_US = 3_600 * 1_000_000
"""Rounds remove overdue rows every few minutes; rows that stay this long after are findings."""
FENCES_PAGE = 500
FOUND_MAX = 1_000

logger = logging.getLogger(__name__)

Check = Callable[[ServicesSnapshot], Awaitable[list[Finding]]]


class Wholes:
    """Each check returns its findings, and names in the snapshot what it could not read."""

    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock

    @property
    def _now_us(self) -> int:
        return int(self._clock.now() * 1_000_000)

    def checks(self) -> dict[tuple[str, ...], Check]:
        """Kinds → the check that looks for them."""
        return {
            ("operation_without_server",): self._operations,
            ("allocation_owner_unknown",): partial(owner_checks.claims, self._context),
            ("attachment_owner_unknown",): partial(owner_checks.attachments, self._context),
            ("usage_drifted",): self._usage,
            ("quota_usage_wrong", "quota_user_usage_wrong"): self._quota,
            ("console_tokens_expired",): self._tokens,
            ("events_left",): self._events,
            ("volume_intent_left",): self._intents,
            ("volume_snapshot_left",): self._snapshots,
            ("image_left_half_made", "image_of_shelved_left", "image_of_move_left"): self._images,
            ("fence_left",): self._fences,
            ("deleted_record_old",): self._deleted,
        }

    async def run(self, site: ServicesSnapshot, kinds: Sequence[str]) -> list[Finding]:
        """The findings of all checks for any of these kinds."""
        findings: list[Finding] = []
        for mine, check in self.checks().items():
            if not set(mine) & set(kinds):
                continue
            try:
                findings += [each for each in await check(site) if each.kind in kinds]
            except Problem as problem:
                logger.info("the audit skips the checks for %s: %s", ", ".join(mine), problem)
                site.out[mine[0]] = problem.public
        return findings

    async def _operations(self, site: ServicesSnapshot) -> list[Finding]:
        before = self._now_us - OLD_OPERATION_US
        rows = await self._context.region.read(lambda tx: audit_reads.unheld_operations(tx, before, FOUND_MAX))
        return [
            finding(
                "operation_without_server",
                operation,
                "region",
                server,
                expected="its server's slot",
                found=f"{saga} is open",
            )
            for operation, server, saga in rows
        ]

    async def _usage(self, site: ServicesSnapshot) -> list[Finding]:
        rows = await self._context.region.read(claim_statements.drift)
        return [
            finding("usage_drifted", f"{provider} {resource}", "placement", expected=total, found=used)
            for provider, resource, used, total in rows
        ]

    async def _quota(self, site: ServicesSnapshot) -> list[Finding]:
        done = await QuotaUsage(self._context, mends=False).run()
        for cell in done.waiting:
            site.out.setdefault(f"cell {cell}", "it does not answer")
        return [self._of_quota(each) for each in done.mended]

    @staticmethod
    def _of_quota(each: CorrectedUsage) -> Finding:
        kind = "quota_user_usage_wrong" if each.user else "quota_usage_wrong"
        what = f"{each.project} {each.user}".strip()
        return finding(kind, what, "region", expected=each.now, found=each.before)

    async def _tokens(self, site: ServicesSnapshot) -> list[Finding]:
        before = self._now_us - OVERDUE_US
        count = await self._context.region.read(lambda tx: console_tokens.count_expired(tx, before))
        return [finding("console_tokens_expired", "console_tokens", "region", expected=0, found=count)] if count else []

    async def _events(self, site: ServicesSnapshot) -> list[Finding]:
        before = self._now_us - EVENTS_KEPT_US - OVERDUE_US
        count = await self._context.region.read(lambda tx: inbox.count_old(tx, before))
        return [finding("events_left", "inbox", "region", expected=0, found=count)] if count else []

    async def _intents(self, site: ServicesSnapshot) -> list[Finding]:
        before = self._now_us - INTENT_OLD_US - OVERDUE_US
        servers = await self._context.region.read(lambda tx: volume_intents.old(tx, before))
        why_not = "there is no volume service" if self._context.volumes is None else ""
        return [
            finding("volume_intent_left", each, "region", each, expected="accepted", found="an intent", why_not=why_not)
            for each in servers
        ]

    async def _snapshots(self, site: ServicesSnapshot) -> list[Finding]:
        if self._context.volumes is None:
            return []
        made = await self._context.volumes.made_snapshots()
        images = {image: await self._has_image(image) for image in sorted(set(made.values()))}
        return [
            finding("volume_snapshot_left", snapshot, "volume", expected=f"image {image}", found="no such image")
            for snapshot, image in sorted(made.items())
            if not images[image]
        ]

    async def _has_image(self, image: str) -> bool:
        """Read by id, because a list may leave it out (RULES §22)."""
        try:
            await self._context.images.show(image)
        except NotFound:
            return False
        return True

    async def _images(self, site: ServicesSnapshot) -> list[Finding]:
        scan = await OrphanImages(self._context, self._clock).scan()
        site.out |= {f"cell of server {each}": "it does not answer" for each in scan.waiting}
        return [
            finding(
                _kind_of(image),
                image.id,
                "image",
                server,
                expected="none",
                found=f"{image.properties.get(MADE_FOR)}, {image.status}",
            )
            for server, image in scan.strays
            if not self._young(image)
        ]

    def _young(self, image: Image) -> bool:
        """Whether it changed a moment ago: an operation may still be writing it (`reconcilers/stray_images.py`)."""
        try:
            changed = datetime.fromisoformat(image.updated_at or image.created_at)
        except ValueError:
            return False
        if changed.tzinfo is None:
            changed = changed.replace(tzinfo=UTC)
        return self._clock.now() - changed.timestamp() < GRACE_S

    async def _fences(self, site: ServicesSnapshot) -> list[Finding]:
        """Fences of servers that the region no longer has."""
        findings: list[Finding] = []
        for cell in self._context.cells.ids:
            try:
                findings += await self._fences_of(cell)
            except Problem as problem:
                site.out[f"cell {cell}"] = problem.public
        return findings

    async def _fences_of(self, cell: CellId) -> list[Finding]:
        findings: list[Finding] = []
        after = ""
        while True:
            page = await self._context.cells[cell].read(partial(cell_audited.fenced, after=after, limit=FENCES_PAGE))
            known = await self._context.region.read(partial(region_servers.cells_of, ids=page)) if page else {}
            findings += [
                finding("fence_left", each, cell, each, expected="none", found="a fence")
                for each in page
                if each not in known
            ]
            if len(page) < FENCES_PAGE or len(findings) >= FOUND_MAX:
                return findings
            after = page[-1]

    async def _deleted(self, site: ServicesSnapshot) -> list[Finding]:
        before = self._now_us - DELETED_SERVERS_KEPT_US - DAY_US
        ids: Sequence[ServerId] = await self._context.region.read(lambda tx: _long_deleted(tx, before))
        return [finding("deleted_record_old", each, "region", each, expected="forgotten", found="kept") for each in ids]


def _kind_of(image: Image) -> str:
    if image.status != WHOLE:
        return "image_left_half_made"
    return "image_of_move_left" if image.properties.get(MADE_FOR) == "resize" else "image_of_shelved_left"


def _long_deleted(tx: Tx, before_us: int) -> Sequence[ServerId]:
    return region_servers.long_deleted(tx, before_us, FOUND_MAX)
