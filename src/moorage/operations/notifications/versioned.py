"""Nova's versioned payloads of `instance.*`, each object with its name and version (Nova 34's)."""

from typing import Any

from moorage.model.errors import Problem
from moorage.model.notification import Notification, Trouble
from moorage.model.server import ApiPowerState, BlockDevice, FlavorCopy, Server
from moorage.operations.notifications.audit_periods import moment, running
from moorage.operations.records.keypairs import fingerprint

POWER_STATES: dict[int, str] = {
    ApiPowerState.NOSTATE: "pending",
    ApiPowerState.RUNNING: "running",
    ApiPowerState.PAUSED: "paused",
    ApiPowerState.SHUTDOWN: "shutdown",
    ApiPowerState.CRASHED: "crashed",
    ApiPowerState.SUSPENDED: "suspended",
}
PAYLOADS: dict[str, tuple[str, str]] = {
    "create": ("InstanceCreatePayload", "1.13"),
    "update": ("InstanceUpdatePayload", "2.1"),
    "exists": ("InstanceExistsPayload", "2.1"),
    "rebuild": ("InstanceActionRebuildPayload", "1.10"),
    "rebuild_scheduled": ("InstanceActionRebuildPayload", "1.10"),
    "resize_prep": ("InstanceActionResizePrepPayload", "1.4"),
    "rescue": ("InstanceActionRescuePayload", "1.4"),
    "snapshot": ("InstanceActionSnapshotPayload", "1.10"),
    "volume_attach": ("InstanceActionVolumePayload", "1.7"),
    "volume_detach": ("InstanceActionVolumePayload", "1.7"),
    "volume_swap": ("InstanceActionVolumeSwapPayload", "1.9"),
}
"""By action; every other action has `InstanceActionPayload`."""
ACTION_PAYLOAD = ("InstanceActionPayload", "1.9")
DEVICE_NAME_CHARACTERS = 14


SENT_AT_ONCE = frozenset({
    "create", "delete", "shutdown", "reboot", "resume", "rebuild", "resize", "resize_finish", "resize_revert",
    "shelve", "shelve_offload", "unshelve", "live_migration_pre", "live_migration_rollback",
})  # fmt: skip
"""Nova's hosts have the block devices in memory for these: they list them, whatever `bdms_in_notifications` is."""
WITHOUT_THEM = frozenset({"resize.error"})


def event_type(notification: Notification) -> str:
    return f"instance.{notification.event}"


def publisher_id(notification: Notification) -> str:
    return f"nova-{notification.service}:{notification.host}"


def payload(notification: Notification, *, bdms: bool = False) -> dict[str, Any]:
    """One versioned object, with others inside. `bdms`: block devices are always listed."""
    server, action = notification.server, notification.event.partition(".")[0]
    data = _server(notification)
    if bdms or _has_block_devices(notification):
        data["block_devices"] = [_block_device(each) for each in server.volumes]
    if action == "create":
        data |= {
            "keypairs": _keypairs(server),
            "tags": list(server.tags),
            "trusted_image_certificates": list(server.trusted_certs) or None,
            "instance_name": f"guest-{server.id}",
        }
    if action in ("rebuild", "rebuild_scheduled"):
        data["trusted_image_certificates"] = list(server.trusted_certs) or None
    if action == "rescue":
        data["rescue_image_ref"] = None if server.rescue is None else server.rescue.image
    if action in ("update", "exists"):
        data["audit_period"] = _audit_period(*(notification.period or running(notification.at, "month")))
    if action == "update":
        data |= _update(notification)
    if action == "snapshot":
        data["snapshot_image_id"] = notification.snapshot_image
    if action not in ("update", "exists"):
        data["fault"] = None if notification.trouble is None else _fault(notification.trouble)
    if notification.new_flavor is not None:
        data["new_flavor"] = _flavor(notification.new_flavor)
    if action == "volume_swap":
        data |= {"old_volume_id": notification.volume, "new_volume_id": notification.new_volume}
    elif notification.volume is not None:
        data["volume_id"] = notification.volume
    return _object(*PAYLOADS.get(action, ACTION_PAYLOAD), data)


def _object(name: str, version: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }


def _server(notification: Notification) -> dict[str, Any]:
    server = notification.server
    return {
        "uuid": server.id,
        "user_id": server.user,
        "tenant_id": server.project,
        "reservation_id": server.reservation_id,
        "display_name": server.name,
        "display_description": server.description,
        "host_name": server.hostname,
        "host": server.host,
        "node": server.node,
        "os_type": server.image_properties.get("os_type"),
        "architecture": server.image_properties.get("architecture"),
        "availability_zone": server.availability_zone,
        "flavor": _flavor(server.flavor),
        "image_uuid": server.image or "",
        "key_name": server.key_name,
        "kernel_id": server.kernel_id,
        "ramdisk_id": server.ramdisk_id,
        "created_at": _time(server.created_at),
        "launched_at": _time(server.launched_at),
        "terminated_at": _time(server.terminated_at),
        "deleted_at": _time(server.deleted_at),
        "updated_at": _time(server.updated_at),
        "state": server.vm_state.value,
        "power_state": POWER_STATES.get(server.power_state, "pending"),
        "task_state": None if server.task_state is None else server.task_state.value,
        "progress": 0,
        "ip_addresses": _ip_addresses(server),
        "block_devices": None,
        "metadata": dict(server.metadata),
        "locked": server.locked,
        "auto_disk_config": server.disk_config,
        "request_id": notification.request_id or None,
        "action_initiator_user": notification.user or None,
        "action_initiator_project": notification.project or None,
        "locked_reason": server.locked_reason,
        "shares": None,
    }


def _has_block_devices(notification: Notification) -> bool:
    event = notification.event
    return notification.service == "compute" and event.partition(".")[0] in SENT_AT_ONCE and event not in WITHOUT_THEM


def _block_device(device: BlockDevice) -> dict[str, Any]:
    return _object(
        "BlockDevicePayload",
        "1.0",
        {
            "device_name": device.device,
            "boot_index": device.boot_index,
            "delete_on_termination": device.delete_on_termination,
            "volume_id": device.volume,
            "tag": device.tag,
        },
    )


def _flavor(flavor: FlavorCopy) -> dict[str, Any]:
    """`disabled` and `vcpu_weight` are columns of Nova that no API call sets on a flavor that may be booted."""
    return _object(
        "FlavorPayload",
        "1.4",
        {
            "flavorid": flavor.id,
            "memory_mb": flavor.ram_mib,
            "vcpus": flavor.vcpus,
            "root_gb": flavor.disk_gib,
            "ephemeral_gb": flavor.ephemeral_gib,
            "name": flavor.name,
            "swap": flavor.swap_mib,
            "rxtx_factor": flavor.rxtx_factor,
            "vcpu_weight": 0,
            "disabled": False,
            "is_public": flavor.is_public,
            "extra_specs": dict(flavor.extra_specs),
            "projects": None,
            "description": flavor.description,
        },
    )


def _ip_addresses(server: Server) -> list[dict[str, Any]]:
    return [
        _object(
            "IpPayload",
            "1.0",
            {
                "label": nic.network_name,
                "mac": nic.mac,
                "meta": {},
                "port_uuid": nic.port,
                "version": each.version,
                "address": each.address,
                "device_name": None if nic.port is None else f"tap{nic.port}"[:DEVICE_NAME_CHARACTERS],
            },
        )
        for nic in server.nics
        for each in nic.addresses
    ]


def _keypairs(server: Server) -> list[dict[str, Any]]:
    if server.key_name is None or not server.public_key:
        return []
    kind: Any = "x509" if server.public_key.startswith("-----BEGIN CERTIFICATE") else "ssh"
    try:
        print_of_key = fingerprint(server.public_key, kind)
    except Problem:
        print_of_key = ""  # stored by an older release, and not readable by this one
    return [
        _object(
            "KeypairPayload",
            "1.0",
            {
                "user_id": server.user,
                "name": server.key_name,
                "fingerprint": print_of_key,
                "public_key": server.public_key,
                "type": kind,
            },
        )
    ]


def _fault(trouble: Trouble) -> dict[str, Any]:
    """The place is the step's name; the trace stays in the journal, because it may hold private data."""
    return _object(
        "ExceptionPayload",
        "1.1",
        {
            "module_name": f"moorage.operations.{trouble.saga}",
            "function_name": trouble.step,
            "exception": trouble.kind,
            "exception_message": trouble.message,
            "traceback": "",
        },
    )


def _audit_period(begins: int, ends: int) -> dict[str, Any]:
    return _object(
        "AuditPeriodPayload",
        "1.0",
        {"audit_period_beginning": _time(begins), "audit_period_ending": _time(ends)},
    )


def _update(notification: Notification) -> dict[str, Any]:
    server, update = notification.server, notification.update
    assert update is not None
    task = None if server.task_state is None else server.task_state.value
    return {
        "state_update": _object(
            "InstanceStateUpdatePayload",
            "1.0",
            {
                "old_state": update.old_state or server.vm_state.value,
                "state": server.vm_state.value,
                "old_task_state": task if update.old_state is None else update.old_task_state,
                "new_task_state": task,
            },
        ),
        "old_display_name": update.old_name,
        "tags": list(server.tags),
    }


ISO_Z = "%Y-%m-%dT%H:%M:%SZ"


def _time(at_us: int | None) -> str | None:
    return None if at_us is None else moment(at_us).strftime(ISO_Z)
