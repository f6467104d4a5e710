"""Every name that Nova publishes has a row that says what becomes of it here, and the row is true."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.helpers.world_builder import Cloud

from moorage.api.compute.extra_spec_validators import EXACT
from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.machine_features import refuse_unmade
from moorage.model import guest_hardware, request_names
from moorage.model.errors import HostFailed, Invalid
from moorage.model.guest import GuestSpec
from moorage.model.guest_requests import settled
from moorage.model.ids import ServerId
from moorage.model.request_groups import UNCLAIMED_VNIC_TYPES
from moorage.model.request_names import Fate, Handling, handling_of
from moorage.model.resources import needs_of
from moorage.model.world import Ask, World
from moorage.model.world_snapshot import photo_of, world_of
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank

SERVER = ServerId("11111111-0000-4000-8000-000000000000")
MACHINE = MachineFacts("x86_64", "/usr/bin/qemu", "kvm", (), {}, 7_002_000, uefi=True, secure_boot=True)
NAMES: dict[str, list[str]] = json.loads((Path(__file__).parents[1] / "golden/nova_names.json").read_text())
TABLES: dict[str, Mapping[str, Handling]] = {
    "extra_specs": request_names.EXTRA_SPECS,
    "image_properties": request_names.IMAGE_PROPERTIES,
    "hints": request_names.HINTS,
    "block_device": request_names.BLOCK_DEVICE,
    "vnic_types": request_names.VNIC_TYPES,
    "quotas": request_names.QUOTAS,
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_name_that_nova_publishes_has_a_row(kind: str) -> None:
    """To read Nova's names again: `python -m moorage_testing.nova_names nova-34.0.0 > tests/golden/nova_names.json`."""
    assert [name for name in NAMES[kind] if handling_of(name, TABLES[kind]) is None] == []


def test_a_host_takes_the_names_of_glances_metadata_definitions() -> None:
    """`etc/metadefs/compute-cpu-mode.json` and `compute-vcputopology.json` of Glance, by which Horizon offers them for flavors and images."""
    offered = (
        "cpu_mode",
        "cpu_maxsockets",
        "cpu_maxcores",
        "cpu_maxthreads",
        "cpu_sockets",
        "cpu_cores",
        "cpu_threads",
    )
    specs, properties = ({f"hw{mark}{each}": "1" for each in offered} for mark in (":", "_"))
    assert request_names.unknown_names(specs) == []
    assert [each for each in properties if handling_of(each, request_names.IMAGE_PROPERTIES) is None] == []


def test_each_extra_spec_that_is_accepted_has_a_row() -> None:
    own = {"moorage:wait"}
    assert [name for name in EXACT if handling_of(name, request_names.EXTRA_SPECS) is None and name not in own] == []


WITH = {
    "hw:cpu_thread_policy": {"hw:cpu_policy": "dedicated"},
    "hw:cpu_realtime": {"hw:cpu_policy": "dedicated", "hw:cpu_realtime_mask": "^0"},
    "hw:cpu_realtime_mask": {"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "true"},
    "hw:cpu_dedicated_mask": {"hw:cpu_policy": "mixed"},
    "hw:emulator_threads_policy": {"hw:cpu_policy": "dedicated"},
    "hw:numa_cpus.{num}": {"hw:numa_nodes": "1", "hw:numa_mem.0": "512"},
    "hw:numa_mem.{num}": {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3"},
    "hw:locked_memory": {"hw:mem_page_size": "large"},
    "hw:mem_encryption_model": {"hw:mem_encryption": "true"},
    "hw:ephemeral_encryption_format": {"hw:ephemeral_encryption": "true"},
    "hw:tpm_model": {"hw:tpm_version": "2.0"},
    "hw_cpu_thread_policy": {"hw_cpu_policy": "dedicated"},
    "hw_numa_cpus": {"hw_numa_nodes": "1", "hw_numa_cpus.0": "0-3", "hw_numa_mem.0": "512"},
    "hw_numa_mem": {"hw_numa_nodes": "1", "hw_numa_cpus.0": "0-3", "hw_numa_mem.0": "512"},
    "hw_numa_cpus.{num}": {"hw_numa_nodes": "1", "hw_numa_cpus.0": "0-3", "hw_numa_mem.0": "512"},
    "hw_numa_mem.{num}": {"hw_numa_nodes": "1", "hw_numa_cpus.0": "0-3", "hw_numa_mem.0": "512"},
    "hw_locked_memory": {"hw_mem_page_size": "large", "hw:mem_page_size": "any"},
    "hw_mem_page_size": {"hw:mem_page_size": "any"},
    "hw_mem_encryption_model": {"hw_mem_encryption": "true"},
    "hw_ephemeral_encryption_format": {"hw_ephemeral_encryption": "true"},
    "hw_ephemeral_encryption_secret_uuid": {"hw_ephemeral_encryption": "true"},
    "hw_cpu_realtime_mask": {"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "true"},
    "hw_tpm_model": {"hw_tpm_version": "2.0"},
}
"""What a name needs beside it, so that it asks for anything."""
VALUES = {
    "cpu_policy": "dedicated", "cpu_thread_policy": "prefer", "cpu_realtime_mask": "^0", "cpu_dedicated_mask": "0",
    "emulator_threads_policy": "share", "numa_nodes": "1", "mem_page_size": "large", "mem_encryption_model": "amd-sev",
    "ephemeral_encryption_format": "luks", "tpm_model": "tpm-tis", "tpm_version": "2.0", "pmem": "6GB",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        name
        for table in (request_names.EXTRA_SPECS, request_names.IMAGE_PROPERTIES)
        for name, handling in table.items()
        if handling.simulated is Fate.NO_HOST and "secure_boot" not in name
    ],
)
def test_what_no_host_has_chooses_no_host_and_the_cause_names_it(name: str) -> None:
    mark = "hw:" if name.startswith("hw:") else "hw_"
    both = {"hw_firmware_type": "uefi"} | WITH.get(name, {})
    if "{" not in name and name not in ("hw_numa_cpus", "hw_numa_mem"):
        both[name] = VALUES.get(name.removeprefix(mark), "true")
    if name == "hw:numa_cpus.{num}":
        both["hw:numa_cpus.0"] = "0-3"
    if name == "hw:numa_mem.{num}":
        both["hw:numa_mem.0"] = "512"
    specs = {key: value for key, value in both.items() if key.startswith("hw:")}
    properties = {key: value for key, value in both.items() if not key.startswith("hw:")}
    guest_hardware.check(4, 512, specs, properties)
    needs = needs_of(vcpus=4, memory_mb=512, disk_gb=0, extra_specs=specs, image_properties=properties)
    with pytest.raises(HostFailed) as refused:
        refuse_unmade(GuestSpec(SERVER, "web", 4, 512, extra_specs=specs, image_properties=properties), MACHINE)
    assert refused.value.code == "not_supported", "also where a site has told Placement that this host has it"
    question = Ask(resources=needs.resources, required=needs.required, extra_specs=specs, image_properties=properties)
    verdict = rank(question, Cloud().host("h1").world(), Profile())
    assert verdict.best == ()
    words = ("without ", "makes no guests with ", "not enough ")
    assert any(cause for cause in verdict.counts() if any(each in cause for each in words)), verdict.counts()


@pytest.mark.parametrize(
    ("specs", "properties", "why"),
    [
        ({"hw:locked_memory": "true"}, {}, "mem_page_size is not set"),
        ({"hw:cpu_realtime": "true", "hw:cpu_realtime_mask": "^0"}, {}, "non dedicated"),
        ({"hw:cpu_thread_policy": "isolate"}, {}, "non dedicated"),
        ({"hw:emulator_threads_policy": "isolate"}, {}, "dedicated CPU policy"),
        ({"hw:numa_nodes": "3"}, {}, "evenly"),
        ({"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-9", "hw:numa_mem.0": "512"}, {}, "larger than max 3"),
        ({"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "99"}, {}, "expected 512"),
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "not permitted to override"),
        ({"hw:cpu_policy": "mixed"}, {}, "hw:cpu_dedicated_mask or hw:cpu_realtime_mask"),
        ({"hw:cpu_policy": "dedicated", "resources:PCPU": "4"}, {}, "not both"),
        ({"resources:PCPU": "3"}, {}, "exactly 4"),
        ({"hw:mem_page_size": "small"}, {"hw_mem_page_size": "large"}, "forbidden against"),
        ({"hw:mem_encryption": "true"}, {}, "hw_firmware_type=uefi"),
        ({"hw:mem_encryption": "false"}, {"hw_mem_encryption": "true"}, "conflicts"),
        ({}, {"hw_mem_encryption": "true", "hw_firmware_type": "uefi", "hw_machine_type": "pc"}, "q35"),
        ({}, {"hw_cpu_policy": "nonsense"}, "nonsense"),
        ({}, {"hw_architecture": "nonsense"}, "nonsense"),
        ({}, {"img_hv_type": "nonsense"}, "nonsense"),
        ({}, {"hw_vm_mode": "nonsense"}, "nonsense"),
        ({}, {"img_hv_requested_version": "new"}, "new"),
        ({}, {"hw_numa_nodes": "x"}, "x"),
        ({}, {"hw_viommu_model": "nonsense"}, "nonsense"),
        ({}, {"hw_boot_menu": "maybe"}, "maybe"),
        ({}, {"hw_maxphysaddr_mode": "emulate"}, "hw:maxphysaddr_bits"),
        ({}, {"hw_pmu": "maybe"}, "maybe"),
        ({"hw:pmu": "true"}, {"hw_pmu": "false"}, "conflicts"),
        ({"hw:virtio_packed_ring": "true"}, {"hw_virtio_packed_ring": "false"}, "conflicts"),
        ({"hw:sound_model": "ich9"}, {"hw_sound_model": "ac97"}, "conflicts"),
    ],
)
def test_novas_contradictions_are_refused(specs: dict[str, str], properties: dict[str, str], why: str) -> None:
    with pytest.raises(Invalid) as refused:
        guest_hardware.check(4, 512, specs, properties)
    assert why in refused.value.public


def test_a_vnic_type_without_a_device_is_refused_by_name() -> None:
    assert {
        name for name, row in request_names.VNIC_TYPES.items() if row.libvirt is Fate.REFUSED
    } == UNCLAIMED_VNIC_TYPES


# ------------------------------------------------------------------------------------- images held against hosts

X86 = '{"hypervisor_type":"QEMU","hypervisor_version":7002000,"cpu":"{\\"arch\\":\\"x86_64\\",\\"maxphysaddr\\":{\\"bits\\":46}}"}'
ARM = '{"hypervisor_type":"QEMU","hypervisor_version":8002000,"cpu":"{\\"arch\\":\\"aarch64\\"}"}'


def two_kinds() -> World:
    return Cloud().host("arm", kind=ARM).host("unknown", kind=None).host("x86", kind=X86).world()


def hosts_for(**ask: dict[str, str]) -> set[str]:
    return {each.name for each in rank(Ask(resources={"VCPU": 1}, **ask), two_kinds(), Profile()).best} - {"unknown"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("properties", "chosen"),
    [
        ({"hw_architecture": "aarch64"}, {"arm"}),
        ({"architecture": "amd64"}, {"x86"}),
        ({"hw_architecture": "i586"}, {"x86"}),
        ({"architecture": "ppc64le"}, set()),
        ({"img_hv_type": "kvm"}, {"arm", "x86"}),
        ({"hypervisor_type": "hyperv"}, set()),
        ({"hw_vm_mode": "xen"}, set()),
        ({"vm_mode": "hv"}, {"arm", "x86"}),
        ({"img_hv_type": "qemu", "img_hv_requested_version": ">=8.0,<9"}, {"arm"}),
        ({"img_hv_type": "qemu", "hypervisor_version_requires": "==7.2"}, {"x86"}),
        ({"img_hv_requested_version": ">=99.0"}, {"arm", "x86"}),  # Nova looks at a version with a type only
        ({"hw_maxphysaddr_bits": "48"}, {"arm"}),
    ],
)
def test_an_image_chooses_hosts_that_can_run_it(properties: dict[str, str], chosen: set[str]) -> None:
    assert hosts_for(image_properties=properties) == chosen


@pytest.mark.parametrize(
    ("specs", "chosen"),
    [
        ({"capabilities:hypervisor_type": "QEMU"}, {"arm", "x86"}),
        ({"capabilities:hypervisor_version": ">= 8000000"}, {"arm"}),
        ({"capabilities:cpu_info:arch": "<in> x86"}, {"x86"}),
        ({"capabilities:cpu_info:arch": "<or> aarch64 <or> ppc64"}, {"arm"}),
        ({"capabilities:cpu_info:arch": "s== x86_64"}, {"x86"}),
        ({"capabilities:cpu_info:nothing": "x"}, set()),
        ({"hw:maxphysaddr_bits": "40"}, {"x86"}),
        ({"capabilities:hypervisor_version": "= 99000000"}, set()),
    ],
)
def test_a_flavor_chooses_hosts_by_their_capabilities(specs: dict[str, str], chosen: set[str]) -> None:
    assert hosts_for(extra_specs=specs) == chosen


def test_the_cause_names_what_is_wrong_and_no_host() -> None:
    only = {"hw_architecture": "ppc64le"}
    world = Cloud().host("secret-name", kind=X86).world()
    verdict = rank(Ask(resources={"VCPU": 1}, image_properties=only), world, Profile())
    assert verdict.fault() == "No valid host was found. 1 host: cannot run the image (architecture ppc64le)"
    assert "secret-name: its architecture is x86_64, the image's is ppc64le" in verdict.explain()
    missing = rank(Ask(resources={"VCPU": 1}, required=("COMPUTE_SECURITY_TPM_2_0",)), world, Profile())
    assert missing.fault() == "No valid host was found. 1 host: traits do not match: without COMPUTE_SECURITY_TPM_2_0"


def test_a_snapshot_keeps_what_hosts_are() -> None:
    again = world_of(photo_of(two_kinds()))
    for world in (two_kinds(), again):
        assert [world.kinds[kind].hypervisor_version for kind in world.kind] == [8_002_000, 0, 7_002_000]


def test_a_guest_that_exists_is_not_refused_for_what_it_never_had() -> None:
    specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2", "hw:numa_cpus.0": "0", "hw:cpu_cores": "2"}
    assert settled(specs) == {"hw:cpu_cores": "2"}
    sounds = {"hw:sound_model": "virtio", "hw_sound_model": "ich9"}
    assert settled(sounds) == {"hw_sound_model": "ich9"}


@pytest.mark.parametrize(
    ("specs", "named"),
    [
        ({"hw:not_yet": "1", "hw:watchdog_action": "reset"}, "hw:not_yet"),
        ({"quota:not_yet": "1"}, "quota:not_yet"),
    ],
)
def test_a_host_refuses_an_extra_spec_that_its_release_does_not_know(specs: dict[str, str], named: str) -> None:
    with pytest.raises(HostFailed, match=f"guests with {named}, which its release does not know") as refused:
        refuse_unmade(GuestSpec(SERVER, "web", 4, 512, extra_specs=specs), MACHINE)
    assert refused.value.code == "not_supported"


def test_names_of_a_site_are_not_looked_at() -> None:
    specs = {
        "moorage:wait": "60",
        "site:rack": "7",
        "aggregate_instance_extra_specs:ssd": "true",
        "hw:watchdog_action": "reset",
    }
    properties = {"site_rack": "7", "hw_disk_bus": "virtio", "hw_of_nobody": "1", "os_distro": "debian"}
    refuse_unmade(GuestSpec(SERVER, "web", 4, 512, extra_specs=specs, image_properties=properties), MACHINE)


@pytest.mark.parametrize(("virt_type", "refused"), [("kvm", False), ("qemu", True)])
def test_an_image_for_kvm_is_refused_where_guests_are_emulated(virt_type: str, refused: bool) -> None:
    spec = GuestSpec(SERVER, "web", 4, 512, image_properties={"img_hv_type": "kvm"})
    machine = MachineFacts("x86_64", "/usr/bin/qemu", virt_type, (), {}, 7_002_000)
    if not refused:
        refuse_unmade(spec, machine)
        return
    with pytest.raises(HostFailed, match="guests of this host are emulated"):
        refuse_unmade(spec, machine)
