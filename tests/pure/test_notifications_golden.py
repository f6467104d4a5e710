"""Notifications of servers, exactly: one server in every event, both formats, and the envelope.

`MOORAGE_BLESS=1 pytest tests/pure/test_notifications_golden.py` writes them anew; read the diff, others depend on it.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.model.ids import FlavorId, ImageId, NetworkId, PortId, ServerId
from moorage.model.notification import Notification, StateUpdate, Trouble, without_secrets
from moorage.model.server import Address, ApiPowerState, BlockDevice, FlavorCopy, Nic, Server, TaskState, VmState
from moorage.operations.notifications.audit_periods import last_completed, moment, running
from moorage.operations.notifications.messages import Wording, messages_of

GOLDEN = Path(__file__).parent.parent / "golden" / "notifications"
AT = 1_793_268_000_123_456
SECRET = "c2VjcmV0LWNhbmFyeQ=="
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl somebody"
TROUBLE = Trouble("HostFailed", "the host could not make the guest", "start_guest", "boot")

SERVER = Server(
    id=ServerId("0d0c0b0a-0000-4000-8000-000000000001"),
    project="6f70656e737461636b20342065766572",
    user="fake",
    name="some-server",
    hostname="some-server",
    description="a server",
    created_at=AT - 5_000_000,
    updated_at=AT,
    launched_at=AT,
    flavor=FlavorCopy(FlavorId("a22d5517"), "m1.tiny", 1, 512, 1, 2, extra_specs={"hw:a": "b"}, number=7),
    vm_state=VmState.ACTIVE,
    task_state=None,
    power_state=ApiPowerState.RUNNING,
    image=ImageId("155d900f-4e14-4e4c-a73d-069cbf4541e6"),
    image_name="tiny",
    image_properties={"os_type": "linux", "architecture": "x86_64", "org.openstack__1__os_distro": "org.debian"},
    key_name="my-key",
    public_key=PUBLIC_KEY,
    metadata={"purpose": "golden"},
    tags=("tag",),
    user_data=SECRET,
    nics=(
        Nic(
            0,
            NetworkId("3cb9bc59-5699-4588-a4b1-b87f96708bc6"),
            "private",
            PortId("ce531f90-199f-48c0-816c-13e38010b442"),
            "fa:16:3e:4c:2c:30",
            addresses=(Address("subnet", "192.168.1.3"), Address("subnet6", "fd00::3", 6)),
        ),
    ),
    host="host1",
    node="host1.example",
    availability_zone="nova",
    reservation_id="r-npxv0e40",
)


def replaced(**fields: Any) -> Server:
    return msgspec.structs.replace(SERVER, **fields)


BUILDING = replaced(
    vm_state=VmState.BUILDING, power_state=0, launched_at=None, updated_at=None, host=None, node=None, nics=()
)
GONE = replaced(vm_state=VmState.DELETED, power_state=0, deleted_at=AT, terminated_at=AT, nics=())
NOWHERE = replaced(vm_state=VmState.ERROR, power_state=0, launched_at=None, host=None, node=None, nics=())


BACKED = replaced(
    block_devices=(
        BlockDevice(
            "image", "volume", 0, device="/dev/vda", delete_on_termination=True, volume="a07f71dc-8151-4e7d-a0cc-cd24a3f11113", bdm="bdm1",
        ),
        BlockDevice("blank", "local", -1, device="/dev/vdb", guest_format="swap", bdm="bdm2"),
        BlockDevice(
            "volume", "volume", device="/dev/vdc", tag="data", volume="227cc671-f30b-4488-96fd-7d0bf13648d8", bdm="bdm3",
            attachment="secret-attachment",
        ),
    )
)  # fmt: skip


def a_notification(event: str, server: Server, **also: Any) -> Notification:
    facts: dict[str, Any] = {"host": "host1", "request_id": "req-5b6c791d", "user": "fake", "project": "admins", **also}
    return Notification(id=f"operation-1/1/{event}", event=event, at=AT, server=without_secrets(server), **facts)


CASES: dict[str, Notification] = {
    "create.start": a_notification("create.start", BUILDING),
    "create.end": a_notification("create.end", SERVER),
    "create.error": a_notification("create.error", BUILDING, trouble=TROUBLE),
    "create.error-by-conductor": a_notification(
        "create.error", BUILDING, service="conductor", host="rack1", trouble=TROUBLE
    ),
    "delete.start": a_notification("delete.start", replaced(task_state=TaskState.DELETING)),
    "delete.end": a_notification("delete.end", GONE),
    "delete.start-not-scheduled": a_notification("delete.start", NOWHERE, service="api", host="rack1"),
    "power_off.end": a_notification(
        "power_off.end", replaced(vm_state=VmState.STOPPED, power_state=ApiPowerState.SHUTDOWN)
    ),
    "reboot.error": a_notification("reboot.error", replaced(task_state=TaskState.REBOOTING), trouble=TROUBLE),
    "lock": a_notification("lock", replaced(locked=True, locked_reason="global warming"), service="api", host="rack1"),
    "interface_attach.end": a_notification("interface_attach.end", SERVER),
    "volume_attach.end": a_notification("volume_attach.end", SERVER, volume="a07f71dc-8151-4e7d-a0cc-cd24a3f11113"),
    "volume_attach.start": a_notification("volume_attach.start", SERVER, volume="a07f71dc-8151-4e7d-a0cc-cd24a3f11113"),
    "volume_swap.end": a_notification(
        "volume_swap.end",
        SERVER,
        volume="a07f71dc-8151-4e7d-a0cc-cd24a3f11113",
        new_volume="227cc671-f30b-4488-96fd-7d0bf13648d8",
    ),
    "update": a_notification("update", replaced(task_state=TaskState.POWERING_OFF), update=StateUpdate("active", None)),
    "update-from-nothing": a_notification("update", BUILDING, service="conductor", host="rack1", update=StateUpdate()),
    "update-name": a_notification("update", SERVER, update=StateUpdate("active", None, "old-name")),
    "exists": a_notification("exists", SERVER, request_id="", user="", project="", period=(AT - 3_600_000_000, AT)),
    "snapshot.start": a_notification(
        "snapshot.start",
        replaced(task_state=TaskState.IMAGE_SNAPSHOT),
        snapshot_image="d2aae36f-785c-4518-8016-bc9534d9fc7f",
    ),
    "snapshot.end": a_notification("snapshot.end", SERVER, snapshot_image="d2aae36f-785c-4518-8016-bc9534d9fc7f"),
    "reboot.end-with-volumes": a_notification("reboot.end", BACKED),
    "pause.end-with-volumes": a_notification("pause.end", BACKED),
    "update-tags": a_notification("update", SERVER, service="api", host="rack1", update=StateUpdate("active", None)),
}
WORDING = Wording("both", image_url="http://image.example")


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """The envelope that goes over the wire, read back for people."""
    seen = []
    for message in messages_of(CASES[name], WORDING):
        envelope = json.loads(message.envelope())
        inner = json.loads(envelope.pop("oslo.message"))
        seen.append({"queue": f"{message.topic}.{message.priority}", **envelope, "oslo.message": inner})
        assert SECRET not in message.envelope().decode()
    file = GOLDEN / f"{name}.json"
    if os.environ.get("MOORAGE_BLESS"):
        file.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    assert seen == json.loads(file.read_text())


def test_no_golden_notification_was_forgotten() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CASES)


@pytest.mark.parametrize(
    ("event", "service", "off", "on"),
    [
        ("reboot.end", "compute", 2, 2),
        ("pause.end", "compute", None, 2),
        ("exists", "compute", None, 2),
        ("resize.end", "compute", 2, 2),
        ("resize.error", "compute", None, 2),
        ("delete.end", "compute", 2, 2),
        ("delete.end", "api", None, 2),
        ("live_migration_rollback.start", "compute", 2, 2),
        ("live_migration_rollback_dest.start", "compute", None, 2),
    ],
)
def test_volume_notifications_are_the_ones_nova_sends(event: str, service: str, off: int | None, on: int) -> None:
    """Nova's senders that have the block devices at hand tell them whatever `bdms_in_notifications` is."""
    for bdms, wanted in ((False, off), (True, on)):
        (message,) = messages_of(a_notification(event, BACKED, service=service), Wording("versioned", bdms=bdms))
        devices = message.body["payload"]["nova_object.data"]["block_devices"]
        assert (None if devices is None else len(devices)) == wanted
        assert "secret-attachment" not in message.envelope().decode()


def test_each_format_uses_its_own_topics() -> None:
    def queues(format: Any) -> list[str]:
        wording = Wording(format, ("notifications", "for-ceilometer"), ("versioned_notifications",))
        return [f"{each.topic}.{each.priority}" for each in messages_of(CASES["create.error"], wording)]

    assert queues("unversioned") == ["notifications.error", "for-ceilometer.error"]
    assert queues("versioned") == ["versioned_notifications.error"]
    assert queues("both") == ["notifications.error", "for-ceilometer.error", "versioned_notifications.error"]


@pytest.mark.parametrize("name", ["lock", "interface_attach.end", "volume_attach.start", "volume_swap.end"])
def test_notifications_that_nova_sends_in_one_format_only(name: str) -> None:
    assert [each.topic for each in messages_of(CASES[name], WORDING)] == ["versioned_notifications"]


def test_a_message_keeps_its_id_when_sent_again() -> None:
    first, second = (
        {each.topic: each.body["message_id"] for each in messages_of(CASES["create.end"], WORDING)} for _ in range(2)
    )
    assert first == second
    assert len(set(first.values())) == 2, "one id per message, not per event"


def test_stored_notifications_are_read_again() -> None:
    for each in CASES.values():
        assert msgspec.json.decode(msgspec.json.encode(each), type=Notification) == each


SAMPLES = ("nova_object.name", "nova_object.namespace", "nova_object.version", "nova_object.data")


def objects_in(part: Any) -> list[dict[str, Any]]:
    """Every versioned object inside, this one first."""
    if isinstance(part, list):
        return [each for item in part for each in objects_in(item)]
    if not isinstance(part, dict):
        return []
    own = [part] if "nova_object.name" in part else []
    return own + [each for value in part.values() for each in objects_in(value)]


NOVA_34: dict[str, tuple[str, set[str]]] = {
    "FlavorPayload": (
        "1.4",
        {
            "flavorid", "memory_mb", "vcpus", "root_gb", "ephemeral_gb", "name", "swap", "rxtx_factor", "vcpu_weight",
            "disabled", "is_public", "extra_specs", "projects", "description",
        },
    ),
    "BlockDevicePayload": ("1.0", {"device_name", "boot_index", "delete_on_termination", "volume_id", "tag"}),
    "IpPayload": ("1.0", {"label", "mac", "meta", "port_uuid", "version", "address", "device_name"}),
    "KeypairPayload": ("1.0", {"user_id", "name", "fingerprint", "public_key", "type"}),
    "ExceptionPayload": ("1.1", {"module_name", "function_name", "exception", "exception_message", "traceback"}),
    "AuditPeriodPayload": ("1.0", {"audit_period_beginning", "audit_period_ending"}),
    "InstanceStateUpdatePayload": ("1.0", {"old_state", "state", "old_task_state", "new_task_state"}),
}  # fmt: skip
INSTANCE = {
    "uuid", "user_id", "tenant_id", "reservation_id", "display_name", "display_description", "host_name", "host", "node",
    "os_type", "architecture", "availability_zone", "flavor", "image_uuid", "key_name", "kernel_id", "ramdisk_id",
    "created_at", "launched_at", "terminated_at", "deleted_at", "updated_at", "state", "power_state", "task_state",
    "progress", "ip_addresses", "block_devices", "metadata", "locked", "auto_disk_config", "request_id",
    "action_initiator_user", "action_initiator_project", "locked_reason", "shares",
}  # fmt: skip
NOVA_34 |= {
    "InstanceActionPayload": ("1.9", INSTANCE | {"fault"}),
    "InstanceActionSnapshotPayload": ("1.10", INSTANCE | {"fault", "snapshot_image_id"}),
    "InstanceActionVolumePayload": ("1.7", INSTANCE | {"fault", "volume_id"}),
    "InstanceActionVolumeSwapPayload": ("1.9", INSTANCE | {"fault", "old_volume_id", "new_volume_id"}),
    "InstanceCreatePayload": (
        "1.13",
        INSTANCE | {"fault", "keypairs", "tags", "trusted_image_certificates", "instance_name"},
    ),
    "InstanceExistsPayload": ("2.1", INSTANCE | {"audit_period"}),
    "InstanceUpdatePayload": ("2.1", INSTANCE | {"state_update", "audit_period", "old_display_name", "tags"}),
}


@pytest.mark.parametrize("name", CASES)
def test_versioned_objects_have_the_fields_of_their_version(name: str) -> None:
    """Read off Nova 34's notification samples: names, versions and fields, none more and none less."""
    body = next(each.body for each in messages_of(CASES[name], WORDING) if each.topic == "versioned_notifications")
    found = objects_in(body["payload"])
    assert found
    for each in found:
        version, fields = NOVA_34[each["nova_object.name"]]
        assert (each["nova_object.namespace"], each["nova_object.version"]) == ("nova", version)
        assert set(each["nova_object.data"]) == fields


CEILOMETER_TRAITS = (
    "tenant_id", "user_id", "instance_id", "display_name", "cell_name", "memory_mb", "disk_gb", "root_gb", "ephemeral_gb",
    "vcpus", "instance_type_id", "instance_flavor_id", "instance_type", "state", "launched_at", "deleted_at", "image_meta",
    "availability_zone", "metadata", "host", "created_at",
)  # fmt: skip


ONE_FORMAT_ONLY = ("lock", "interface_attach.end", "volume_attach.start", "volume_swap.end")


@pytest.mark.parametrize("name", [name for name in CASES if name not in ONE_FORMAT_ONLY])
def test_ceilometer_finds_the_fields_it_reads(name: str) -> None:
    """The fields of its event definitions and meters (Ceilometer 27)."""
    body = messages_of(CASES[name], WORDING)[0].body
    payload = body["payload"]
    assert [each for each in CEILOMETER_TRAITS if each not in payload] == []
    assert "base_image_ref" in payload["image_meta"]
    service, host = body["publisher_id"].split(".", 1)
    assert (bool(service), bool(host)) == (True, True)
    if body["event_type"] == "compute.instance.update":
        assert "old_state" in payload
    if body["event_type"] in ("compute.instance.update", "compute.instance.exists"):
        assert {"audit_period_beginning", "audit_period_ending"} <= payload.keys()


@pytest.mark.parametrize(
    ("unit", "began", "ended"),
    [
        ("hour", "2026-10-29T09:00:00Z", "2026-10-29T10:00:00Z"),
        ("day", "2026-10-28T00:00:00Z", "2026-10-29T00:00:00Z"),
        ("month", "2026-09-01T00:00:00Z", "2026-10-01T00:00:00Z"),
        ("year", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    ],
)
def test_the_last_complete_period(unit: Any, began: str, ended: str) -> None:
    assert [f"{moment(at):%Y-%m-%dT%H:%M:%SZ}" for at in last_completed(AT, unit)] == [began, ended]
    assert running(AT, unit) == (last_completed(AT, unit)[1], AT)
