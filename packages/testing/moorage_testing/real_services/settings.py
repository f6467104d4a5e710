"""The services' configuration files: SQLite, plain files, loopback ports, and otherwise their own defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Sections: TypeAlias = Mapping[str, Mapping[str, str | int]]
NEUTRON_PLUGINS = "router,qos,segments,placement,auto_allocate,network_ip_availability,trunk"
OURS = "Moorage"
"""The region of the catalog where Neutron finds our compute service and our Placement."""
DAY_S = 24 * 3600


@dataclass(frozen=True)
class Site:
    """Where everything of one running set is."""

    root: Path
    venv: Path
    password: str
    identity_port: int
    image_port: int
    network_port: int
    placement_port: int
    our_compute_port: int
    our_placement_port: int
    volume_port: int
    broker: str = field(default="", kw_only=True)
    """Where Neutron's own agents reach it; empty: there are none, and agents' rows are written once."""

    @property
    def identity_url(self) -> str:
        return f"http://127.0.0.1:{self.identity_port}/v3"

    def etc(self, name: str) -> Path:
        return self.root / "etc" / name

    def database(self, name: str) -> Path:
        return self.root / "state" / f"{name}.db"

    def log(self, name: str) -> Path:
        return self.root / "log" / f"{name}.log"


def write_settings(site: Site) -> None:
    """Write every file and make every directory that the services expect to find."""
    for name in (
        "state/images",
        "state/staging",
        "state/tasks",
        "state/lock",
        "state/volumes",
        "log",
        "etc/fernet",
        "etc/credential",
    ):
        (site.root / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(site.etc("keystone") / "keystone.conf", _keystone(site))
    write_file(site.etc("glance") / "glance-api.conf", _image_settings(site))
    write_file(site.etc("placement") / "placement.conf", _placement(site))
    write_file(site.etc("neutron") / "neutron.conf", _neutron(site))
    write_file(site.etc("neutron") / "ml2.ini", _ml2())
    write_file(site.etc("cinder") / "cinder.conf", _cinder(site))


def write_file(path: Path, sections: Sections) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for name, options in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in options.items()), ""]
    path.write_text("\n".join(lines))


def _database(site: Site, name: str) -> dict[str, str | int]:
    return {"connection": f"sqlite:///{site.database(name)}?timeout=30"}


def _account(site: Site, user: str, region: str = "RegionOne") -> dict[str, str | int]:
    return {
        "auth_type": "password",
        "auth_url": site.identity_url,
        "username": user,
        "password": site.password,
        "project_name": "service",
        "user_domain_name": "Default",
        "project_domain_name": "Default",
        "region_name": region,
    }


def _middleware(site: Site, user: str) -> dict[str, str | int]:
    return {
        **_account(site, user),
        "www_authenticate_uri": site.identity_url,
        "service_token_roles": "service",
        "service_token_roles_required": "true",
    }


def _keystone(site: Site) -> Sections:
    return {
        "DEFAULT": {"use_stderr": "true"},
        "database": _database(site, "keystone"),
        "identity": {"password_hash_rounds": 4},  # the least bcrypt takes: tests make many users
        "token": {"provider": "fernet", "expiration": 3600},
        "fernet_tokens": {"key_repository": str(site.etc("fernet"))},
        "credential": {"key_repository": str(site.etc("credential"))},
        # Without a cache it asks SQLite 200 times about each token. One process: what it changes it forgets at once.
        "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
    }


def _image_settings(site: Site) -> Sections:
    state = site.root / "state"
    return {
        "DEFAULT": {"enabled_backends": "file:file", "use_stderr": "true"},
        "database": _database(site, "glance"),
        "glance_store": {"default_backend": "file"},
        "file": {"filesystem_store_datadir": str(state / "images")},
        "os_glance_staging_store": {"filesystem_store_datadir": str(state / "staging")},
        "os_glance_tasks_store": {"filesystem_store_datadir": str(state / "tasks")},
        "paste_deploy": {"flavor": "keystone", "config_file": f"{site.venv}/etc/glance/glance-api-paste.ini"},
        "keystone_authtoken": _middleware(site, "glance"),
        "oslo_concurrency": {"lock_path": str(state / "lock")},
    }


def _placement(site: Site) -> Sections:
    return {
        "DEFAULT": {"use_stderr": "true"},
        "api": {"auth_strategy": "keystone"},
        "placement_database": _database(site, "placement"),
        "keystone_authtoken": _middleware(site, "placement"),
    }


def _neutron(site: Site) -> Sections:
    state = site.root / "state"
    return {
        "DEFAULT": {
            "core_plugin": "ml2",
            "service_plugins": NEUTRON_PLUGINS,
            "auth_strategy": "keystone",
            "api_paste_config": f"{site.venv}/etc/neutron/api-paste.ini",
            "state_path": str(state),
            "transport_url": site.broker or "fake:/",  # no broker: only its own process listens
            "executor_thread_pool_size": 4,
            "agent_down_time": 300 if site.broker else DAY_S,  # one that reported stays alive for so long
            "send_events_interval": 1,  # the least it takes
            "notify_nova_on_port_status_changes": "true",
            "notify_nova_on_port_data_changes": "true",
            "dns_domain": "cloud.example.",  # with the default one Neutron keeps no name of a port
            "dhcp_agent_notification": "true" if site.broker else "false",
            "use_stderr": "true",
        },
        "database": _database(site, "neutron"),
        "keystone_authtoken": _middleware(site, "neutron"),
        "placement": _account(site, "neutron", OURS),
        "nova": _account(site, "neutron", OURS),
        "quotas": {
            "quota_rbac_policy": -1
        },  # each shared network is one, and many tests share the administrator's project
        "oslo_concurrency": {"lock_path": str(state / "lock")},
        "oslo_policy": {"policy_file": str(site.etc("neutron") / "policy.yaml")},  # absent: the defaults
    }


def _cinder(site: Site) -> Sections:
    state = site.root / "state"
    return {
        "DEFAULT": {
            "auth_strategy": "keystone",
            "enabled_backends": "files,more",
            "glance_api_servers": f"http://127.0.0.1:{site.image_port}",
            "state_path": str(state),
            "host": "cinder",
            "transport_url": "fake:/",  # no broker: only its own process listens
            "api_paste_config": f"{site.venv}/etc/cinder/api-paste.ini",
            "resource_query_filters_file": f"{site.venv}/etc/cinder/resource_filters.json",
            "enable_force_upload": "true",
            "service_down_time": DAY_S,
            "report_interval": 3600,
            "use_stderr": "true",
        },
        "files": {
            "volume_driver": "cinder_files.Driver",
            "volume_backend_name": "files",
            "files_directory": str(state / "volumes"),
        },
        "more": {  # where volumes are migrated to; the scheduler puts none there by itself
            "volume_driver": "cinder_files.Driver",
            "volume_backend_name": "more",
            "files_directory": str(state / "volumes"),
            "files_gb": 10_000,
        },
        "database": _database(site, "cinder"),
        "coordination": {"backend_url": f"file://{state}/coordination"},
        "keystone_authtoken": _middleware(site, "cinder"),
        "nova": {**_account(site, "cinder", OURS), "token_auth_url": site.identity_url},
        "oslo_concurrency": {"lock_path": str(state / "lock")},
        "oslo_messaging_notifications": {"driver": "noop"},
    }


def _ml2() -> Sections:
    ranges = ",".join(f"physnet{number}:100:1999" for number in range(1, 6))
    return {
        "ml2": {
            "type_drivers": "flat,vlan,vxlan",
            "tenant_network_types": "vxlan",
            "mechanism_drivers": "openvswitch",
            "extension_drivers": "port_security,qos,dns",
        },
        "ml2_type_flat": {"flat_networks": "physnet1"},
        "ml2_type_vlan": {"network_vlan_ranges": ranges},
        "ml2_type_vxlan": {"vni_ranges": "1:16000"},
        "securitygroup": {"enable_security_group": "true"},
    }
