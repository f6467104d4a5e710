"""The change of every microversion for servers, as clients see it: the same calls just below it and at it (golden files)."""

import json
import os
import pkgutil
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from moorage.api import version_changes
from moorage.model.action import Action, ActionEvent
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import BlockDevice, VmState
from moorage.store.cell import actions as cell_actions
from moorage.store.cell import migrations as cell_migrations
from moorage_testing.compute_app import ADMIN, MEMBER
from moorage_testing.fake_server_service import IMAGE, NETWORK, a_migration, a_server

GOLDEN = Path(__file__).parents[1] / "golden" / "exchanges"
ID = a_server().id
GONE = a_server(2).id
ME = f"/servers/{ID}"
VOLUMES = f"{ME}/os-volume_attachments"
VOLUME = "7d2f3f3e-4d6f-4a07-9dd1-3f1e8f7a2f60"
PORT = a_server().nics[0].port
NEW = {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": [{"uuid": NETWORK}]}
ROOT = {"source_type": "image", "uuid": IMAGE, "boot_index": 0}
ONE = f"{ME}/os-instance-actions/req-1"


def made(**fields: Any) -> tuple[str, str, Any]:
    return "POST", "/servers", {"server": {**NEW, **fields}}


def put(**fields: Any) -> tuple[str, str, Any]:
    return "PUT", ME, {"server": fields}


def did(body: Any) -> tuple[str, str, Any]:
    return "POST", f"{ME}/action", body


def external_event(name: str) -> tuple[str, str, Any]:
    return "POST", "/os-server-external-events", {"events": [{"name": name, "server_uuid": ID, "tag": "x"}]}


def plugged(**fields: Any) -> tuple[str, str, Any]:
    return "POST", f"{ME}/os-interface", {"interfaceAttachment": {"net_id": NETWORK, **fields}}


def with_volume(**fields: Any) -> tuple[str, str, Any]:
    return "POST", VOLUMES, {"volumeAttachment": {"volumeId": VOLUME, **fields}}


def got(path: str) -> tuple[str, str, Any]:
    return "GET", path, None


def asked_console(protocol: str, kind: str) -> tuple[str, str, Any]:
    return "POST", f"{ME}/remote-consoles", {"remote_console": {"protocol": protocol, "type": kind}}


def live(**fields: Any) -> tuple[str, str, Any]:
    return did({"os-migrateLive": {"host": "host2", **fields}})


SEEN = (got(ME), got("/servers/detail?all_tenants=1"))
EXCHANGES: dict[int, tuple[tuple[str, str, Any], ...]] = {
    3: SEEN,
    5: (got("/servers?ip6=fd00"),),
    6: (did({"os-getVNCConsole": {"type": "novnc"}}), ("POST", f"{ME}/remote-consoles", {"remote_console": {}})),
    8: (asked_console("mks", "webmks"),),
    9: SEEN,
    14: (
        did({"evacuate": {"onSharedStorage": False, "adminPass": "x"}}),
        did({"evacuate": {"adminPass": "x"}}),
    ),
    16: SEEN,
    17: (did({"trigger_crash_dump": None}),),
    19: (*SEEN, made(description="x"), put(description="x")),
    21: (got(f"/servers/{GONE}/os-instance-actions"),),
    22: (("POST", f"{ME}/migrations/1/action", {"force_complete": None}),),
    23: (got(f"{ME}/migrations"), got(f"{ME}/migrations/1"), got(f"{ME}/migrations/2"), got("/os-migrations")),
    24: (("DELETE", f"{ME}/migrations/1", None),),
    25: (live(block_migration="auto"), live(block_migration=True, disk_over_commit=False), live(block_migration=True)),
    26: (got(ME), got("/servers/detail"), got(f"{ME}/tags"), got("/servers?tags=none")),
    30: (live(block_migration=False, force=True), live(block_migration=False)),
    29: (did({"evacuate": {"host": "host2", "force": True}}), did({"evacuate": {"host": "host2"}})),
    31: (got("/os-console-auth-tokens/novnc"),),
    32: (made(networks=[{"uuid": NETWORK, "tag": "t"}]), made(block_device_mapping_v2=[{**ROOT, "tag": "t"}])),
    33: (made(block_device_mapping_v2=[{**ROOT, "tag": "t"}]),),
    37: (
        ("POST", "/servers", {"server": {key: value for key, value in NEW.items() if key != "networks"}}),
        made(networks="auto"),
        made(networks="none"),
        made(networks=[{"uuid": NETWORK, "tag": "t"}]),
    ),
    38: (got("/servers?status=nonsense"),),
    42: (made(networks=[{"uuid": NETWORK, "tag": "t"}]), made(block_device_mapping_v2=[{**ROOT, "tag": "t"}])),
    44: (did({"addFixedIp": {"networkId": NETWORK}}), did({"removeFloatingIp": {"address": "10.0.0.1"}})),
    45: (
        did({"createImage": {"name": "x"}}),
        did({"createBackup": {"name": "x", "backup_type": "daily", "rotation": 1}}),
    ),
    47: SEEN,
    48: (got(f"{ME}/diagnostics"),),
    49: (plugged(tag="eth1"), plugged(), with_volume(tag="data")),
    51: (got(ONE), external_event("volume-extended")),
    52: (made(tags=["a"]),),
    54: (did({"rebuild": {"imageRef": IMAGE, "key_name": None}}), did({"rebuild": {"imageRef": IMAGE}})),
    56: (did({"migrate": {"zone": "nova"}}), did({"migrate": None})),
    57: (made(personality=[]), made(personality=[{"path": "/etc/motd", "contents": "aGVsbG8="}])),
    58: (got(f"{ME}/os-instance-actions?limit=1"), got(ONE), got(f"{ME}/os-instance-actions?odd=1")),
    59: (
        got(f"{ME}/migrations"),
        got(f"{ME}/migrations/1"),
        got("/os-migrations"),
        got("/os-migrations?limit=1"),
        got("/os-migrations?wings=2"),
    ),
    62: (got(ONE),),
    63: (*SEEN, made(trusted_image_certificates=["c"])),
    67: (made(block_device_mapping_v2=[{**ROOT, "volume_type": "fast"}]),),
    68: (
        did({"evacuate": {"host": "host2", "force": True}}),
        did({"evacuate": {"host": "host2"}}),
        live(block_migration=False, force=True),
        live(block_migration=False, force=False),
        live(block_migration=False),
    ),
    70: (got(f"{ME}/os-interface"), got(f"{ME}/os-interface/{PORT}"), plugged(), got(VOLUMES)),
    71: SEEN,
    73: (*SEEN, did({"lock": {"locked_reason": "upgrade"}}), got("/servers?locked=true&all_tenants=1")),
    74: (made(host="host1"), made(hypervisor_hostname="host1")),
    75: (put(name="new"), got("/servers?nonsense=1")),
    76: (external_event("power-update"),),
    77: (did({"unshelve": {"zone": "nova"}}), did({"unshelve": None})),
    78: (got(f"{ME}/topology"),),
    79: (got(VOLUMES), got(f"{VOLUMES}/{VOLUME}"), with_volume(delete_on_termination=True)),
    80: (
        got(f"{ME}/migrations"),
        got(f"{ME}/migrations/1"),
        got("/os-migrations"),
        got("/os-migrations?user_id=nobody"),
    ),
    82: (external_event("accelerator-request-bound"),),
    83: (got("/servers?key_name=none"),),
    84: (got(ONE),),
    85: (
        ("PUT", f"{VOLUMES}/{VOLUME}", {"volumeAttachment": {"volumeId": VOLUME, "delete_on_termination": False}}),
        got(VOLUMES),
    ),
    89: (got(VOLUMES), got(f"{VOLUMES}/{VOLUME}")),
    90: (got(ME), made(hostname="web"), put(hostname="web")),
    91: (
        did({"unshelve": {"host": "host1"}}),
        did({"unshelve": {"availability_zone": None}}),
        did({"unshelve": {}}),
    ),
    93: (external_event("volume-reimaged"),),
    94: (made(hostname="web.example.org"), put(hostname="web.example.org")),
    96: SEEN,
    97: (got(f"{ME}/shares"), got(f"{ME}/shares/{VOLUME}"), ("POST", f"{ME}/shares", {"share": {"share_id": VOLUME}})),
    98: SEEN,
    99: (
        asked_console("spice", "spice-direct"),
        got("/os-console-auth-tokens/spice-direct"),
        got("/os-console-auth-tokens/novnc"),
        got("/os-console-auth-tokens/novnc?odd=1"),
        got("/os-console-auth-tokens/nothing"),
    ),
    100: SEEN,
    104: (
        put(pinned_availability_zone=None),
        put(pinned_availability_zone="nova"),
        put(pinned_availability_zone="other"),
    ),
}
AS_MEMBER = {5, 26, 51, 83, 90}
PROVED_ELSEWHERE = {
    69: "test_servers_of_an_unreachable_cell",
    20: "test_a_shelved_servers_volumes_from_2_20",
    34: "test_its_checks_are_waited_for_before_2_34",
    65: "test_a_queued_migration_can_be_aborted_from_2_65",
    60: "test_multiattach_from_2_60",
    101: "test_an_attach_is_answered_without_a_body_from_2_101",
    72: "test_ports_with_a_resource_request_are_allowed_from_2_72",
    95: "test_fields_of_evacuate_by_version",
}


async def furnish(servers: Any) -> None:
    """A server with something to show in every field, a deleted one, and an action."""
    volume = BlockDevice(
        "volume",
        "volume",
        uuid=VOLUME,
        volume=VOLUME,
        device="/dev/vdb",
        delete_on_termination=True,
        attachment="1ee62ef9-3a2a-4a3b-8d0c-0e4bdc1f7a10",
        bdm="9a4f8b0f-6c4e-4d53-9ff7-1c2ab7a1e3c5",
    )
    await servers.keep(
        a_server(block_devices=(volume,), group="g"), a_server(2, vm_state=VmState.DELETED, deleted_at=1)
    )
    at = 1_767_225_600_000_000
    event = ActionEvent("compute__do_build_and_run_instance", at, at, "Success", "host1", "fine", None)
    action = Action(ID, "create", "req-1", "u", MEMBER.project or "", at, at, at, None, (event,))
    await servers.cell.write(lambda tx: cell_actions.write(tx, action))
    for each in (a_migration(1), a_migration(2, MigrationType.RESIZE, MigrationStatus.FINISHED)):
        await servers.cell.write(partial(cell_migrations.put, migration=each))


async def played(servers: Any, ask: tuple[str, str, Any], at: int, by: Any) -> dict[str, Any]:
    answer = await servers.ask(*ask, at=f"2.{at}", by=by)
    text = re.sub(r'"adminPass":"[^"]*"', '"adminPass":"<password>"', answer.text)
    if ask[0] == "POST" and ask[1] == "/servers":
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uuid>", text)
    text = re.sub(r'"updated":"[^"]*"', '"updated":"<moment>"', text)
    return {"at": f"2.{at}", "status": answer.status_code, "body": json.loads(text) if text else None}


@pytest.mark.parametrize("minor", sorted(EXCHANGES))
async def test_golden_exchange(servers: Any, minor: int) -> None:
    await furnish(servers)
    seen = []
    for ask in EXCHANGES[minor]:
        by = ADMIN if minor not in AS_MEMBER or ask[1].startswith("/os-server-ext") else MEMBER
        older, newer = await played(servers, ask, minor - 1, by), await played(servers, ask, minor, by)
        seen.append({"ask": {"method": ask[0], "path": ask[1], "body": ask[2]}, "older": older, "newer": newer})
    assert any(each["older"] | {"at": ""} != each["newer"] | {"at": ""} for each in seen), "nothing shows the change"
    file = GOLDEN / f"servers-2.{minor:03}.json"
    if os.environ.get("MOORAGE_BLESS"):
        file.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    assert seen == json.loads(file.read_text())


def test_every_version_change_of_servers_has_an_exchange() -> None:
    names = [found.name for found in pkgutil.iter_modules(version_changes.__path__) if found.name.endswith("_servers")]
    assert {int(name.split("_")[1]) for name in names} - EXCHANGES.keys() == PROVED_ELSEWHERE.keys()
    here = "".join(each.read_text() for each in sorted(Path(__file__).parent.glob("test_server*.py")))
    assert all(f"def {test}(" in here for test in PROVED_ELSEWHERE.values())
