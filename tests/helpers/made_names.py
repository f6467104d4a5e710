"""A guest for each extra spec and each image property that a libvirt host makes true, and where its domain shows that."""

from collections.abc import Iterator
from typing import NamedTuple

from moorage.model import request_names
from moorage.model.request_names import Fate


class Shown(NamedTuple):
    """`path`: what ElementTree finds in the domain of a guest with it, and not in one without."""

    value: str
    path: str
    beside: tuple[dict[str, str], dict[str, str]] = ({}, {})
    """Extra specs and image properties that it needs; the guest without it has them, too."""


Q35 = ({}, {"hw_machine_type": "q35"})
BOTH = {
    "boot_menu": Shown("yes", "os/bootmenu[@enable='yes']"),
    "watchdog_action": Shown("pause", "devices/watchdog[@action='pause']"),
    "serial_port_count": Shown("3", "devices/serial/target[@port='2']"),
    "vif_multiqueue_enabled": Shown("true", "devices/interface/driver[@queues='4']"),
    "cpu_sockets": Shown("2", "cpu/topology[@sockets='2']"),
    "cpu_cores": Shown("2", "cpu/topology[@cores='2']"),
    "cpu_threads": Shown("2", "cpu/topology[@threads='2']"),
    "cpu_max_sockets": Shown("1", "cpu/topology[@sockets='1']"),
    "cpu_max_cores": Shown("2", "cpu/topology[@cores='2']", ({"hw:cpu_max_sockets": "1"}, {})),
    "pmu": Shown("false", "features/pmu[@state='off']"),
    "viommu_model": Shown("intel", "devices/iommu[@model='intel']", Q35),
    "virtio_packed_ring": Shown("true", "devices/disk/driver[@packed='on']"),
    "maxphysaddr_mode": Shown(
        "emulate", "cpu/maxphysaddr[@mode='emulate'][@bits='42']", ({"hw:maxphysaddr_bits": "42"}, {})
    ),
    "sound_model": Shown("ich9", "devices/sound[@model='ich9']"),
    "usb_model": Shown("qemu-xhci", "devices/controller[@model='qemu-xhci']"),
}
"""Names that are an extra spec with `hw:` and an image property with `hw_`."""
EXTRA_SPECS = {f"hw:{name}": shown for name, shown in BOTH.items()} | {
    "hw:cpu_max_threads": Shown("2", "cpu/topology[@threads='1']", ({"hw:cpu_threads": "4"}, {})),
    "hide_hypervisor_id": Shown("true", "features/kvm/hidden[@state='on']"),
    "hw:hide_hypervisor_id": Shown("true", "features/kvm/hidden[@state='on']"),
    "hw_rng:rate_bytes": Shown("99", "devices/rng/rate[@bytes='99']"),
    "hw_rng:rate_period": Shown("500", "devices/rng/rate[@period='500']", ({"hw_rng:rate_bytes": "99"}, {})),
    "quota:cpu_shares": Shown("512", "cputune/shares"),
    "quota:cpu_period": Shown("20000", "cputune/period"),
    "quota:cpu_quota": Shown("5000", "cputune/quota"),
    "quota:disk_{stat}_{metric}_sec": Shown("4096", "devices/disk/iotune/read_bytes_sec"),
}
IMAGE_PROPERTIES = {f"hw_{name}": shown for name, shown in BOTH.items()} | {
    "hw_disk_bus": Shown("scsi", "devices/disk/target[@bus='scsi']"),
    "hw_scsi_model": Shown("lsisas1068", "devices/controller[@model='lsisas1068']", ({}, {"hw_disk_bus": "scsi"})),
    "hw_firmware_type": Shown("uefi", "os/nvram"),
    "hw_input_bus": Shown("virtio", "devices/input[@type='keyboard'][@bus='virtio']"),
    "hw_machine_type": Shown("q35", "devices/controller[@model='pcie-root-port']"),
    "hw_pointer_model": Shown("usbtablet", "devices/input[@type='tablet']"),
    "hw_qemu_guest_agent": Shown("yes", "devices/channel/target[@name='org.qemu.guest_agent.0']"),
    "hw_video_model": Shown("virtio", "devices/video/model[@type='virtio']"),
    "hw_video_ram": Shown("16", "devices/video/model[@vram='16384']", ({"hw_video:ram_max_mb": "64"}, {})),
    "hw_vif_model": Shown("e1000", "devices/interface/model[@type='e1000']"),
    "os_type": Shown("windows", "clock[@offset='localtime']"),
    "hw_time_hpet": Shown("true", "clock/timer[@name='hpet'][@present='yes']"),
    "img_hide_hypervisor_id": Shown("true", "features/kvm/hidden[@state='on']"),
    "os_secure_boot": Shown(
        "required", "os/firmware/feature[@enabled='yes'][@name='secure-boot']", ({}, {"hw_firmware_type": "uefi"})
    ),
}
ELSEWHERE = {
    "hw:maxphysaddr_bits": "of maxphysaddr_mode, in the same row",
    "hw_maxphysaddr_bits": "of maxphysaddr_mode, in the same row",
    "hw_cpu_max_threads": "refuses what the image itself asks for: test_driver_domain.py",
    "hw_rng:allowed": "takes a device away: test_driver_domain.py",
    "hw_video:ram_max_mb": "allows what an image asks for: test_driver_domain.py",
    "os:secure_boot": "needs an image for UEFI: test_driver_domain.py, test_firmware.py",
    "hw_cdrom_bus": "needs a config drive: test_driver_domain.py, test_guest_hardware.py",
    "hw_rescue_bus": "of a rescue: test_driver_real.py",
    "hw_rescue_device": "of a rescue: test_driver_real.py",
    "os_command_line": "of a kernel: each guest of tests/hypervisor boots with one",
}
"""Names of which the domain of a guest that boots says nothing by itself → why, and where they are tried."""


def made(kind: str) -> Iterator[str]:
    """Names of one table that the libvirt driver makes true."""
    for name, row in getattr(request_names, kind).items():
        if row.libvirt is Fate.MADE and name not in ELSEWHERE:
            yield name


EACH = [(kind, name) for kind in ("EXTRA_SPECS", "IMAGE_PROPERTIES") for name in made(kind)]


def asking(kind: str, name: str) -> tuple[Shown, dict[str, str], dict[str, str]]:
    """What shows it, and the extra specs and image properties of a guest that asks for it."""
    shown = (EXTRA_SPECS if kind == "EXTRA_SPECS" else IMAGE_PROPERTIES)[name]
    specs, properties = ({**each} for each in shown.beside)
    (specs if kind == "EXTRA_SPECS" else properties)[name.format(stat="read", metric="bytes")] = shown.value
    return shown, specs, properties
