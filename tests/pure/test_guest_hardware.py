"""What flavors and images ask of a guest's hardware, by Nova's names."""

import pytest

from moorage.model import guest_hardware
from moorage.model.errors import Invalid
from moorage.model.guest_hardware import CpuTopology
from moorage.model.resources import needs_of

Named = dict[str, str]


@pytest.mark.parametrize(
    ("specs", "properties", "why"),
    [
        ({}, {"hw_firmware_type": "efi"}, "Field value efi is invalid"),
        ({}, {"hw_vif_model": "carrier-pigeon"}, "Field value carrier-pigeon is invalid"),
        ({}, {"hw_watchdog_action": "bark"}, "Field value bark is invalid"),
        ({}, {"hw_video_ram": "much"}, "Invalid image metadata"),
        ({}, {"hw_cpu_cores": "two"}, "Invalid image metadata"),
        ({"hw:cpu_cores": "two"}, {}, "Invalid flavor extra spec"),
        ({"os:secure_boot": "disabled"}, {"os_secure_boot": "required"}, "os:secure_boot is disabled, and conflicts"),
        ({"hw:tpm_version": "2.0"}, {"hw_tpm_version": "1.2"}, "hw:tpm_version is 2.0, and conflicts"),
        ({"hw:tpm_version": "1.2"}, {"hw_tpm_model": "tpm-crb"}, "only valid with TPM version 2.0"),
        ({"hw:serial_port_count": "1"}, {"hw_serial_port_count": "2"}, "Forbidden to exceed flavor value"),
        ({"hw:serial_port_count": "x"}, {}, "expected an integer, got 'x'"),
        ({"hw:vif_multiqueue_enabled": "no"}, {"hw_vif_multiqueue_enabled": "yes"}, "conflicts with the image"),
        ({"hw:cpu_max_cores": "2"}, {"hw_cpu_max_cores": "4"}, "exceeds the limits of the flavor"),
        ({"hw:cpu_max_cores": "2"}, {"hw_cpu_cores": "4"}, "exceeds the limits of the flavor or image"),
    ],
)
def test_what_nova_refuses_at_its_api_is_refused(specs: Named, properties: Named, why: str) -> None:
    with pytest.raises(Invalid) as refused:
        guest_hardware.check(4, 512, specs, properties)
    assert why in refused.value.public


def test_what_is_allowed_passes() -> None:
    properties = {name: choices[-1] for name, choices in guest_hardware.CHOICES.items()}
    properties |= {"hw_vif_model": "VirtIO", "hw_maxphysaddr_bits": "42"}
    guest_hardware.check(4, 512, {}, properties)
    guest_hardware.check(1, 512, {"hw:vif_multiqueue_enabled": "no"}, {"hw_vif_multiqueue_enabled": "yes"})
    guest_hardware.check(1, 512, {"hw:cpu_sockets": "2"}, {"unknown": "x"})


@pytest.mark.parametrize(
    ("vcpus", "specs", "properties", "shape"),
    [
        (4, {"hw:cpu_sockets": "2"}, {}, (2, 2, 1)),
        (4, {"hw:cpu_max_sockets": "1"}, {}, (1, 4, 1)),
        (8, {"hw:cpu_threads": "2"}, {}, (4, 1, 2)),
        (8, {"hw:cpu_sockets": "2", "hw:cpu_cores": "2", "hw:cpu_threads": "2"}, {}, (2, 2, 2)),
        (8, {"hw:cpu_sockets": "8"}, {"hw_cpu_cores": "8"}, (1, 8, 1)),
        (8, {"hw:cpu_sockets": "8"}, {"hw_cpu_max_sockets": "2"}, (2, 4, 1)),
        (6, {"hw:cpu_max_cores": "4", "hw:cpu_max_sockets": "1"}, {}, (1, 3, 2)),
        (5, {"hw:cpu_cores": "2"}, {}, (5, 1, 1)),
        (1, {"hw:cpu_sockets": "4"}, {}, (1, 1, 1)),
    ],
)
def test_processors_are_arranged_as_near_as_can_be(
    vcpus: int, specs: Named, properties: Named, shape: tuple[int, int, int]
) -> None:
    assert guest_hardware.cpu_topology(vcpus, specs, properties) == CpuTopology(*shape)


def test_no_wish_is_no_arrangement_and_limits_may_leave_none() -> None:
    assert guest_hardware.cpu_topology(4, {"hw:cpu_policy": "shared"}, {}) is None
    one = {f"hw:cpu_max_{part}": "1" for part in guest_hardware.PARTS}
    with pytest.raises(Invalid, match="1:1:1 are impossible to satisfy for vcpus count 4"):
        guest_hardware.cpu_topology(4, one, {})


@pytest.mark.parametrize(
    ("specs", "properties", "traits"),
    [
        ({}, {"os_secure_boot": "optional"}, ()),
        ({}, {"os_secure_boot": "required"}, ("COMPUTE_SECURITY_UEFI_SECURE_BOOT",)),
        ({"os:secure_boot": "required"}, {}, ("COMPUTE_SECURITY_UEFI_SECURE_BOOT",)),
        ({"hw:tpm_version": "2.0"}, {}, ("COMPUTE_SECURITY_TPM_2_0", "COMPUTE_SECURITY_TPM_TIS")),
        (
            {},
            {"hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb"},
            ("COMPUTE_SECURITY_TPM_2_0", "COMPUTE_SECURITY_TPM_CRB"),
        ),
        ({"hw:tpm_version": "1.2"}, {}, ("COMPUTE_SECURITY_TPM_1_2", "COMPUTE_SECURITY_TPM_TIS")),
        ({}, {"hw_firmware_type": "uefi", "hw_firmware_stateless": "yes"}, ("COMPUTE_SECURITY_STATELESS_FIRMWARE",)),
        ({}, {"hw_firmware_stateless": "yes"}, ()),
    ],
)
def test_hosts_are_asked_for_what_novas_scheduler_asks(
    specs: Named, properties: Named, traits: tuple[str, ...]
) -> None:
    needs = needs_of(vcpus=1, memory_mb=1, disk_gb=0, extra_specs=specs, image_properties=properties)
    assert needs.required == traits
