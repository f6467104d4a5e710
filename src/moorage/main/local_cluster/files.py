"""Writes the files of a trial set: keys, certificates, the broker's configuration, and for each role a file with only what it needs."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from moorage.agent.legacy_ports import PORTS_ARRIVE_BOUND
from moorage.bus.broker import KeyOfHost, KeyOfProcess, Keys, configuration
from moorage.main.bus import make_key, write_secret
from moorage.main.config import Config
from moorage.main.hosts import HostPlan
from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.model.json_types import JsonObject

CONFIG = """\
# Written by `moorage set`.
data_dir = "{data}"

[region]
database = "{region}"

{cells}
{bus}
[hosts]
count = {hosts}
{wires}
[service_user]
{service_user}
{images}
[api.compute]
port = {compute}

[api.placement]
port = {placement}

[api.identity]
port = {identity}

[api.image]
port = {image}

[api.network]
port = {network}

[api.volume]
port = {volume}

[api.metadata]
port = {metadata}

[api.console]
port = {console}
"""

REAL_GUESTS = """
[agent]
driver = "libvirt"
"""

CONFIG_DRIVES = """
[metadata]
force_config_drive = true
"""
"""With a real network service, no agent of which answers guests at 169.254.169.254."""


ON_THE_BUS = ("conductor", "api", "console")
"""Roles that have a key, as each agent has; the other roles do not use the bus."""


@dataclass
class Guarded:
    """The keys of a trial set whose bus is secured; they are in `directory/keys`."""

    directory: Path
    plans: Sequence[HostPlan]
    ca: Path = field(init=False)
    conf: str = field(init=False)
    """The broker's configuration."""
    hosts: tuple[KeyOfHost, ...] = field(init=False)
    _keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        authority = CertificateAuthority(self.keys)
        broker = authority.issue("nats-server")
        self.ca = authority.file
        processes = tuple(KeyOfProcess(role, make_key(self.seed(role))) for role in ON_THE_BUS)
        self.hosts = tuple(
            KeyOfHost(plan.host, plan.cell, make_key(self.seed(f"agent-{plan.host}"))) for plan in self.plans
        )
        self._keys = Keys("", str(broker.cert), str(broker.key), processes=processes, hosts=self.hosts)
        self.conf = configuration(self._keys)
        write_secret(self.directory / "nats-server.conf", self.conf)

    def with_host(self, host: str, cell: str, key: str) -> str:
        """Return the broker's configuration with one more host."""
        more = KeyOfHost(host, cell, key)
        return configuration(msgspec.structs.replace(self._keys, hosts=(*self.hosts, more)))

    @property
    def keys(self) -> Path:
        return self.directory / "keys"

    def seed(self, whose: str) -> Path:
        return self.keys / f"{whose}.nk"

    def bus(self, whose: str, url: str) -> JsonObject:
        """The table `[bus]` of one process."""
        return {"url": url.replace("nats://", "tls://"), "nkey": str(self.seed(whose)), "tls": True, "ca": str(self.ca)}


def tables(values: Mapping[str, Mapping[str, Any]]) -> str:
    """TOML of flat tables; the table "" comes first and has no heading."""
    parts = []
    for name, rows in values.items():
        lines = [f"[{name}]"] if name else []
        parts.append("\n".join([*lines, *(f"{key} = {_toml(value)}" for key, value in rows.items())]))
    return "\n\n".join(parts) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def agents_file(
    config: Config, plan: HostPlan, bus: Mapping[str, Any], level: int, libvirt: Mapping[str, Any] | None = None
) -> str:
    """Return the file of one host's agent: no database, no cell but its own, and no account but that for images.

    `libvirt`: the table `[libvirt]` of a host with real guests.
    """
    mine, images = config.agent, config.image_user
    values: dict[str, Mapping[str, Any]] = {
        "": {"data_dir": config.data_dir, "log_level": config.log_level},
        "bus": bus,
        "agent": {
            "host": plan.host, "cell": plan.cell, "driver": mine.driver, "level": level, "vcpus": mine.vcpus,
            "ram_mib": mine.ram_mib, "disk_gib": mine.disk_gib, "physical_networks": plan.physical_networks,
        },
        "compute": {"host_silence_s": config.compute.host_silence_s},
        "identity": {"url": config.identity.url or f"{config.api.identity.url}/v3"},
        "image": {"url": config.image.url or config.api.image.url},
        **({"image_user": msgspec.to_builtins(images)} if images.password else {}),
    }  # fmt: skip
    if libvirt is not None:
        values["libvirt"] = libvirt
    if config.tracing.endpoint:
        values["tracing"] = msgspec.to_builtins(config.tracing)
    if level < PORTS_ARRIVE_BOUND:  # it makes and binds ports itself
        user = config.service_user
        values["network"] = {"url": config.network.url or config.api.network.url}
        values["service_user"] = {"user": user.user, "password": user.password, "project": user.project}
    return tables(values)


def console_file(config: Config, port: int) -> str:
    """All that the web console needs: where people log in and which port is its own. It has no account, database or key."""
    values: dict[str, Mapping[str, Any]] = {
        "": {"data_dir": config.data_dir, "log_level": config.log_level},
        "region": {"name": config.region.name},
        "identity": {"url": config.identity.url or f"{config.api.identity.url}/v3"},
        "api.webconsole": {"port": port},
    }
    return tables(values)


def write(path: Path, text: str) -> None:
    """Write a file with mode 0600, and replace an earlier one: these files contain passwords and keys."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
