"""Nova's unversioned payload of `compute.instance.*`, which Ceilometer reads."""

from typing import Any

from moorage.model.notification import Notification
from moorage.model.server import Server
from moorage.operations.notifications.audit_periods import moment, running

VERSIONED_ONLY = frozenset(
    {
        "lock",
        "unlock",
        "interface_attach",
        "interface_detach",
        "trigger_crash_dump",
        "volume_swap",
    }
)
"""Actions that Nova notifies only in its newer format."""

ENDS_ONLY = {"volume_attach": "volume.attach", "volume_detach": "volume.detach"}
"""Actions that Nova notifies in this format only when they are done, with one event."""
WITH_ADDRESSES = frozenset(
    {
        "create.end",
        "rebuild.end",
        "resize_confirm.end",
        *(
            f"{action}.{phase}"
            for action in (
                "rescue",
                "unrescue",
                "resize",
                "resize_finish",
                "live_migration_pre",
                "live_migration_post",
                "live_migration_post_dest",
                "live_migration_rollback_dest",
            )
            for phase in ("start", "end")
        ),
    }
)
"""Events that have `fixed_ips`."""

OLDER_WORDS = {
    "rebuild_scheduled": "rebuild.scheduled",
    "resize_prep": "resize.prep",
    "resize_finish": "finish_resize",
    "resize_confirm": "resize.confirm",
    "resize_revert": "resize.revert",
    "live_migration_pre": "live_migration.pre",
    "live_migration_post": "live_migration._post",
    "live_migration_post_dest": "live_migration.post.dest",
    "live_migration_rollback": "live_migration._rollback",
    "live_migration_rollback_dest": "live_migration.rollback.dest",
    "live_migration_abort": "live.migration.abort",
    "live_migration_force_complete": "live.migration.force.complete",
}
"""Event, or action of an event → its name in this format."""


def event_type(notification: Notification) -> str | None:
    """The event type; None when Nova has no such event in this format."""
    action = notification.event.partition(".")[0]
    if action in VERSIONED_ONLY:
        return None
    _, dot, phase = notification.event.partition(".")
    if action in ENDS_ONLY:
        return f"compute.instance.{ENDS_ONLY[action]}" if phase == "end" else None
    word = OLDER_WORDS.get(notification.event) or OLDER_WORDS.get(action, action) + dot + phase
    return f"compute.instance.{word}"


def publisher_id(notification: Notification) -> str:
    """The publisher id. As in Nova, the API sends deletes as `compute` and tags as `nova-api`; the conductor sends a
    rebuild as `compute` on its own host.
    """
    service: str = notification.service
    if notification.event == "rebuild_scheduled":
        return f"compute.{notification.told_by or notification.host}"
    if service == "api":
        service = "nova-api" if notification.event == "update" else "compute"
    return f"{service}.{notification.host}"


def payload(notification: Notification, image_url: str) -> dict[str, Any]:
    """The payload. `image_url`: base URL of the image service; the payload has the URL of the server's image."""
    server = notification.server
    body = _server(server, image_url)
    if notification.event in ("create.start", "rebuild.start", "rebuild.end"):
        body["image_name"] = server.image_name
    if notification.event == "create.end":
        body["message"] = "Success"
    if notification.event in WITH_ADDRESSES:
        body["fixed_ips"] = _fixed_ips(server)
    if notification.volume is not None:
        body["volume_id"] = notification.volume
    if notification.event == "resize_prep.end" and notification.new_flavor is not None:
        body |= {
            "new_instance_type": notification.new_flavor.name,
            "new_instance_type_id": notification.new_flavor.number,
        }
    if notification.trouble is not None:
        message = notification.trouble.message
        body |= {"exception": {"message": message, "kwargs": {"code": 500}}, "message": message, "code": 500}
    if notification.update is not None:
        body |= _states(notification)
    if notification.period is not None and notification.update is None:
        begins, ends = notification.period
        body |= {"audit_period_beginning": bare(begins), "audit_period_ending": bare(ends)}
    return body


def _server(server: Server, image_url: str) -> dict[str, Any]:
    flavor = server.flavor
    return {
        "tenant_id": server.project,
        "user_id": server.user,
        "instance_id": server.id,
        "display_name": server.name,
        "reservation_id": server.reservation_id,
        "hostname": server.hostname,
        "instance_type": flavor.name,
        "instance_type_id": flavor.number,
        "instance_flavor_id": flavor.id,
        "architecture": server.image_properties.get("architecture"),
        "memory_mb": flavor.ram_mib,
        "disk_gb": flavor.disk_gib + flavor.ephemeral_gib,
        "vcpus": flavor.vcpus,
        "root_gb": flavor.disk_gib,
        "ephemeral_gb": flavor.ephemeral_gib,
        "host": server.host,
        "node": server.node,
        "availability_zone": server.availability_zone,
        "cell_name": "",
        "created_at": spoken(server.created_at),
        "terminated_at": written(server.terminated_at),
        "deleted_at": written(server.deleted_at),
        "launched_at": written(server.launched_at),
        "image_ref_url": f"{image_url}/images/{server.image or ''}",
        "os_type": server.image_properties.get("os_type"),
        "kernel_id": server.kernel_id,
        "ramdisk_id": server.ramdisk_id,
        "state": server.vm_state.value,
        "state_description": "" if server.task_state is None else server.task_state.value,
        "progress": "",
        "access_ip_v4": server.access_ip_v4,
        "access_ip_v6": server.access_ip_v6,
        "image_meta": {**server.image_properties, "base_image_ref": server.image or ""},
        "metadata": dict(server.metadata),
    }


def _fixed_ips(server: Server) -> list[dict[str, Any]]:
    return [
        {
            "address": each.address,
            "type": "fixed",
            "version": each.version,
            "meta": {},
            "floating_ips": [],
            "label": nic.network_name,
            "vif_mac": nic.mac,
        }
        for nic in server.nics
        for each in nic.addresses
    ]


def _states(notification: Notification) -> dict[str, Any]:
    """A state without a recorded change is the current one."""
    server, update = notification.server, notification.update
    assert update is not None
    task = None if server.task_state is None else server.task_state.value
    begins, ends = notification.period or running(notification.at, "month")
    states: dict[str, Any] = {
        "old_state": update.old_state or server.vm_state.value,
        "state": server.vm_state.value,
        "old_task_state": task if update.old_state is None else update.old_task_state,
        "new_task_state": task,
        "audit_period_beginning": written(begins),
        "audit_period_ending": written(ends),
    }
    if update.old_name is not None:
        states["old_display_name"] = update.old_name
    return states


# ----------------------------------------------------------------------------------------------------------- times

ISO = "%Y-%m-%dT%H:%M:%S.%f"


def written(at_us: int | None) -> str:
    return "" if at_us is None else moment(at_us).strftime(ISO)


def spoken(at_us: int) -> str:
    """The form of Nova's `created_at` only: with a space, and with the zone."""
    return str(moment(at_us))


def bare(at_us: int) -> str:
    """The form of an audit's bounds in `exists`: with a space, without a zone."""
    return str(moment(at_us).replace(tzinfo=None))
