"""The table of reconcilers and their periods. All but one of them run only in the process that leads."""

from functools import partial

from moorage.conductor.audit.audit_loop import Audits
from moorage.conductor.audit.auditor import Auditor
from moorage.conductor.audit.guest_reports import ReportedGuests
from moorage.conductor.cell_drains import CellDrains
from moorage.conductor.drains import Drains
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.conductor.reconcilers.console_tokens import ConsoleTokens
from moorage.conductor.reconcilers.devices import DeviceSync
from moorage.conductor.reconcilers.doubtful_servers import DoubtfulServers
from moorage.conductor.reconcilers.hidden_records import HiddenRecords
from moorage.conductor.reconcilers.host_aggregates import HostAggregates
from moorage.conductor.reconcilers.host_debts import HostDebts
from moorage.conductor.reconcilers.offload_shelved import OffloadShelved
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.conductor.reconcilers.orphan_images import OrphanImages
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.conductor.reconcilers.power_states import PowerStates
from moorage.conductor.reconcilers.purge import Tidy
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.conductor.reconcilers.reclaim_deleted import Reclaim
from moorage.conductor.reconcilers.record_copies import RecordCopies
from moorage.conductor.reconcilers.unconfirmed_resizes import ConfirmResizes
from moorage.conductor.reconcilers.usage_audit import UsageAudit
from moorage.main.composition import RegionProcess

AGGREGATES_EVERY_S = 2.0
SEGMENTS_EVERY_S = 30.0
DEVICES_EVERY_S = 10.0
NOTIFICATIONS_EVERY_S = 0.5
AUDIT_EVERY_S = 60.0
ASKED_EVERY_S = 1.0
"""How often requests that send no hint are looked for: drains and audits."""
STRAYS_EVERY_S = 60.0
DEBTS_EVERY_S = 1.0
DRIFT_EVERY_S = 60.0
QUOTA_EVERY_S = 300.0
DOUBTS_EVERY_S = 300.0
IMAGES_EVERY_S = 300.0
TOKENS_EVERY_S = 60.0
RECLAIM_EVERY_S, RECLAIM_SOONEST_S = 60.0, 0.5
SHELVED_EVERY_S = 60.0
HIDDEN_EVERY_S = 60.0
CONFIRM_EVERY_S, CONFIRM_SOONEST_S = 60.0, 0.5
TIDY_EVERY_S = 600.0


def add_rounds(rounds: ReconcileLoop, region: RegionProcess, poll_every_s: float | None = None) -> None:
    """Add every reconciler of this release with its period."""
    poll_every_s = ASKED_EVERY_S if poll_every_s is None else poll_every_s
    if region.segments is not None:
        came = partial(region.segments.until_host_appears, region.clock)
        rounds.add("segments", SEGMENTS_EVERY_S, region.segments.run, sooner=came)
    if not region.config.network.reports:
        devices = DeviceSync(region.context.network, region.engine, region.clock)
        rounds.add("devices", DEVICES_EVERY_S, devices.run, sooner=devices.until_host_appears)
    rounds.add("host_aggregates", AGGREGATES_EVERY_S, HostAggregates(region.engine).run, everywhere=True)
    rounds.add("stray_ports", STRAYS_EVERY_S, OrphanPorts(region.context).run)
    if region.context.volumes is not None:
        rounds.add("stray_attachments", STRAYS_EVERY_S, OrphanAttachments(region.context).run)
    rounds.add("stray_claims", STRAYS_EVERY_S, OrphanAllocations(region.context).run)
    _add_rounds_of_servers(rounds, region)
    if len(region.context.cells.ids) > 1:
        rounds.add("hidden_records", HIDDEN_EVERY_S, HiddenRecords(region.context, region.clock).run)
    if (copies_s := region.config.region.record_copies_s) > 0:
        rounds.add("record_copies", copies_s, RecordCopies(region.context, region.clock).run)
    rounds.add("stray_images", IMAGES_EVERY_S, OrphanImages(region.context, region.clock).run)
    if region.config.network.backend != "flat":  # Moorage itself records the addresses of flat networks
        rounds.add("port_drift", DRIFT_EVERY_S, PortDrift(region.context).run)
    rounds.add("quota_usage", QUOTA_EVERY_S, QuotaUsage(region.context).run)
    rounds.add("doubtful_servers", DOUBTS_EVERY_S, DoubtfulServers(region.context).run)
    if region.notifications is not None:
        cells = tuple(region.databases.cells.values())
        relay = region.notifications.relay(region.databases.region, cells, region.clock)
        rounds.add("notifications", NOTIFICATIONS_EVERY_S, relay.run)
        settings = region.config.notifications
        if settings.usage_audit:
            audit = UsageAudit(region.databases.cells, settings.usage_audit_period, region.clock)
            rounds.add("usage_audit", AUDIT_EVERY_S, audit.run)
    rounds.add("console_tokens", TOKENS_EVERY_S, ConsoleTokens(region.databases.region, region.clock).run)
    rounds.add("drains", poll_every_s, Drains(region.context, region.clock).run)
    rounds.add("cell_drains", poll_every_s, CellDrains(region.context, region.clock).run)
    rounds.add("audits", poll_every_s, audits_of(region).run)
    rounds.add("tidy", TIDY_EVERY_S, Tidy(region.context, region.clock).run)


def _add_rounds_of_servers(rounds: ReconcileLoop, region: RegionProcess) -> None:
    """Rounds that begin operations of servers for which nobody asked."""
    rounds.add("host_debts", DEBTS_EVERY_S, HostDebts(region.context, region.clock).run)
    settings = region.config.compute
    if settings.shelved_offload_time >= 0:
        rounds.add("shelved", SHELVED_EVERY_S, OffloadShelved(region.context, region.clock).run)
    window_s = settings.resize_confirm_window
    if window_s > 0:
        every_s = min(CONFIRM_EVERY_S, max(CONFIRM_SOONEST_S, window_s / 4))
        rounds.add("unconfirmed", every_s, ConfirmResizes(region.context, region.clock).run)
    reclaim_s = settings.reclaim_instance_interval
    if reclaim_s > 0:
        every_s = min(RECLAIM_EVERY_S, max(RECLAIM_SOONEST_S, reclaim_s / 4))
        rounds.add("reclaim", every_s, Reclaim(region.context, region.clock).run)
    if settings.sync_power_state_interval > 0:
        power_states = PowerStates(region.context, region.clock)
        rounds.add("power_states", settings.sync_power_state_interval, power_states.run)


def audits_of(region: RegionProcess) -> Audits:
    """Build the audits, which compare all services' records with the servers' records."""
    config = region.config
    reports = ReportedGuests(lambda: region.cells, tuple(region.context.cells.ids), region.clock)
    auditor = Auditor(region.context, reports, region.clock, ports=config.network.backend != "flat")
    return Audits(region.context, auditor, region.clock, every_s=config.audit.every_s, repairs=config.audit.repair)
