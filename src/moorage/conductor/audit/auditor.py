"""Reads twice: everything, and then the suspects (N4).

The second read begins and ends with the region's state of each suspect: no operation holds it, and none began or ended
in between. So a difference that was seen in between was not caused by a running operation.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import msgspec

from moorage.conductor.audit import (
    claim_checks,
    device_checks,
    doubt_checks,
    guest_checks,
    port_checks,
    record_checks,
    volume_checks,
)
from moorage.conductor.audit.reader import AuditReader, GuestReportSource
from moorage.conductor.audit.region_checks import Wholes
from moorage.conductor.audit.repairs import Repairs
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.conductor.reconcilers.port_drift import too_many_lost
from moorage.model.audit import FINDINGS_KEPT_MAX, KINDS, AuditReport, AuditRequest, Finding
from moorage.model.clock import Clock
from moorage.model.errors import Problem, Stale, Unavailable
from moorage.model.ids import OperationId, ServerId
from moorage.operations.context import SagaContext
from moorage.sql import label
from moorage.store.region import audit_reads, audits

Check = Callable[[SnapshotPage, ServicesSnapshot], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    doubt_checks.of_servers,
    record_checks.mappings,
    record_checks.tasks,
    record_checks.migrations,
    claim_checks.of_servers,
    claim_checks.orphans,
    port_checks.of_devices,
    port_checks.of_servers,
    volume_checks.attachments,
    volume_checks.volumes,
    guest_checks.of_servers,
    guest_checks.guests_without_server,
    guest_checks.unknown,
    device_checks.of_servers,
)
AGAIN_AFTER_S = 3.0
SUSPECTS_AT_ONCE = 500
SUSPECTS_MAX = 100_000
"""How many suspects of the first read are read again; a cloud with more has one common fault, and the report says so.
"""
OTHERS_MAX = 100
"""Servers that did not move whose ports' bindings one audit reads."""
TOO_MANY_LOST = "too many ports are missing at once: check the network service"
DOUBTFUL = "its server is doubtful: decide about that first"
OF_GUESTS = frozenset(kind for kind in KINDS if kind.startswith("guest_")) | {doubt_checks.KIND}

Key = tuple[str, str, str, str]
logger = logging.getLogger(__name__)


class Auditor:
    def __init__(
        self,
        context: SagaContext,
        guests: GuestReportSource,
        clock: Clock,
        *,
        ports: bool = True,
        again_after_s: float = AGAIN_AFTER_S,
    ) -> None:
        """`ports`: whether there is a network service with ports."""
        self._context, self._guests, self._clock, self._again_after_s = context, guests, clock, again_after_s
        self._reader = AuditReader(context, guests, ports=ports)
        self._wholes = Wholes(context, clock)
        self._last_other = ""
        """The last server whose bindings the last audit read although it had not moved."""

    async def run(self, request: AuditRequest, audit: str = "", by: str = "", began: int | None = None) -> AuditReport:
        """Run an audit, and repair what was requested. Raises Unavailable when nothing could be read.

        `began`: the start time of this process's run; once another process runs the audit, nothing more is repaired,
        and Stale is raised.
        """
        with label("audit"):
            kinds = frozenset(request.kinds or KINDS)
            suspects, site, looked_at = await self._first(request, kinds)
            if len(suspects) >= SUSPECTS_MAX:
                site.out["findings"] = f"more than {SUSPECTS_MAX} in the first check: only so many were checked again"
            await self._nothing_left(site)
            sure: list[Finding] = []
            if suspects:
                await self._clock.sleep(self._again_after_s)
                sure = await self._again(suspects, site, request, kinds)
            sure = sorted(_without_lost(sure, site), key=lambda each: not KINDS[each.kind].is_critical)
            limit = min(request.limit, FINDINGS_KEPT_MAX)
            counts = Counter(each.kind for each in sure)
            report = AuditReport(looked_at, dict(sorted(site.out.items())), dict(counts), tuple(sure[:limit]))
            return await self._repaired(report, sure, request, audit, by, began) if request.repair else report

    async def _nothing_left(self, site: ServicesSnapshot) -> None:
        if self._context.cells.ids and not site.cells:
            raise Unavailable("No cell could be read.", private=str(site.out))

    # ------------------------------------------------------------------------------------------------ the first read

    async def _first(
        self, request: AuditRequest, kinds: Collection[str]
    ) -> tuple[set[Key], ServicesSnapshot, dict[str, int]]:
        ids = [ServerId(each) for each in request.servers]
        site = await self._reader.site(ids or None)
        await self._with_bindings(site, kinds, ids)
        suspects: set[Key] = set()
        servers, consumers = 0, 0
        if ids:
            page = await self._reader.among(site, ids)
            site.wired = _wired(page)
            suspects, servers, consumers = (
                {each.key for each in checked(page, site, kinds)},
                len(page.mapped),
                len(page.held),
            )
        else:
            async for page in self._reader.pages(site):
                servers, consumers = servers + len(page.mapped), consumers + len(page.held)
                site.wired += _wired(page)
                if len(suspects) < SUSPECTS_MAX:
                    suspects |= {each.key for each in checked(page, site, kinds)}
            suspects |= {each.key for each in await self._wholes.run(site, sorted(kinds))}
        looked_at = {"servers": servers, "claims": consumers, "hosts": len(site.guests)}
        if site.ports is not None:
            looked_at["ports"] = sum(len(each) for each in site.ports.values())
        if site.attachments is not None:
            looked_at["attachments"] = sum(len(each) for each in site.attachments.values())
        return suspects, site, looked_at

    async def _with_bindings(self, site: ServicesSnapshot, kinds: Collection[str], ids: Collection[ServerId]) -> None:
        if "port_binding_left" in kinds:
            lately = await self._reader.moved_lately(site, int(self._clock.now() * 1_000_000))
            site.moved = lately
            others = ids or await self._next_others()
            await self._reader.bindings(site, lately.intersection(ids) if ids else lately)
            await self._reader.bindings(site, frozenset(others) - lately)

    async def _next_others(self) -> list[ServerId]:
        """Some servers, whether or not they moved: each audit looks at the next ones, for each of their ports is a call."""
        after = self._last_other
        rows = await self._context.region.read(lambda tx: audit_reads.mapped(tx, after, OTHERS_MAX))
        self._last_other = rows[-1].id if len(rows) == OTHERS_MAX else ""
        return [each.id for each in rows if not each.deleted]

    # ------------------------------------------------------------------------------------------- the second read

    async def _again(
        self, suspects: Collection[Key], site: ServicesSnapshot, request: AuditRequest, kinds: Collection[str]
    ) -> list[Finding]:
        sure: list[Finding] = []
        ids = sorted({server or what for kind, what, _, server in suspects if kind not in self._of_wholes})
        if len(ids) > SUSPECTS_AT_ONCE:
            logger.info("the audit reads %d suspects again", len(ids))
        for at in range(0, len(ids), SUSPECTS_AT_ONCE):
            batch = [ServerId(each) for each in ids[at : at + SUSPECTS_AT_ONCE]]
            sure += await self._sure(batch, suspects, site, kinds)
        if not request.servers and any(kind in self._of_wholes for kind, *_ in suspects):
            again = await self._wholes.run(site, sorted({kind for kind, *_ in suspects}))
            sure += [each for each in again if each.key in suspects]
        return sure

    @property
    def _of_wholes(self) -> frozenset[str]:
        return frozenset(kind for kinds in self._wholes.checks() for kind in kinds)

    async def _sure(
        self, ids: Sequence[ServerId], suspects: Collection[Key], site: ServicesSnapshot, kinds: Collection[str]
    ) -> list[Finding]:
        """Those of the suspects that are seen again, while no operation worked on their servers."""
        before = await self._standing(ids)
        reporting = await self._reported_again(ids, suspects, site)
        others = any(kind == "port_taken_by_other" for kind, *_ in suspects)
        now = await self._reader.site(None if others else ids)
        now.guests = {host: those for host, those in now.guests.items() if host in reporting}
        consumers = [what for kind, what, _, server in suspects if kind.startswith("migration_") and server in set(ids)]
        if "port_binding_left" in {kind for kind, *_ in suspects}:
            now.moved = site.moved
            await self._reader.bindings(now, ids)
        page = await self._reader.among(now, ids, consumers)
        after = await self._standing(ids)
        site.out |= now.out
        still = {each for each in ids if before.get(each) == after.get(each)}
        return [
            each
            for each in checked(page, now, kinds)
            if each.key in suspects
            and (not each.server or ServerId(each.server) in still or ServerId(each.server) not in after)
        ]

    async def _reported_again(
        self, ids: Collection[ServerId], suspects: Collection[Key], site: ServicesSnapshot
    ) -> Collection[str]:
        """Hosts that reported their guests again, among those of the findings: where the guest is, and where it should
        be.
        """
        mine = {server or what: where for kind, what, where, server in suspects if kind in OF_GUESTS}
        concerned = [each for each in ids if each in mine]
        if not concerned:
            return ()
        page = await self._reader.among(site, concerned)
        wanted = {mine[each] for each in concerned} | {host for hosts in page.guests.values() for host in hosts}
        wanted |= {row.host for rows in page.records.values() for _, row in rows if row.host is not None}
        return await self._guests.ask_again(wanted)

    async def _standing(self, ids: Collection[ServerId]) -> dict[ServerId, tuple[OperationId | None, int, bool]]:
        rows = await self._context.region.read(partial(audit_reads.mapped_among, ids=ids))
        return {each.id: (each.operation, each.op_seq, each.deleted) for each in rows}

    # ------------------------------------------------------------------------------------------------ repairs

    async def _still_mine(self, audit: str, began: int | None) -> None:
        """Raises Stale when another process has begun the audit again, or has ended it."""
        if began is not None and not await self._context.region.read(lambda tx: audits.is_mine(tx, audit, began)):
            raise Stale("Another process runs this audit.")

    async def _repaired(
        self,
        report: AuditReport,
        sure: Sequence[Finding],
        request: AuditRequest,
        audit: str,
        by: str,
        began: int | None,
    ) -> AuditReport:
        repairs = Repairs(self._context, self._reader, self._guests, self._clock, request.kinds)
        repaired: Counter[str] = Counter()
        left: Counter[str] = Counter()
        for each in sure:
            if not each.repairable:
                left[each.kind] += 1
            elif request.dry_run:
                repaired[each.kind] += 1
            else:
                await self._still_mine(audit, began)
                try:
                    done = await repairs.repair(each, audit, by)
                except Problem as problem:
                    logger.info("%s %s waits: %s", each.kind, each.what, problem)
                    done = False
                (repaired if done else left)[each.kind] += 1
        return msgspec.structs.replace(report, repaired=dict(repaired), left=dict(left))


def _wired(page: SnapshotPage) -> int:
    return sum(bool(server.nics) for _, server in page.settled)


def _without_lost(sure: list[Finding], site: ServicesSnapshot) -> list[Finding]:
    """Drop findings of lost ports when so many are missing that the network service's database is probably being
    restored.
    """
    lost = {each.server for each in sure if each.kind == "port_missing"}
    if not too_many_lost(len(lost), site.wired):
        return sure
    site.out["network"] = f"ports of {len(lost)} servers are missing at once: it is not believed"
    return [
        msgspec.structs.replace(each, repairable=False, repair=TOO_MANY_LOST) if each.kind == "port_missing" else each
        for each in sure
    ]


def checked(page: SnapshotPage, site: ServicesSnapshot, kinds: Collection[str]) -> Iterator[Finding]:
    """The findings of all checks of these kinds on a page."""
    doubtful = {where.id for where, _, _ in doubt_checks.doubtful(page)}
    for check in CHECKS:
        for each in check(page, site):
            if each.kind in kinds:
                held_back = doubtful & {each.server, each.what} and each.kind != doubt_checks.KIND
                yield msgspec.structs.replace(each, repairable=False, repair=DOUBTFUL) if held_back else each
