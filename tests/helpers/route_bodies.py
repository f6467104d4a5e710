"""A valid body for each route of the Compute API at its newest version, for tests that call all routes."""

from typing import Any

from moorage.api.microversions import Version
from moorage.api.routes import CompiledRoute, Route
from moorage.api.version_changes import CHANGES
from moorage_testing.fake_server_service import IMAGE, NETWORK

LAST = (2, 104)
AN_ID = "0f0e0d0c-0000-4000-8000-000000000001"
BODIES: dict[str, Any] = {
    "reboot": {"type": "SOFT"},
    "os-resetState": {"state": "error"},
    "os-getConsoleOutput": {},
    "changePassword": {"adminPass": "x"},
    "os-getVNCConsole": {"type": "novnc"},
    "os-getSPICEConsole": {"type": "spice-html5"},
    "os-getSerialConsole": {"type": "serial"},
    "POST /servers/{id}/remote-consoles": {"remote_console": {"protocol": "vnc", "type": "novnc"}},
    "rebuild": {"imageRef": IMAGE},
    "resize": {"flavorRef": "2"},
    "os-migrateLive": {"host": None, "block_migration": "auto"},
    "evacuate": {},
    "createImage": {"name": "taken"},
    "createBackup": {"name": "taken", "backup_type": "daily", "rotation": 1},
    "POST /servers/{id}/os-volume_attachments": {"volumeAttachment": {"volumeId": IMAGE}},
    "POST /servers/{id}/shares": {"share": {"share_id": IMAGE}},
    "PUT /servers/{id}/os-volume_attachments/{volume}": {"volumeAttachment": {"volumeId": IMAGE}},
    "addSecurityGroup": {"name": "default"},
    "removeSecurityGroup": {"name": "default"},
    "addFixedIp": {"networkId": NETWORK},
    "removeFixedIp": {"address": "10.0.0.1"},
    "addFloatingIp": {"address": "10.0.0.1"},
    "removeFloatingIp": {"address": "10.0.0.1"},
    "PUT /servers/{id}": {"server": {"name": "taken"}},
    "POST /servers/{id}/metadata": {"metadata": {"a": "b"}},
    "PUT /servers/{id}/metadata": {"metadata": {"a": "b"}},
    "PUT /servers/{id}/metadata/{key}": {"meta": {"role": "b"}},
    "PUT /servers/{id}/tags": {"tags": ["red"]},
    "POST /servers/{id}/os-interface": {"interfaceAttachment": {}},
    "POST /servers": {"server": {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}},
    "POST /ext/dry-run/servers": {"server": {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}},
    "POST /os-aggregates": {"aggregate": {"name": "a"}},
    "PUT /os-aggregates/{id}": {"aggregate": {"name": "b"}},
    "add_host": {"host": "h"},
    "remove_host": {"host": "h"},
    "set_metadata": {"metadata": {"a": "b"}},
    "POST /os-aggregates/{id}/images": {"cache": [{"id": IMAGE}]},
    "POST /os-assisted-volume-snapshots": {
        "snapshot": {"volume_id": AN_ID, "create_info": {"snapshot_id": AN_ID, "type": "qcow2", "new_file": "f"}}
    },
    "POST /os-server-external-events": {"events": [{"name": "network-changed", "server_uuid": AN_ID}]},
    "POST /flavors/{id}/os-extra_specs": {"extra_specs": {"hw:numa_nodes": "1"}},
    "PUT /flavors/{id}/os-extra_specs/{name}": {"x": "1"},
    "POST /flavors": {"flavor": {"name": "f", "ram": 64, "vcpus": 1, "disk": 1}},
    "PUT /flavors/{id}": {"flavor": {"description": "d"}},
    "addTenantAccess": {"tenant": AN_ID},
    "removeTenantAccess": {"tenant": AN_ID},
    "POST /images/{id}/metadata": {"metadata": {"a": "b"}},
    "PUT /images/{id}/metadata": {"metadata": {"a": "b"}},
    "PUT /images/{id}/metadata/{key}": {"meta": {"role": "b"}},
    "POST /os-keypairs": {"keypair": {"name": "k", "public_key": "not a key"}},
    "POST /ext/audits": {"audit": {}},
    "POST /ext/cell-drains": {"cell_drain": {"cell": "none"}},
    "PUT /ext/cells/{cell}": {"cell": {"disabled": False}},
    "PUT /ext/host-approvals/{host}": {"approval": {"cell": "none"}},
    "POST /ext/balances": {"balance": {"dry_run": True}},
    "POST /ext/capacity": {"capacity": {"flavor": "none"}},
    "POST /ext/failovers": {"failover": {"kind": "host", "names": ["none"]}},
    "POST /ext/drains": {"drain": {"host": "none"}},
    "PUT /os-hosts/{id}": {"status": "enable"},
    "PUT /os-quota-sets/{id}": {"quota_set": {"instances": 10}},
    "PUT /os-quota-class-sets/{id}": {"quota_class_set": {"instances": 10}},
    "POST /os-security-groups": {"security_group": {"name": "g", "description": "d"}},
    "PUT /os-security-groups/{id}": {"security_group": {"name": "g", "description": "d"}},
    "POST /os-security-group-rules": {"security_group_rule": {"parent_group_id": AN_ID}},
    "POST /os-server-groups": {"server_group": {"name": "g", "policy": "affinity"}},
    "PUT /os-services/{id}": {"status": "enabled"},
    "POST /os-snapshots": {"snapshot": {"volume_id": AN_ID}},
    "POST /os-volumes": {"volume": {"size": 1}},
}
"""By the action, or by the route."""


def newest(route: Route) -> Version:
    """The last version at which the route lives."""
    until = CompiledRoute(route, CHANGES).until
    return Version(*LAST) if until is None else Version(until[0], until[1] - 1)


def body_of(route: Route) -> Any:
    if route.action is not None:
        return {route.action: BODIES.get(route.action)}
    return BODIES.get(f"{route.method} {route.path.replace('/os-volumes_boot', '/servers')}")
