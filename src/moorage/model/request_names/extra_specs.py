"""Extra specs of flavors."""

from moorage.model.request_names.handling import Fate, alike, each

_UNMADE = "guest_requests.py, scheduler/filters/host_kinds.py"
_MACHINE = "drivers/libvirt/machine_features.py"

EXTRA_SPECS = {
    **alike(
        Fate.NO_HOST, _UNMADE,
        "hw:cpu_policy", "hw:cpu_thread_policy", "hw:cpu_realtime", "hw:cpu_dedicated_mask", "hw:emulator_threads_policy",
        "hw:cpu_realtime_mask", "hw:numa_nodes", "hw:numa_cpus.{num}", "hw:numa_mem.{num}", "hw:mem_page_size", "hw:locked_memory",
        "hw:mem_encryption", "hw:mem_encryption_model", "hw:ephemeral_encryption", "hw:ephemeral_encryption_format", "hw:pmem",
    ),
    **alike(Fate.NO_HOST, "guest_hardware.traits_of; no driver reports a TPM", "hw:tpm_model", "hw:tpm_version"),
    **alike(Fate.NO_EFFECT, "only for a TPM, which no host has", "hw:tpm_secret_security"),
    **alike(Fate.NO_EFFECT, "only for PCI devices of aliases, which are refused; `socket` asks for a trait", "hw:pci_numa_affinity_policy"),
    **alike(Fate.REFUSED, "operations/boot/boot_servers.py", "pci_passthrough:alias", "accel:device_profile"),
    **alike(
        Fate.MADE, "drivers/libvirt/domain_xml.py, guest_devices.py, firmware.py, quotas.py",
        "hw:cpu_sockets", "hw:cpu_cores", "hw:cpu_threads", "hw:cpu_max_sockets", "hw:cpu_max_cores", "hw:cpu_max_threads",
        "hw:boot_menu", "hw:vif_multiqueue_enabled", "hw:serial_port_count", "hw:watchdog_action", "hw_rng:allowed",
        "hw_rng:rate_bytes", "hw_rng:rate_period", "hw_video:ram_max_mb", "quota:cpu_shares", "quota:cpu_period", "quota:cpu_quota",
        "quota:disk_{stat}_{metric}_sec",
    ),
    **alike(Fate.NO_EFFECT, "in Glance's metadata definitions, so flavors have them; Nova reads `hw:cpu_max_…`, and the mode from its settings",
        "hw:cpu_maxsockets", "hw:cpu_maxcores", "hw:cpu_maxthreads", "hw:cpu_mode"),
    **alike(Fate.NO_EFFECT, "bursts are not read by Nova's libvirt driver", "quota:disk_{stat}_{metric}_sec_max", "quota:disk_{stat}_{metric}_sec_max_length"),
    **alike(
        Fate.MADE, _MACHINE,
        "hw:hide_hypervisor_id", "hide_hypervisor_id", "hw:pmu", "hw:viommu_model", "hw:virtio_packed_ring", "hw:sound_model",
        "hw:usb_model", "hw:maxphysaddr_mode", "hw:maxphysaddr_bits",
    ),
    **each(Fate.MADE, Fate.DRIVER_REFUSES, _MACHINE, "hw:redirected_usb_ports", "quota:vif_{stat}_{metric}"),
    **each(Fate.NO_HOST, Fate.MADE, "guest_hardware.traits_of, drivers/libvirt/firmware.py", "os:secure_boot"),
    **alike(
        Fate.SCHEDULER, "resources.py, scheduler/filters/",
        "resources{group}:CUSTOM_{resource}", "resources{group}:{resource_class}", "trait{group}:CUSTOM_{trait}", "trait{group}:{trait}",
        "group_policy", "aggregate_instance_extra_specs:{key}", "capabilities:{capability}", "capabilities:{capability}{filter}",
    ),
    **alike(
        Fate.NO_EFFECT, "of VMware; Nova's libvirt driver does not read it either",
        "quota:{key}_limit", "quota:{key}_reservation", "quota:{key}_shares_level", "quota:{key}_shares_share",
        "vmware:hw_version", "vmware:storage_policy",
    ),
}  # fmt: skip
