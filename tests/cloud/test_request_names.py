"""What flavors, images and ports ask is in the guest, or is refused with the name of what is missing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_rebuild import guest, second_image

from moorage.model import guest_requests
from moorage.model.request_groups import UNCLAIMED_VNIC_TYPES

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def flavor_with(running: Running, name: str, **specs: str) -> str:
    body = {"flavor": {"name": name, "vcpus": 2, "ram": 128, "disk": 1}}
    made = (await running.admin.compute("POST", "/flavors", body)).json()["flavor"]["id"]
    told = await running.admin.compute("POST", f"/flavors/{made}/os-extra_specs", {"extra_specs": specs})
    assert told.status_code == 200, told.text
    return name


async def ended(running: Running, **more: Any) -> dict[str, Any]:
    """A server that is active, or in error, or the refusal."""
    reply = await running.admin.ask_boot("wishes", networks="none", **more)
    if reply.status_code != 202:
        return {"status": str(reply.status_code), "fault": {"message": reply.text}}
    return await running.admin.settled(reply.json()["server"]["id"])


MADE = {
    "hw:cpu_sockets": "2", "hw:boot_menu": "true", "hw:vif_multiqueue_enabled": "true", "hw:serial_port_count": "2",
    "hw:watchdog_action": "reset", "hw_rng:allowed": "true", "quota:cpu_shares": "100", "quota:disk_read_iops_sec": "100",
    "hw:hide_hypervisor_id": "true", "hw:pmu": "true", "hw:viommu_model": "intel", "hw:virtio_packed_ring": "true",
    "hw:sound_model": "ich9", "hw:usb_model": "qemu-xhci", "hw:redirected_usb_ports": "2", "hw:maxphysaddr_mode": "emulate",
    "hw:maxphysaddr_bits": "42",
    "quota:vif_inbound_average": "100",
}  # fmt: skip


async def test_what_a_simulated_host_makes_is_in_its_guest(running: Running) -> None:
    server = await ended(running, flavor=await flavor_with(running, "made", **MADE))
    assert server["status"] == "ACTIVE", server
    assert MADE.items() <= guest(running, server).spec.extra_specs.items()


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        ({"hw:cpu_policy": "dedicated"}, "not enough PCPU"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"}, "not enough PCPU"),
        ({"hw:numa_nodes": "2"}, "makes no guests with hw:numa_nodes"),
        ({"hw:mem_page_size": "large"}, "makes no guests with hw:mem_page_size"),
        ({"hw:pmem": "6GB"}, "not enough CUSTOM_PMEM_NAMESPACE_6GB"),
        ({"hw:ephemeral_encryption": "true"}, "without COMPUTE_EPHEMERAL_ENCRYPTION"),
        ({"hw:tpm_version": "2.0"}, "without COMPUTE_SECURITY_TPM_2_0"),
        ({"capabilities:hypervisor_type": "s== xen"}, "lacks the flavor's capabilities hypervisor_type"),
        ({"hw:locked_memory": "true"}, "mem_page_size is not set"),
        ({"hw:cpu_thread_policy": "isolate"}, "non dedicated"),
        ({"hw:mem_encryption": "true"}, "hw_firmware_type=uefi"),
    ],
)
async def test_what_no_host_makes_is_refused_to_its_owner_by_name(
    running: Running, specs: dict[str, str], why: str
) -> None:
    name = await flavor_with(running, f"asks {'-'.join(specs).replace(':', ' ')}", **specs)
    server = await ended(running, flavor=name)
    assert server["status"] in {"ERROR", "400"}
    assert why in server["fault"]["message"]
    plain = await running.admin.active("plain", networks="none")
    id = (await running.admin.compute("GET", "/flavors/detail")).json()["flavors"]
    new = next(each["id"] for each in id if each["name"] == name)
    resized = await running.admin.compute("POST", f"/servers/{plain['id']}/action", {"resize": {"flavorRef": new}})
    if server["status"] == "400":
        assert resized.status_code == 400
        assert why in resized.text
    else:
        assert resized.status_code == 202, resized.text
        assert (await running.admin.settled(plain["id"]))["flavor"]["original_name"] == "m1.nano"


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"hw_architecture": "aarch64"}, "cannot run the image (architecture aarch64)"),
        ({"hypervisor_type": "hyperv"}, "cannot run the image (hypervisor hyperv)"),
        ({"vm_mode": "xen"}, "cannot run the image (mode xen)"),
        ({"hw_emulation_architecture": "aarch64"}, "without COMPUTE_ARCH_AARCH64"),
        ({"hw_mem_encryption": "true", "hw_firmware_type": "uefi"}, "without HW_CPU_X86_AMD_SEV"),
        ({"hw_numa_nodes": "1"}, "makes no guests with hw_numa_nodes"),
        ({"hw_cpu_policy": "dedicated"}, "not enough PCPU"),
        ({"hw_cpu_policy": "nonsense"}, "nonsense"),
        ({"hw_boot_menu": "maybe"}, "maybe"),
    ],
)
async def test_an_image_that_no_host_can_run_is_refused(running: Running, properties: dict[str, str], why: str) -> None:
    image = await second_image(running, "wishes", **properties)
    server = await ended(running, imageRef=image)
    assert server["status"] in {"ERROR", "400"}
    assert why in server["fault"]["message"]
    plain = await running.admin.active("plain", networks="none")
    again = await running.admin.compute("POST", f"/servers/{plain['id']}/action", {"rebuild": {"imageRef": image}})
    assert again.status_code == 400, again.text
    assert guest(running, plain).rebuilds == 0


@pytest.mark.parametrize("vnic_type", sorted(UNCLAIMED_VNIC_TYPES - {"smart-nic"}))
async def test_a_port_without_a_device_is_refused_by_its_type(running: Running, vnic_type: str) -> None:
    network = await running.admin.id_of("network", "private")
    body = {"port": {"network_id": network, "binding:vnic_type": vnic_type}}
    port = (await running.admin.network("POST", "/ports", body)).json()["port"]["id"]
    refused = await running.admin.ask_boot("wishes", networks=[{"port": port}])
    assert refused.status_code == 400
    assert vnic_type in refused.text


async def test_a_server_that_an_earlier_release_booted_stays_manageable(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await flavor_with(running, "pinned", **{"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"})
    with monkeypatch.context() as earlier:
        earlier.setattr(guest_requests, "resources_of", lambda *_: {})
        earlier.setattr(guest_requests, "unmade", lambda *_: [])
        server = await running.admin.active("older", networks="none", flavor=name)
    path = f"/servers/{server['id']}/action"

    async def after(**action: Any) -> str:
        reply = await running.admin.compute("POST", path, action)
        assert reply.status_code < 300, reply.text
        await running.wait_until_unlocked(server["id"])
        return str((await running.admin.settled(server["id"]))["status"])

    assert await after(**{"os-stop": None}) == "SHUTOFF"
    assert await after(**{"os-start": None}) == "ACTIVE"
    assert await after(migrate=None) == "VERIFY_RESIZE"
    assert await after(confirmResize=None) == "ACTIVE"
    held = await running.admin.claimed(server["id"])
    assert {name for each in held.values() for name in each["resources"]} == {"VCPU", "MEMORY_MB", "DISK_GB"}
    assert await after(rebuild={"imageRef": await running.admin.id_of("image", "tiny")}) == "ACTIVE"
    await running.admin.gone(server["id"])
