"""Metadata of guests: versions, network_data.json, devices, EC2's tree, and the ISO 9660 image of all."""

import base64
import io
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pycdlib
import pytest

from moorage.drivers.config_drive import LABEL, build
from moorage.model.errors import TooLarge
from moorage.model.guest import GuestSpec, VolumeDisk
from moorage.model.instance_metadata import (
    Disk,
    File,
    GuestAddress,
    InstanceMetadata,
    Interface,
    full_hostname,
    interface_of_port,
    metadata_of,
    refuse_too_large,
)
from moorage.model.metadata_tree import (
    EC2_VERSIONS,
    OPENSTACK_VERSIONS,
    NoSuchPath,
    ec2,
    files,
    found,
    openstack,
    openstack_names,
    printed,
)
from moorage.model.network import FixedIp, NetworkFacts, Port, SubnetFacts
from moorage.model.network_data import network_data
from moorage.model.server import BlockDevice
from moorage.operations.steps.config_drives import with_drive
from moorage_testing.fake_server_service import a_server

V4 = GuestAddress("10.0.0.5", 4, "10.0.0.0/24", "10.0.0.1", ("10.0.0.2",), (("192.168.0.0/16", "10.0.0.9"),))
V6 = GuestAddress("2001:db8::5", 6, "2001:db8::/64", "2001:db8::1", ("2001:db8::2",))
NIC = Interface("port-1", "fa:16:3e:00:00:01", "net-1", 1442, "ovs", (V4, V6), tag="front")
MODEL = InstanceMetadata(
    server="11111111-2222-3333-4444-555555555555",
    project="project-1",
    name="Web One",
    hostname="web-one.novalocal",
    availability_zone="nova",
    launch_index=2,
    reservation="r-1",
    image="99999999-2222-3333-4444-555555555555",
    flavor="m1.tiny",
    metadata={"role": "web"},
    key_name="mine",
    public_key="ssh-ed25519 AAAA me",
    user_data=base64.b64encode(b"#!/bin/sh\necho hi\n").decode(),
    security_groups=("default", "web"),
    interfaces=(NIC,),
    disks=(Disk("db", "volume-1", "/dev/vdb", "virtio"),),
    mappings={"ami": "vda", "root": "/dev/vda"},
    files=(File("/etc/motd", base64.b64encode(b"welcome").decode()),),
    admin_password="secret",
    static_vendor_data={"region": "here"},
    vendor_data={"inventory": {"rack": 7}},
)


def document(version: str, name: str = "meta_data.json", model: InstanceMetadata = MODEL) -> Any:
    return json.loads(openstack(model, version, name))


def image_of(model: InstanceMetadata) -> dict[str, bytes]:
    """Every file of the image by its Rock Ridge path, as Linux mounts it; Joliet says the same."""
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(build(model)))
    assert iso.pvd.volume_identifier.decode().strip() == LABEL
    trees: list[dict[str, bytes]] = []
    for facade, path in ((iso.get_rock_ridge_facade(), "rr_path"), (iso.get_joliet_facade(), "joliet_path")):
        tree: dict[str, bytes] = {}
        for folder, _, names in facade.walk("/"):
            for name in names:
                whole = f"{folder.rstrip('/')}/{name}"
                content = io.BytesIO()
                iso.get_file_from_iso_fp(content, **{path: whole})
                tree[whole.lstrip("/")] = content.getvalue()
        trees.append(tree)
    iso.close()
    assert trees[0] == trees[1]
    return trees[0]


def test_each_version_adds_its_fields() -> None:
    assert openstack_names(MODEL, "2012-08-10") == ["meta_data.json", "user_data"]
    assert openstack_names(MODEL, "2013-10-17") == ["meta_data.json", "user_data", "password", "vendor_data.json"]
    assert openstack_names(MODEL, "latest")[-2:] == ["network_data.json", "vendor_data2.json"]
    assert "random_seed" not in document("2012-08-10")
    assert len(base64.b64decode(document("2013-04-04")["random_seed"])) == 512
    assert "project_id" not in document("2013-10-17")
    assert document("2015-10-15")["project_id"] == "project-1"
    assert "devices" not in document("2015-10-15")
    assert document("2020-10-14")["dedicated_cpus"] == []
    assert "dedicated_cpus" not in document("2018-08-27")


def test_contents_of_meta_data() -> None:
    told = document("latest")
    assert told["uuid"] == MODEL.server
    assert told["meta"] == {"role": "web"}
    assert told["keys"] == [{"name": "mine", "type": "ssh", "data": "ssh-ed25519 AAAA me"}]
    assert told["public_keys"] == {"mine": "ssh-ed25519 AAAA me"}
    assert told["admin_pass"] == "secret"
    assert (told["hostname"], told["name"], told["launch_index"]) == ("web-one.novalocal", "Web One", 2)
    assert told["files"] == [{"path": "/etc/motd", "content_path": "/content/0000"}]
    bare = document("latest", model=InstanceMetadata("1"))
    assert not {"meta", "keys", "public_keys", "files", "admin_pass"} & bare.keys()


def test_tagged_devices_without_invisible_ones() -> None:
    nic, disk = document("2016-06-30")["devices"]
    assert nic == {"type": "nic", "mac": NIC.mac, "bus": "none", "address": "none", "tags": ["front"]}
    assert disk == {
        "type": "disk", "serial": "volume-1", "path": "/dev/vdb", "bus": "virtio", "address": "none", "tags": ["db"],
    }  # fmt: skip
    direct = msgspec.structs.replace(NIC, tag=None, vlan=7, trusted=True)
    model = msgspec.structs.replace(MODEL, interfaces=(direct,), disks=())
    assert document("2016-10-06", model=model)["devices"] == []
    assert document("2017-02-22", model=model)["devices"][0]["vlan"] == 7
    assert document("2018-08-27", model=model)["devices"][0]["vf_trusted"] is True


def test_static_addresses_are_described_in_full() -> None:
    told = network_data((NIC,))
    (link,) = told["links"]
    assert link == {
        "id": "interface0", "vif_id": "port-1", "type": "ovs", "mtu": 1442, "ethernet_mac_address": NIC.mac,
    }  # fmt: skip
    four, six = told["networks"]
    assert four == {
        "id": "network0",
        "type": "ipv4",
        "link": "interface0",
        "ip_address": "10.0.0.5",
        "netmask": "255.255.255.0",
        "routes": [
            {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.1"},
            {"network": "192.168.0.0", "netmask": "255.255.0.0", "gateway": "10.0.0.9"},
        ],
        "network_id": "net-1",
        "services": [{"type": "dns", "address": "10.0.0.2"}],
    }
    assert (six["type"], six["netmask"]) == ("ipv6", "ffff:ffff:ffff:ffff::")
    assert six["routes"] == [{"network": "::", "netmask": "::", "gateway": "2001:db8::1"}]
    assert [each["address"] for each in told["services"]] == ["10.0.0.2", "2001:db8::2"]


def test_dhcp_addresses_are_described_as_such() -> None:
    dhcp = msgspec.structs.replace(V4, dhcp=True)
    told = network_data(
        (msgspec.structs.replace(NIC, addresses=(dhcp, msgspec.structs.replace(dhcp, address="10.0.0.6"))),)
    )
    assert told["networks"] == [{"id": "network0", "type": "ipv4_dhcp", "link": "interface0", "network_id": "net-1"}]
    for mode in ("slaac", "dhcpv6-stateful", "dhcpv6-stateless"):
        (six,) = network_data(
            (msgspec.structs.replace(NIC, addresses=(msgspec.structs.replace(V6, dhcp=True, mode=mode),)),)
        )["networks"]
        assert (six["type"], six["ip_address"]) == (f"ipv6_{mode}", "2001:db8::5")
    (six,) = network_data((msgspec.structs.replace(NIC, addresses=(msgspec.structs.replace(V6, dhcp=True),)),))[
        "networks"
    ]
    assert six["type"] == "ipv6_dhcp"


def test_links_are_numbered_and_a_card_without_an_address_is_none() -> None:
    two = msgspec.structs.replace(NIC, port="port-2", vif_type="binding_failed")
    none = msgspec.structs.replace(NIC, port="port-3", addresses=())
    told = network_data((none, NIC, two))
    assert [(each["id"], each["vif_id"], each["type"]) for each in told["links"]] == [
        ("interface0", "port-1", "ovs"),
        ("interface1", "port-2", "phy"),
    ]
    assert [each["link"] for each in told["networks"]] == ["interface0"] * 2 + ["interface1"] * 2
    assert len(told["services"]) == 2


def test_a_bound_port_becomes_an_interface() -> None:
    facts = NetworkFacts(
        "net-1", "private", 1400, (SubnetFacts("s4", "10.0.0.0/24", gateway="10.0.0.1", dns=("10.0.0.2",), dhcp=False),)
    )
    port = Port(
        "port-1", "net-1", "fa:16:3e:00:00:01", fixed_ips=(FixedIp("s4", "10.0.0.5"), FixedIp("unknown", "10.9.0.1")),
        vif_type="hw_veb", vif_details={"vlan": "12"}, profile={"trusted": "true"}, tag="front",
    )  # fmt: skip
    made = interface_of_port(port, facts)
    assert (made.mtu, made.vlan, made.trusted, made.tag) == (1400, 12, True, "front")
    assert made.addresses[0].cidr == "10.0.0.0/24"
    assert made.addresses[1].cidr == ""
    assert len(network_data((made,))["networks"]) == 1


def test_host_names_get_a_domain_unless_they_are_qualified() -> None:
    assert full_hostname("web", "novalocal") == "web.novalocal"
    assert full_hostname("web.example.org", "novalocal") == "web.example.org"
    assert full_hostname("web", "") == "web"


def test_the_tree_of_ec2() -> None:
    assert printed(ec2(MODEL, "latest")) == b"meta-data/\nuser-data"
    keys = found(ec2(MODEL, "latest"), ["meta-data", "public-keys"])
    assert printed(keys) == b"0=mine"
    assert printed(found(keys, ["0"])) == b"openssh-key"
    assert printed(found(keys, ["0", "openssh-key"])) == b"ssh-ed25519 AAAA me"
    assert b"instance-type" not in printed(found(ec2(MODEL, "1.0"), ["meta-data"]))
    assert printed(found(ec2(MODEL, "latest"), ["meta-data", "instance-id"])) == b"i-11111111222233334"
    assert printed(found(ec2(MODEL, "latest"), ["meta-data", "security-groups"])) == b"default\nweb"
    assert printed(found(ec2(MODEL, "2008-02-01"), ["meta-data", "placement", "availability-zone"])) == b"nova"
    for words in (
        ["meta-data", "public-keys", "_name"],
        ["meta-data", "public-keys", "0", "_name"],
        ["nothing"],
        ["user-data", "x"],
    ):
        with pytest.raises(NoSuchPath):
            found(ec2(MODEL, "latest"), words)
    with pytest.raises(NoSuchPath):
        ec2(MODEL, "2030-01-01")


def test_vendor_data_of_the_file_and_of_services() -> None:
    assert document("latest", "vendor_data.json") == {"region": "here"}
    assert document("latest", "vendor_data2.json") == {"static": {"region": "here"}, "inventory": {"rack": 7}}
    with pytest.raises(NoSuchPath):
        openstack(MODEL, "2015-10-15", "vendor_data2.json")


def test_the_drive_has_both_trees_and_every_version() -> None:
    tree = image_of(MODEL)
    assert sorted(tree) == sorted(path for path, _ in files(MODEL))
    for version in (*OPENSTACK_VERSIONS, "latest"):
        assert json.loads(tree[f"openstack/{version}/meta_data.json"])["uuid"] == MODEL.server
        assert tree[f"openstack/{version}/user_data"] == b"#!/bin/sh\necho hi\n"
        assert (f"openstack/{version}/network_data.json" in tree) == (version >= "2015-10-15")
    assert tree["openstack/content/0000"] == b"welcome"
    ec2_data = json.loads(tree["ec2/latest/meta-data.json"])
    assert ec2_data["public-keys"] == {"0": {"openssh-key": "ssh-ed25519 AAAA me"}}
    assert tree["ec2/2009-04-04/user-data"] == b"#!/bin/sh\necho hi\n"
    assert EC2_VERSIONS[-1] == "2009-04-04"
    assert not any(path.startswith("ec2/1.0") for path in tree)


def test_too_large_metadata_is_refused() -> None:
    with pytest.raises(TooLarge, match="config drive"):
        refuse_too_large(msgspec.structs.replace(MODEL, vendor_data={"big": {"x": "y" * 600_000}}))


def test_disks_come_from_the_record() -> None:
    devices = (
        BlockDevice("image", "volume", 0, "image-1", device="/dev/vda", tag="root", volume="volume-1"),
        BlockDevice("volume", "volume", uuid="volume-2", device="/dev/vdb", tag="db", disk_bus="virtio"),
        BlockDevice("blank", "local", device="/dev/vdc", tag="scratch"),
        BlockDevice("blank", "local", device="/dev/vdd", guest_format="swap"),
        BlockDevice("blank", "local", device="/dev/vde", guest_format="xfs", tag="more"),
    )
    made = metadata_of(a_server(block_devices=devices), (), domain="x")
    assert made.disks == (
        Disk("root", "volume-1", "/dev/vda", ""),
        Disk("db", "volume-2", "/dev/vdb", "virtio"),
        Disk("scratch", "", "/dev/vdc", ""),
        Disk("more", "", "/dev/vde", ""),
    )
    assert made.mappings == {
        "ami": "vda", "root": "/dev/vda", "ebs0": "/dev/vdb", "ephemeral0": "vdc", "swap": "vdd",
        "ephemeral1": "vde",
    }  # fmt: skip
    assert made.hostname == "web1.x"


async def test_devices_attached_at_boot_are_on_the_drive() -> None:
    server = a_server(block_devices=(BlockDevice("blank", "volume", tag="db"),))
    settings = SimpleNamespace(dhcp_domain="", static_vendor_data={})
    context: Any = SimpleNamespace(settings=settings, seals=None, vendor_data=None)
    spec = GuestSpec(
        server.id, "web", 1, 512, config_drive=True, volumes=(VolumeDisk("volume-1", device="vdb", tag="db"),)
    )
    made = await with_drive(context, server, spec, {}, ())
    assert made.drive is not None
    assert made.drive.disks == (Disk("db", "volume-1", "vdb"),)
    assert (await with_drive(context, server, msgspec.structs.replace(spec, config_drive=False), {}, ())).drive is None
