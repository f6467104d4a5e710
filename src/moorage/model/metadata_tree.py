"""The two trees with a guest's metadata: `openstack/` in all dated versions, and EC2's.

    files(model)                 every file of a config drive, by path
    openstack(model, …) / ec2()  what the metadata service answers for a path

Names, versions, and what each version adds, are Nova's (nova 34, doc/source/user/metadata.rst).
"""

import base64
import binascii
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from moorage.model.instance_metadata import Disk, InstanceMetadata, Interface
from moorage.model.network_data import network_data

FOLSOM, GRIZZLY, HAVANA, LIBERTY = "2012-08-10", "2013-04-04", "2013-10-17", "2015-10-15"
NEWTON, NEWTON_TWO, OCATA, ROCKY = "2016-06-30", "2016-10-06", "2017-02-22", "2018-08-27"
VICTORIA, EPOXY = "2020-10-14", "2025-04-04"
OPENSTACK_VERSIONS = (FOLSOM, GRIZZLY, HAVANA, LIBERTY, NEWTON, NEWTON_TWO, OCATA, ROCKY, VICTORIA, EPOXY)
EC2_VERSIONS = (
    "1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01", "2009-04-04",
)  # fmt: skip
LATEST = "latest"
ON_DRIVE = ("2009-04-04", LATEST)
"""The versions of EC2's tree that a config drive has (Nova's `config_drive_skip_versions` leaves these)."""
RANDOM_BYTES = 512
NO_MANIFEST = "FIX" + "ME"
"""Nova's constant value of this field; nothing reads it."""

META_DATA, USER_DATA, PASSWORD = "meta_data.json", "user_data", "password"
VENDOR_DATA, VENDOR_DATA2, NETWORK_DATA = "vendor_data.json", "vendor_data2.json", "network_data.json"
SINCE: Mapping[str, str] = {
    META_DATA: FOLSOM,
    USER_DATA: FOLSOM,
    PASSWORD: GRIZZLY,
    VENDOR_DATA: HAVANA,
    NETWORK_DATA: LIBERTY,
    VENDOR_DATA2: NEWTON_TWO,
}
"""In the order in which they are listed."""

Leaf: TypeAlias = "str | bytes | Sequence[str] | Mapping[str, Leaf]"


class NoSuchPath(LookupError):
    """Raised when the path does not exist, or not in this version."""


# -------------------------------------------------------------------------------------------------- OpenStack


def openstack_version(requested: str) -> str:
    """Return the version that was asked for; `latest` is the newest. Raises NoSuchPath."""
    version = OPENSTACK_VERSIONS[-1] if requested == LATEST else requested
    if version not in OPENSTACK_VERSIONS:
        raise NoSuchPath(requested)
    return version


def openstack_names(model: InstanceMetadata, requested: str) -> list[str]:
    """Return the names of the documents that a version has for this server."""
    version = openstack_version(requested)
    return [name for name, since in SINCE.items() if since <= version and (name != USER_DATA or model.user_data)]


def openstack(model: InstanceMetadata, requested: str, name: str) -> bytes:
    """Return one document, except the password, which the service itself handles. Raises NoSuchPath."""
    version = openstack_version(requested)
    if name not in SINCE or SINCE[name] > version:
        raise NoSuchPath(name)
    match name:
        case "meta_data.json":
            return msgspec.json.encode(meta_data(model, version))
        case "user_data" if model.user_data:
            return user_data(model)
        case "vendor_data.json":
            return msgspec.json.encode(model.static_vendor_data)
        case "vendor_data2.json":
            return msgspec.json.encode({"static": model.static_vendor_data, **model.vendor_data})
        case "network_data.json":
            return msgspec.json.encode(network_data(model.interfaces))
        case _:
            raise NoSuchPath(name)


def content(model: InstanceMetadata, name: str) -> bytes:
    """Return a file of the user, by its number. Raises NoSuchPath."""
    if not name.isdecimal() or len(name) != 4 or int(name) >= len(model.files):
        raise NoSuchPath(name)
    return decoded(model.files[int(name)].contents)


def user_data(model: InstanceMetadata) -> bytes:
    return decoded(model.user_data or "")


def decoded(sent: str) -> bytes:
    """Decode base64. Other data were refused when they were sent; if there are any, they are returned unchanged."""
    try:
        return base64.b64decode(sent.encode())
    except (binascii.Error, ValueError):
        return sent.encode()


def meta_data(model: InstanceMetadata, version: str) -> dict[str, Any]:
    """Return `meta_data.json` in this version's form."""
    document: dict[str, Any] = {"uuid": model.server}
    if model.metadata:
        document["meta"] = model.metadata
    if model.files:
        document["files"] = [
            {"path": each.path, "content_path": f"/content/{number:04d}"} for number, each in enumerate(model.files)
        ]
    if model.admin_password is not None:
        document["admin_pass"] = model.admin_password
    if model.key_name and model.public_key:
        document["public_keys"] = {model.key_name: model.public_key}
        document["keys"] = [{"name": model.key_name, "type": model.key_type, "data": model.public_key}]
    document |= {
        "hostname": model.hostname,
        "name": model.name,
        "launch_index": model.launch_index,
        "availability_zone": model.availability_zone,
    }
    if version >= GRIZZLY:
        document["random_seed"] = base64.b64encode(secrets.token_bytes(RANDOM_BYTES)).decode()
    if version >= LIBERTY:
        document["project_id"] = model.project
    if version >= NEWTON:
        document["devices"] = devices(model, version)
    if version >= VICTORIA:
        document["dedicated_cpus"] = list(model.dedicated_cpus)
    return document


def devices(model: InstanceMetadata, version: str) -> list[dict[str, Any]]:
    """Return interfaces and disks with a tag, or with other facts that a guest cannot see itself."""
    nics = [device for each in model.interfaces if (device := _nic(each, version)) is not None]
    return [*nics, *(_disk(each) for each in model.disks)]


def _nic(interface: Interface, version: str) -> dict[str, Any] | None:
    device: dict[str, Any] = {}
    if version >= OCATA and interface.vlan is not None:
        device["vlan"] = interface.vlan
    if version >= ROCKY and interface.trusted is not None:
        device["vf_trusted"] = interface.trusted
    if not device and interface.tag is None:
        return None
    if version >= ROCKY:
        device.setdefault("vf_trusted", False)
    device |= {"type": "nic", "mac": interface.mac, "bus": "none", "address": "none"}
    if interface.tag is not None:
        device["tags"] = [interface.tag]
    return device


def _disk(disk: Disk) -> dict[str, Any]:
    device: dict[str, Any] = {"type": "disk"}
    if disk.serial:
        device["serial"] = disk.serial
    if disk.path:
        device["path"] = disk.path
    return device | {"bus": disk.bus or "none", "address": "none", "tags": [disk.tag]}


# -------------------------------------------------------------------------------------------------------- EC2


def ec2(model: InstanceMetadata, requested: str) -> dict[str, Leaf]:
    """Return the tree of a version: `meta-data`, and `user-data` if there is any. Raises NoSuchPath."""
    version = EC2_VERSIONS[-1] if requested == LATEST else requested
    if version not in EC2_VERSIONS:
        raise NoSuchPath(requested)
    at = EC2_VERSIONS.index(version)

    def since(when: str) -> bool:
        return at >= EC2_VERSIONS.index(when)

    fixed = [each.address for nic in model.interfaces for each in nic.addresses if each.version == 4]
    floating = [each for nic in model.interfaces for each in nic.floating]
    document: dict[str, Leaf] = {
        "ami-id": ec2_id("ami", model.image),
        "ami-launch-index": str(model.launch_index),
        "ami-manifest-path": NO_MANIFEST,
        "instance-id": ec2_id("i", model.server),
        "hostname": model.hostname,
        "local-ipv4": fixed[0] if fixed else "",
        "reservation-id": model.reservation,
        "security-groups": list(model.security_groups),
    }
    if model.key_name and model.public_key:
        document["public-keys"] = {"0": {"_name": f"0={model.key_name}", "openssh-key": model.public_key}}
    if since("2007-01-19"):
        document |= {"local-hostname": model.hostname, "public-hostname": model.hostname}
        document["public-ipv4"] = floating[0] if floating else ""
    if since("2007-08-29"):
        document["instance-type"] = model.flavor
    if since("2007-12-15"):
        document["block-device-mapping"] = dict(model.mappings)
        if model.kernel:
            document["kernel-id"] = ec2_id("aki", model.kernel)
        if model.ramdisk:
            document["ramdisk-id"] = ec2_id("ari", model.ramdisk)
    if since("2008-02-01"):
        document["placement"] = {"availability-zone": model.availability_zone or ""}
    if since("2008-09-01"):
        document["instance-action"] = "none"
    tree: dict[str, Leaf] = {"meta-data": document}
    if model.user_data:
        tree["user-data"] = user_data(model)
    return tree


def ec2_id(kind: str, id: str) -> str:
    """Return an id in EC2's form: with as many hexadecimal digits as EC2's ids have today."""
    return f"{kind}-{id.replace('-', '')[:17]:0<17}"


def found(tree: Leaf, words: Sequence[str]) -> Leaf:
    """Return the value at a path. Raises NoSuchPath."""
    for word in words:
        if not isinstance(tree, Mapping) or word not in tree or word == "_name":
            raise NoSuchPath(word)
        tree = tree[word]
    return tree


def printed(leaf: Leaf) -> bytes:
    """Return EC2's text: names in order, with a slash after those that have entries below them."""
    if isinstance(leaf, bytes):
        return leaf
    if isinstance(leaf, str):
        return leaf.encode()
    if not isinstance(leaf, Mapping):
        return "\n".join(leaf).encode()
    lines: list[str] = []
    for name in sorted(each for each in leaf if each != "_name"):
        below = leaf[name]
        if isinstance(below, Mapping):
            lines.append(str(below["_name"]) if "_name" in below else f"{name}/")
        else:
            lines.append(name)
    return "\n".join(lines).encode()


# ------------------------------------------------------------------------------------------------ config drive


def files(model: InstanceMetadata) -> Iterator[tuple[str, bytes]]:
    """Return the path and content of every file on the config drive."""
    for version in ON_DRIVE:
        tree = ec2(model, version)
        if "user-data" in tree:
            yield f"ec2/{version}/user-data", user_data(model)
        yield f"ec2/{version}/meta-data.json", msgspec.json.encode(_without_names(tree["meta-data"]))
    for version in (*OPENSTACK_VERSIONS, LATEST):
        for name in openstack_names(model, version):
            if name != PASSWORD:
                yield f"openstack/{version}/{name}", openstack(model, version, name)
    for number in range(len(model.files)):
        yield f"openstack/content/{number:04d}", content(model, f"{number:04d}")


def _without_names(tree: Leaf) -> Any:
    if not isinstance(tree, Mapping):
        return tree
    return {name: _without_names(below) for name, below in tree.items() if name != "_name"}
