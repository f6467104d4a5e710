"""Tempest, from PyPI and unchanged, against a cloud of this project with real guests: `python -m moorage_testing.hypervisor tempest REGEX…`.

`moorage up --driver libvirt` runs in namespaces of its own, and Tempest in one more, in the place of the outside: it reaches the services, and guests
by their floating addresses. What it said stays in the directory that is printed first.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

from moorage.main.local_cluster.ports import free_ports
from moorage.main.service_clients import admin_password
from moorage_testing.api_user import Person
from moorage_testing.hypervisor.stations import Station
from moorage_testing.real_services.install import REQUIREMENTS, install
from moorage_testing.up_process import UpProcess

GUEST = "login.qcow2"
HOST = "real1"
OURS, THEIRS = "192.0.2.1", "192.0.2.2"
"""Of the services, and of Tempest."""
OUTSIDE = "203.0.113.1"
PUBLIC = "203.0.113.0/24"
CLOUD = f"""[agent]
driver = "libvirt"
host = "{HOST}"

[compute]
allow_resize_to_same_host = true

[libvirt]
external_devices = {{ physnet1 = "st-outside" }}

"""
PATIENCE_S = 600
"""Guests are emulated, on a machine that may do much else."""


def interpreter() -> Path:
    """Of the virtual environment that has Tempest; it is made when this machine has none. Raises RuntimeError."""
    real = REQUIREMENTS.parent
    return install("tempest", real / "requirements-tempest.txt", real / "constraints-tempest.txt")


def settings(
    up: UpProcess, password: str, images: tuple[str, str], public: str, room: Path
) -> dict[str, dict[str, Any]]:
    """Of tempest.conf: where the cloud is, what it has, and what it has not."""
    waits = {"build_timeout": PATIENCE_S, "build_interval": 1}
    return {
        "DEFAULT": {"log_file": room / "tempest.log", "debug": True},
        "oslo_concurrency": {"lock_path": room / "locks"},
        "auth": {"admin_username": "admin", "admin_project_name": "admin", "admin_password": password},
        "identity": {"uri_v3": f"{up.config.api.identity.url}/v3", "auth_version": "v3"},
        "compute": waits
        | {
            "image_ref": images[0],
            "image_ref_alt": images[1],
            "flavor_ref": "42",
            "flavor_ref_alt": "84",
            "min_microversion": "2.1",
            "max_microversion": "latest",
            "hypervisor_type": "QEMU",
        },
        "placement": {"min_microversion": "1.0", "max_microversion": "latest"},
        "compute-feature-enabled": {
            "resize": True,
            "cold_migration": False,  # one host
            "live_migration": False,
            "stable_rescue": True,
            "swap_volume": True,
            "volume_multiattach": True,
            "personality": True,
            "attach_encrypted_volume": False,
            "hostname_fqdn_sanitization": True,
            "ide_bus": False,
        },
        "network": waits
        | {"build_timeout": PATIENCE_S // 5, "public_network_id": public, "floating_network_name": "public"},
        "network-feature-enabled": {"ipv6_subnet_attributes": True, "port_security": True},
        "image": waits | {"disk_formats": "raw,qcow2", "container_formats": "bare"},
        "volume": waits | {"min_microversion": "3.0", "max_microversion": "latest"},
        "volume-feature-enabled": {"backup": False, "extend_attached_volume": True},
        "validation": {
            "run_validation": True,
            "image_ssh_user": "tempest",
            "image_alt_ssh_user": "tempest",
            "image_ssh_password": "gocubsgo",
            "image_alt_ssh_password": "gocubsgo",
            "ping_timeout": PATIENCE_S // 2,
            "ssh_timeout": PATIENCE_S // 2,
            "connect_timeout": 60,
        },
        "scenario": {"img_file": Path(os.environ["MOORAGE_TEST_GUEST"]) / GUEST},
        "service_available": {"swift": False, "horizon": False},
        "service-clients": {"http_timeout": 180},
        "enforce_scope": {"nova": True, "neutron": True, "glance": True, "placement": True},
    }


def write(path: Path, told: dict[str, dict[str, Any]]) -> None:
    parser = RawConfigParser()
    parser.read_dict({section: {name: str(value) for name, value in each.items()} for section, each in told.items()})
    with path.open("w") as out:
        parser.write(out)


async def upload(person: Person, name: str) -> str:
    """The guest that one can log into, as an image of the cloud; its id."""
    images = f"{person.config.api.image.url}/v2/images"
    asked = {"name": name, "disk_format": "qcow2", "container_format": "bare", "visibility": "public"}
    made = await person.http.post(images, json=asked)
    made.raise_for_status()
    image = str(made.json()["id"])
    data = await asyncio.to_thread((Path(os.environ["MOORAGE_TEST_GUEST"]) / GUEST).read_bytes)
    headers = {"Content-Type": "application/octet-stream"}
    (await person.http.put(f"{images}/{image}/file", content=data, headers=headers)).raise_for_status()
    return image


async def external_network(person: Person) -> str:
    """The id of a network with floating addresses. Raises HTTPStatusError."""
    flat = {"provider:network_type": "flat", "provider:physical_network": "physnet1", "router:external": True}
    made = await person.network("POST", "/networks", {"network": {"name": "public", **flat}})
    made.raise_for_status()
    network = str(made.json()["network"]["id"])
    subnet = {"network_id": network, "cidr": PUBLIC, "ip_version": 4, "enable_dhcp": False, "gateway_ip": OUTSIDE}
    (await person.network("POST", "/subnets", {"subnet": subnet})).raise_for_status()
    return network


async def prepared(up: UpProcess, room: Path) -> Path:
    """What Tempest expects of a cloud is in it; the file that says so."""
    async with Person(up.config) as person:
        images = (await upload(person, "login"), await upload(person, "login-again"))
        told = settings(up, admin_password(up.config), images, await external_network(person), room)
    path = room / "tempest.conf"
    await asyncio.to_thread(write, path, told)
    return path


def tests(outside: Station, room: Path, conf: Path, regexes: list[str]) -> int:
    """What Tempest's own runner ends with."""
    tempest = interpreter().with_name("tempest")
    workspace = room / "workspace"
    environment = os.environ | {"HOME": str(room)}  # where it remembers its workspaces
    subprocess.run([tempest, "init", workspace], check=True, stdout=subprocess.DEVNULL, env=environment)
    inside = ["ip", "netns", "exec", outside.name, str(tempest), "run", "--serial", "--config-file", str(conf)]
    words = [*inside, "--regex", "|".join(regexes)]
    return subprocess.run(words, check=False, cwd=workspace, env=environment).returncode


def main(arguments: list[str]) -> int:
    """The status of Tempest's run: 0 when no test failed."""
    parser = argparse.ArgumentParser(prog="python -m moorage_testing.hypervisor tempest", description=__doc__)
    parser.add_argument(
        "--room", type=Path, help="a new directory for what is said; else one below that of temporary files"
    )
    parser.add_argument("regex", nargs="*", default=["tempest.scenario"], help="which tests; all of tempest.scenario")
    told = parser.parse_args(arguments)
    room = told.room or Path(tempfile.mkdtemp(prefix="moorage-tempest-"))
    room.mkdir(parents=True, exist_ok=True)
    room.chmod(0o755)  # QEMU's user reads disks below it
    print(f"what is said is in {room}", flush=True)  # noqa: T201 - a command
    outside = Station("outside", "")
    outside.start()
    for address in (f"{OUTSIDE}/24", f"{THEIRS}/30"):
        outside.call("ip", "address", "add", address, "dev", "eth0")
    subprocess.run(["ip", "address", "add", f"{OURS}/30", "dev", "st-outside"], check=True)
    up = UpProcess(room, CLOUD, OURS)
    [up.metadata_port] = free_ports(1)
    up.start()
    try:
        conf = asyncio.run(prepared(up, room))
        return tests(outside, room, conf, told.regex)
    finally:
        up.end(signal.SIGINT)
        outside.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
