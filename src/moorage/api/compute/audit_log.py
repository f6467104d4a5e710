"""`/os-instance_usage_audit_log`: which hosts have audited their servers' usage in the last finished month.

Nova's hosts do so only when an operator turns it on (`instance_usage_audit`, off by default); ours never do, so every host is
named as one that has not.  What servers used stands in `/os-simple-tenant-usage`.
"""

import datetime
from typing import Any

from moorage.api.call import Call, Reply
from moorage.api.hosts import every_host
from moorage.api.routes import Route
from moorage.model.errors import Invalid

RULE = "os_compute_api:os-instance-usage-audit-log:"


def month_before(moment: datetime.datetime) -> tuple[datetime.datetime, datetime.datetime]:
    """The last month that ended before this moment: its beginning, and its end."""
    end = datetime.datetime(moment.year, moment.month, 1)  # noqa: DTZ001  naive UTC, as it is written
    if end >= moment:
        end = (end - datetime.timedelta(days=1)).replace(day=1)
    return (end - datetime.timedelta(days=1)).replace(day=1), end


async def _log(call: Call[Any], before: datetime.datetime) -> dict[str, Any]:
    hosts, _ = await every_host(call)
    names = [host.host for host in hosts]
    begin, end = month_before(before)
    done = "ALL" if not names else f"0 of {len(names)}"
    return {
        "period_beginning": str(begin),
        "period_ending": str(end),
        "num_hosts": len(names),
        "num_hosts_done": 0,
        "num_hosts_running": 0,
        "num_hosts_not_run": len(names),
        "hosts_not_run": names,
        "total_instances": 0,
        "total_errors": 0,
        "overall_status": f"{done} hosts done. 0 errors.",
        "log": {},
    }


async def index(call: Call[None]) -> Reply:
    call.require(RULE + "list", {})
    now = datetime.datetime.fromtimestamp(call.desk.clock.now(), datetime.UTC).replace(tzinfo=None)
    return Reply(200, {"instance_usage_audit_logs": await _log(call, now)})


async def show(call: Call[None]) -> Reply:
    call.require(RULE + "show", {})
    text = call.path["before"]
    form = "%Y-%m-%d %H:%M:%S.%f" if "." in text else "%Y-%m-%d %H:%M:%S"
    try:
        before = datetime.datetime.strptime(text, form)  # noqa: DTZ007  naive UTC, as it is written
        log = await _log(call, before)
    except (ValueError, OverflowError):
        raise Invalid(f"Invalid timestamp for date {text}") from None
    return Reply(200, {"instance_usage_audit_log": log})


ROUTES = (
    Route("GET", "/os-instance_usage_audit_log", index),
    Route("GET", "/os-instance_usage_audit_log/{before}", show),
)
