"""The query of `GET /servers` and `/servers/detail`, as Nova reads it, made into a ServerQuery."""

import re
from datetime import UTC, datetime
from typing import Literal

from moorage.api.call import AnyCall
from moorage.api.routes import NUMBER, Param, Params
from moorage.api.schema import FALSE, TRUE
from moorage.api.version_changes import v2_005_servers, v2_038_servers, v2_083_servers, v2_090_servers
from moorage.model.errors import Forbidden, Invalid
from moorage.model.json_types import JsonObject
from moorage.model.pattern import Pattern
from moorage.model.server import TaskState, VmState
from moorage.model.server_status import states_of
from moorage.store.server_lists import ServerQuery, SortKey

OPEN_TO_ALL = frozenset({"reservation_id", "name", "status", "image", "flavor", "ip", "changes-since", "all_tenants"})
"""What everybody may filter by at every version; later versions opened more."""
OPENED = (
    (v2_005_servers.IP6_FOR_ALL, frozenset({"ip6"})),
    ((2, 26), frozenset({"tags", "tags-any", "not-tags", "not-tags-any"})),
    ((2, 66), frozenset({"changes-before"})),
    ((2, 73), frozenset({"locked"})),
    (
        v2_083_servers.MORE_FILTERS_FOR_ALL,
        frozenset({"availability_zone", "config_drive", "key_name", "created_at", "launched_at", "terminated_at"})
        | {"power_state", "task_state", "vm_state", "progress", "user_id"},
    ),
    (v2_090_servers.HOSTNAME_FOR_ALL, frozenset({"hostname"})),
)
INTERNAL = ("block_device_mapping", "services", "metadata", "system_metadata", "info_cache", "security_groups")
PATTERNS = {
    "kernel_id": "kernel_id", "ramdisk_id": "ramdisk_id", "hostname": "hostname", "key_name": "key_name",
    "power_state": "power_state", "node": "node", "reservation_id": "reservation_id",
    "availability_zone": "availability_zone", "name": "name", "display_name": "name", "description": "description",
    "display_description": "description", "locked_by": "locked_by", "root_device_name": "root_device",
    "config_drive": "config_drive", "access_ip_v4": "access_ip_v4", "access_ip_v6": "access_ip_v6",
    "progress": "progress", "launch_index": "launch_index",
}  # fmt: skip
SORT_FIELDS = {
    "access_ip_v4": "access_ip_v4", "access_ip_v6": "access_ip_v6", "auto_disk_config": "disk_config",
    "availability_zone": "availability_zone", "config_drive": "config_drive", "created_at": "created_at",
    "display_description": "description", "display_name": "name", "host": "host", "hostname": "hostname",
    "image_ref": "image", "instance_type_id": "flavor", "kernel_id": "kernel_id", "key_name": "key_name",
    "launch_index": "launch_index", "launched_at": "launched_at", "locked_by": "locked_by", "node": "node",
    "power_state": "power_state", "progress": "progress", "project_id": "project", "ramdisk_id": "ramdisk_id",
    "root_device_name": "root_device", "task_state": "task_state", "terminated_at": "terminated_at",
    "updated_at": "updated_at", "user_id": "user", "uuid": "id", "vm_state": "vm_state", "locked": "locked",
}  # fmt: skip
IGNORED_SORTS = frozenset(
    {"architecture", "cell_name", "cleaned", "default_ephemeral_device", "default_swap_device", "deleted"}
    | {"deleted_at", "disable_terminate", "ephemeral_gb", "ephemeral_key_uuid", "id", "key_data", "launched_on"}
    | {"memory_mb", "os_type", "reservation_id", "root_gb", "shutdown_terminate", "user_data", "vcpus", "vm_mode"}
)
SORT_KEYS_MAX = 8
"""Different ones: a page is found by comparing each key with all those before it."""
TAGS_MAX = 100
"""In one filter: each is a condition of the statement."""
_PLAIN = (
    "user_id project_id tenant_id image_ref image vm_state task_state host flavor launched_at terminated_at uuid "
    "auto_disk_config all_tenants soft_deleted deleted status ip ip6 created_at pci_devices fixed_ip"
)
_WHEN = Param(form=r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$", format="date-time")
REGEXES = frozenset({*PATTERNS, "auto_disk_config", "flavor", "ip", "ip6"} - {"launch_index"})
LISTING = Params(
    {
        "limit": Param(form=NUMBER),
        "marker": Param(),
        "sort_key": Param(form="^(" + "|".join(sorted({*SORT_FIELDS, *IGNORED_SORTS})) + ")$"),
        "sort_dir": Param(),
        **{name: Param(regex=name in REGEXES) for name in (*PATTERNS, *_PLAIN.split(), *INTERNAL)},
        "changes-since": _WHEN,
        "changes-before": Param(since=(2, 66), form=_WHEN.form, format="date-time"),
        **{
            name: Param(since=(2, 26), regex=True, searched=False)
            for name in ("tags", "tags-any", "not-tags", "not-tags-any")
        },
        "locked": Param(since=(2, 73)),
    },
    strict=(2, 75),
)


def wanted(call: AnyCall, *, detail: bool) -> ServerQuery | None:
    """What is asked for; None when nothing can answer it. Raises Invalid and Forbidden as Nova does."""
    given = LISTING.check(call.query, call.version)
    fields = _allowed(call, {name: values[-1] for name, values in given.items()})
    all_projects = _all_tenants(call, fields, detail=detail)
    filters: JsonObject = {}
    if not _states(call, given, fields, filters):
        return None
    _times(fields, filters)
    _deletion(call, fields, filters)
    _plain(fields, filters)
    _whose(call, fields, filters, all_projects=all_projects)
    filters["sort"] = _sort(call, given)
    return ServerQuery(**filters)


def _allowed(call: AnyCall, fields: dict[str, str]) -> dict[str, str]:
    """Filters for administrators are ignored for other users."""
    bad = [name for name in call.query if name in INTERNAL or name == "pci_devices" or name.startswith("_")]
    if call.allows("os_compute_api:servers:allow_all_filters"):
        if bad:
            raise Invalid(f"Invalid filter field: {bad[0]}.")
        return fields
    more = [names for since, names in OPENED if call.version >= since]
    return {name: value for name, value in fields.items() if name in OPEN_TO_ALL.union(*more)}


def _all_tenants(call: AnyCall, fields: dict[str, str], *, detail: bool) -> bool:
    text = fields.pop("all_tenants", None)
    if text is None:
        return False
    if text not in TRUE | FALSE | {""} and text.lower() not in {"t", "f", "y", "n", "true", "false"}:
        raise Invalid(f"Invalid value '{text}' for all_tenants.")
    all_tenants = text == "" or text in TRUE or text.lower() in {"t", "y", "true"}
    if all_tenants:
        call.require(f"os_compute_api:servers:{'detail' if detail else 'index'}:get_all_tenants")
    return all_tenants


def _states(call: AnyCall, given: dict[str, list[str]], fields: dict[str, str], filters: JsonObject) -> bool:
    if "vm_state" in fields:
        filters["vm_states"] = (fields["vm_state"],)
    if "task_state" in fields:
        filters["task_states"] = (fields["task_state"],)
    statuses = given.get("status", [])
    if not statuses:
        return True
    vm_states: list[str] = []
    task_states: list[str] = []
    every_task = False
    for each in statuses:
        vms, tasks = states_of(each)
        vm_states += [state.value for state in vms]
        every_task = every_task or (bool(vms) and tasks is None)
        task_states += [state.value for state in tasks or ()]
    if not vm_states:
        if call.version >= v2_038_servers.STATUS_MUST_BE_KNOWN:
            raise Invalid("Invalid status value")
        return False
    filters["vm_states"] = tuple(dict.fromkeys(vm_states))
    if not every_task:
        filters["task_states"] = tuple(TaskState(state).value for state in dict.fromkeys(task_states))
    return True


def _times(fields: dict[str, str], filters: JsonObject) -> None:
    if "changes-since" in fields:
        filters["changes_since"] = instant(fields["changes-since"], "changes-since")
    if "changes-before" in fields:
        filters["changes_before"] = last_instant(fields["changes-before"], "changes-before")
        if filters.get("changes_since", 0) > filters["changes_before"]:
            raise Invalid("The value of changes-since must be less than or equal to changes-before.")
    between = []
    for name in ("created_at", "launched_at", "terminated_at"):
        if name in fields:
            at = instant(fields[name], name)
            between.append((name, at - at % 1_000_000, at - at % 1_000_000 + 1_000_000))
    filters["between"] = tuple(between)


def instant(text: str, field: str) -> int:
    """Return an ISO 8601 time in microseconds since 1970; a time without a zone is UTC.

    Raises Invalid when it cannot be parsed.
    """
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "T" if "T" not in text else "+"))
    except ValueError:
        raise Invalid(f"Invalid filter field: {field}.") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def last_instant(text: str, field: str) -> int:
    """The last microsecond of a time. The API shows whole seconds, so a time that it showed means its whole second.

    Raises Invalid when it cannot be parsed.
    """
    at = instant(text, field)
    return at if at % 1_000_000 else at + 999_999


def _deletion(call: AnyCall, fields: dict[str, str], filters: JsonObject) -> None:
    if "deleted" in fields:
        filters["deleted"] = fields["deleted"] in TRUE or fields["deleted"].lower() in {"t", "y"}
    elif "changes_since" in filters or "changes_before" in filters:
        filters["deleted"] = None
    if filters.get("vm_states") == (VmState.DELETED.value,):
        if not call.is_admin:
            raise Forbidden("Only administrators may list deleted instances")
        filters["deleted"] = True
    if filters.get("vm_states") == (VmState.SOFT_DELETED.value,) and call.is_admin:
        filters["soft_deleted"] = True  # others are shown none, as in Nova
    if "soft_deleted" in fields:
        filters["soft_deleted"] = fields["soft_deleted"] in TRUE


def _plain(fields: dict[str, str], filters: JsonObject) -> None:
    for name, field in (("host", "host"), ("image", "image"), ("image_ref", "image"), ("flavor", "flavor")):
        if fields.get(name):
            filters[field] = fields[name]
    if "uuid" in fields:
        filters["ids"] = (fields["uuid"],)
    _tags(fields, filters)
    if "locked" in fields:
        if fields["locked"] not in TRUE | FALSE:
            raise Invalid(f"Invalid value '{fields['locked']}' for locked.")
        filters["locked"] = fields["locked"] in TRUE
    for name in ("ip", "ip6"):
        if name in fields:
            filters[name] = Pattern(fields[name]).text
    if "fixed_ip" in fields:
        filters["ip"] = f"^{re.escape(fields['fixed_ip'])}$"
    filters["matches"] = tuple(
        (field, Pattern(fields[name]).text) for name, field in PATTERNS.items() if name in fields
    )
    if "auto_disk_config" in fields:
        filters["matches"] += (("disk_config", "^AUTO$" if fields["auto_disk_config"] in TRUE else "^MANUAL$"),)


def _tags(fields: dict[str, str], filters: JsonObject) -> None:
    for name, field in (
        ("tags", "tags"),
        ("tags-any", "tags_any"),
        ("not-tags", "not_tags"),
        ("not-tags-any", "not_tags_any"),
    ):
        if name in fields:
            filters[field] = tuple(dict.fromkeys(fields[name].split(",")))
            if len(filters[field]) > TAGS_MAX:
                raise Invalid(f"The filter {name} names {len(filters[field])} tags; at most {TAGS_MAX} are taken.")


def _whose(call: AnyCall, fields: dict[str, str], filters: JsonObject, *, all_projects: bool) -> None:
    if "user_id" in fields:
        filters["user"] = fields["user_id"]
    if all_projects:
        project = fields.get("project_id") or fields.get("tenant_id")
        if project:
            filters["project"] = project
    elif call.principal.project is not None:
        filters["project"] = call.principal.project
    else:
        filters["user"] = call.principal.user


def _sort(call: AnyCall, given: dict[str, list[str]]) -> tuple[SortKey, ...]:
    keys = given.get("sort_key") or ["created_at"]
    ways = given.get("sort_dir") or ["desc"]
    extended = call.is_admin
    sort: dict[str, Literal["asc", "desc"]] = {}
    for place, key in enumerate(keys):
        direction = ways[place] if place < len(ways) else ways[0]
        if direction not in {"asc", "desc"}:
            raise Invalid("Unknown sort direction, must be one of: asc, desc")
        way: Literal["asc", "desc"] = "asc" if direction == "asc" else "desc"
        if key in {"host", "node"} and not extended:
            raise Forbidden(f"Only administrators can sort servers by {key}")
        if key == "locked" and call.version < (2, 73):
            continue
        if key in IGNORED_SORTS:
            if call.version >= (2, 75):
                raise Invalid(f"Invalid input for query parameters sort_key. Value: {key}.")
            continue
        sort.setdefault(SORT_FIELDS[key], way)  # once sorted by, a key changes nothing again
    if len(sort) > SORT_KEYS_MAX:
        raise Invalid(f"Servers are sorted by at most {SORT_KEYS_MAX} keys, and {len(sort)} are given.")
    directions = list(sort.values())
    first: Literal["asc", "desc"] = directions[0] if directions else "desc"
    for last in ("created_at", "id"):
        sort.setdefault(last, first)
    return tuple(sort.items())
