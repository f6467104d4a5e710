"""`/os-instance_usage_audit_log`: the hosts whose usage audit of the last complete period was sent.

The audit is one of cells here (`conductor/reconcilers/usage_audit.py`, off unless an operator turns it on), so the hosts of a
cell are done together.  What servers used stands in `/os-simple-tenant-usage` in any case.
"""

import asyncio
import datetime

from moorage.api.call import AnyCall, Call, Response
from moorage.api.routes import Route
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.operations.notifications.audit_periods import last_completed, moment
from moorage.sql import Database, Tx
from moorage.store.cell import hosts, usage_audits
from moorage.store.cell.usage_audits import UsageAuditKey

RULE = "os_compute_api:os-instance-usage-audit-log:"
FORM = "%Y-%m-%d %H:%M:%S"


async def _log(call: AnyCall, before_us: int) -> JsonObject:
    began, ended = last_completed(before_us - 1, call.context.config.usage_audit_period)
    entries: dict[str, JsonObject | None] = {}
    for each in await asyncio.gather(*(_of_cell(cell, began, ended) for cell in call.context.cells.values())):
        entries.update(each)
    log = {host: entry for host, entry in entries.items() if entry is not None}
    done = sum(entry["state"] == "DONE" for entry in log.values())
    missing = sorted(host for host, entry in entries.items() if entry is None)
    share = "ALL" if done == len(entries) else f"{done} of {len(entries)}"
    return {
        "period_beginning": moment(began).strftime(FORM),
        "period_ending": moment(ended).strftime(FORM),
        "num_hosts": len(entries),
        "num_hosts_done": done,
        "num_hosts_running": len(log) - done,
        "num_hosts_not_run": len(missing),
        "hosts_not_run": missing,
        "total_instances": sum(entry["instances"] for entry in log.values()),
        "total_errors": 0,
        "overall_status": f"{share} hosts done. 0 errors.",
        "log": log,
    }


async def _of_cell(cell: Database, began: int, ended: int) -> dict[str, JsonObject | None]:
    """Host → the result of its audit; None: it has not begun."""

    def work(tx: Tx) -> tuple[list[str], UsageAuditKey, dict[str, int]]:
        at = usage_audits.place(tx, began, ended)
        counts = usage_audits.by_host(tx, began, ended) if at != UsageAuditKey() else {}
        return [host.host for host in hosts.listed(tx)], at, counts

    names, at, counts = await cell.read(work)
    return {host: None if at == UsageAuditKey() else _entry(host, at, counts.get(host, 0)) for host in names}


def _entry(host: str, at: UsageAuditKey, count: int) -> JsonObject:
    return {
        "state": "DONE" if at.finished else "RUNNING",
        "instances": count,
        "errors": 0,
        "message": f"Usage audit of host {host}: {count} servers.",
    }


async def index(call: Call[None]) -> Response:
    call.require(RULE + "list", {})
    return Response(200, {"instance_usage_audit_logs": await _log(call, int(call.context.clock.now() * 1_000_000))})


async def show(call: Call[None]) -> Response:
    """List a period's usage audit. Raises Invalid for a date that cannot be parsed."""
    call.require(RULE + "show", {})
    text = call.path["before"]
    try:
        before = datetime.datetime.strptime(text, f"{FORM}.%f" if "." in text else FORM).replace(tzinfo=datetime.UTC)
        log = await _log(call, int(before.timestamp()) * 1_000_000 + before.microsecond)
    except (ValueError, OverflowError):
        raise Invalid(f"Invalid timestamp for date {text}") from None
    return Response(200, {"instance_usage_audit_log": log})


ROUTES = (
    Route("GET", "/os-instance_usage_audit_log", index),
    Route("GET", "/os-instance_usage_audit_log/{before}", show),
)
