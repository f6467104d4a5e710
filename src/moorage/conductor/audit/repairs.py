"""Repairs, with the code of operations and reconcilers; each checks the finding again in the transaction that writes,
and is journalled.

A journal line is written before the repair, as begun, and again with its result: so a repair whose process died is
known.
"""

import logging
from collections.abc import Awaitable, Callable, Collection

from moorage.conductor.audit.claim_repairs import ClaimRepairs
from moorage.conductor.audit.doubt_repairs import DoubtRepairs
from moorage.conductor.audit.port_repairs import PortRepairs
from moorage.conductor.audit.reader import AuditReader, GuestReportSource
from moorage.conductor.audit.record_repairs import RecordRepairs
from moorage.conductor.reconcilers.console_tokens import ConsoleTokens
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.conductor.reconcilers.orphan_images import OrphanImages
from moorage.conductor.reconcilers.purge import Tidy
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.model.audit import HEAL, KINDS, Finding, Repair
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.ids import ServerId
from moorage.operations.context import SagaContext
from moorage.operations.guest import repair_devices
from moorage.store.region import audits
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)

Mend = Callable[[Finding], Awaitable[str]]
"""Returns what was done; empty: nothing, because the finding is no longer true, or cannot be repaired now."""
BEGUN = "begun"
LEFT = "left: it changed meanwhile, or cannot be repaired now"


class Repairs:
    def __init__(
        self,
        context: SagaContext,
        reader: AuditReader,
        guests: GuestReportSource,
        clock: Clock,
        kinds: Collection[str] = (),
    ) -> None:
        """`kinds`: what is to be repaired; empty: all."""
        self._context, self._guests, self._clock = context, guests, clock
        records = RecordRepairs(context, clock)
        claims = ClaimRepairs(context, reader, kinds)
        ports = PortRepairs(context, reader)
        self._ports, self._claims = ports, claims
        self._done: dict[tuple[str, str], str] = {}
        """What was done for a whole server, or once for all: (kind of repair, server) → what was done."""
        self._repairs: dict[str, Mend] = {
            "server_doubtful": DoubtRepairs(context, guests, clock).settle,
            "mapping_missing": records.learn,
            "mapping_wrong_cell": records.map_to,
            "record_in_two_cells": records.remove_older,
            "hidden_record_left": records.hide,
            "hidden_record_missing": records.end_hidden,
            "record_deleted_mapping_live": records.mark_deleted,
            "mapping_deleted_record_live": records.mark_record_deleted,
            "build_request_left": records.drop_order,
            "task_state_left": records.clear_task,
            "building_without_operation": records.show_error,
            "slot_left": records.release_lock,
            "migration_left_open": records.end_migration,
            "fence_left": records.forget_fence,
            "allocation_orphaned": claims.release,
            "migration_allocation_orphaned": claims.release_move,
            "usage_drifted": claims.sum_again,
            "port_orphaned": ports.stray,
            "port_not_let_go": ports.stray,
            "port_missing": ports.sync_port,
            "port_addresses_differ": ports.sync_port,
            "port_bound_elsewhere": ports.bind,
            "port_unbound": ports.bind,
            "port_bound_of_shelved": ports.take_off,
            "port_profile_wrong": self._profile,
            "port_binding_left": ports.delete_binding,
            "attachment_orphaned": self._attachments,
            "volume_reserved": self._attachments,
            "attachment_unfinished": self._attachments,
            "volume_detaching_left": self._attachments,
            "volume_intent_left": self._intents,
            "image_left_half_made": self._image,
            "image_of_shelved_left": self._image,
            "image_of_move_left": self._image,
            "guest_orphaned": self._guest,
            "guest_elsewhere": self._guest,
            "guest_on_two_hosts": self._guest,
            **dict.fromkeys((kind for kind in KINDS if kind in OF_DEVICES), self._devices),
            "quota_usage_wrong": self._quota,
            "quota_user_usage_wrong": self._quota,
            "console_tokens_expired": self._tokens,
            "events_left": self._tidy,
            "deleted_record_old": self._tidy,
            **{kind: claims.heal for kind, known in KINDS.items() if known.repair == HEAL and known.repairable},
        }

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that can be repaired."""
        return frozenset(self._repairs)

    async def repair(self, finding: Finding, audit: str, by: str) -> bool:
        """Repair one finding; return whether it is repaired. Raises Problem when a service does not answer."""
        now = int(self._clock.now() * 1_000_000)
        before = f"{finding.found} (expected: {finding.expected})"
        line = Repair(audit, now, by, finding.kind, finding.what, finding.where, finding.server, before, BEGUN)
        number = await self._context.region.write(lambda tx: audits.note(tx, line))
        try:
            done = await self._once(finding)
        except Problem as problem:
            outcome = f"left: {problem.public} {problem.private}".strip()
            await self._context.region.write(lambda tx: audits.note_done(tx, number, outcome))
            raise
        await self._context.region.write(lambda tx: audits.note_done(tx, number, done or LEFT))
        if done:
            logger.warning(
                "repaired: %s %s of server %s: %s", finding.kind, finding.what, finding.server or "none", done
            )
        return bool(done)

    async def _once(self, finding: Finding) -> str:
        repair = self._repairs[finding.kind]
        if finding.kind not in ONCE:
            return await repair(finding)
        key = repair.__name__, finding.server
        if key not in self._done:
            self._done[key] = await repair(finding)
        return self._done[key]

    async def _profile(self, finding: Finding) -> str:
        """And set the claim accordingly."""
        done = await self._ports.name_providers(finding)
        if done:
            await self._claims.heal(finding)
        return done

    async def _attachments(self, finding: Finding) -> str:
        volumes = self._context.volumes
        if volumes is None:
            return ""
        server = ServerId(finding.server)
        attachments = await volumes.attachments_of(server)
        going = [finding.what] if finding.kind == "volume_detaching_left" else []
        done = await OrphanAttachments(self._context).repair(server, attachments, going)
        parts = [f"dropped {', '.join(done.dropped)}" if done.dropped else "", "completed" if done.mended else ""]
        return ", ".join(each for each in parts if each)

    async def _intents(self, finding: Finding) -> str:
        await OrphanAttachments(self._context).unfinished()
        return "its volumes are deleted, if it was never accepted"

    async def _image(self, finding: Finding) -> str:
        strays = OrphanImages(self._context, self._clock)
        mine = next((image for _, image in (await strays.scan()).strays if image.id == finding.what), None)
        return "deleted" if mine is not None and await strays.delete(mine) else ""

    async def _guest(self, finding: Finding) -> str:
        """The host reports its guests, and its cell decides which of them do not belong there
        (conductor/guest_reconciliation.py).
        """
        answered = await self._guests.ask_again([finding.where])
        return "the host was asked for its guests, and is informed which are not its own" if answered else ""

    async def _devices(self, finding: Finding) -> str:
        """An operation does it, after a look at the guest while nobody else works on the server."""
        server = ServerId(finding.server)
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        if where is None or where.operation is not None:
            return ""
        operation = await repair_devices.begin(self._context, server, where.op_seq)
        await self._guests.ask_again([finding.where])
        left = (await self._guests.differing()).get(finding.where, {}).get(server)
        return "" if left is not None else f"the guest and its record say the same, by operation {operation}"

    async def _quota(self, finding: Finding) -> str:
        done = await QuotaUsage(self._context).run()
        return "counted again" if done.mended else ""

    async def _tokens(self, finding: Finding) -> str:
        went = await ConsoleTokens(self._context.region, self._clock).run()
        return f"{went} forgotten" if went else ""

    async def _tidy(self, finding: Finding) -> str:
        await Tidy(self._context, self._clock).run()
        return "forgotten"


OF_DEVICES = frozenset(kind for kind in KINDS if kind.startswith(("guest_volume_", "guest_interface_")))
ONCE = frozenset(
    {kind for kind, known in KINDS.items() if known.repair == HEAL}
    | {"quota_usage_wrong", "quota_user_usage_wrong", "events_left", "deleted_record_old", "volume_intent_left"}
    | OF_DEVICES
    | {"attachment_orphaned", "volume_reserved", "attachment_unfinished", "port_orphaned", "port_not_let_go"}
)
"""Repairs that cover a server, or everything, at once: a second finding is repaired with the first."""
