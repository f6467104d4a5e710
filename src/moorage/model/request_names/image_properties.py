"""Properties of images, by the names of Nova's ImageMetaProps and its older ones."""

from moorage.model.request_names.handling import Fate, alike, each

_UNMADE = "guest_requests.py, scheduler/filters/host_kinds.py"
_MACHINE = "drivers/libvirt/machine_features.py"

IMAGE_PROPERTIES = {
    **alike(
        Fate.NO_HOST, _UNMADE,
        "hw_cpu_policy", "hw_cpu_thread_policy", "hw_cpu_realtime_mask", "hw_numa_nodes", "hw_numa_cpus", "hw_numa_mem",
        "hw_numa_cpus.{num}", "hw_numa_mem.{num}",
        "hw_mem_page_size", "hw_locked_memory", "hw_mem_encryption", "hw_mem_encryption_model", "hw_ephemeral_encryption",
        "hw_ephemeral_encryption_format", "hw_ephemeral_encryption_secret_uuid",
    ),
    **alike(Fate.NO_HOST, "guest_hardware.traits_of; no driver reports it", "hw_tpm_model", "hw_tpm_version", "hw_firmware_stateless"),
    **alike(
        Fate.SCHEDULER, "image_requirements.py, scheduler/filters/host_kinds.py",
        "hw_architecture", "architecture", "hw_vm_mode", "vm_mode", "img_hv_requested_version",
        "hypervisor_version_requires", "hw_emulation_architecture", "traits_required",
    ),
    **alike(
        Fate.SCHEDULER,
        "image_requirements.py; a host that emulates refuses `kvm`, as libvirt there reports none to Nova (drivers/libvirt/machine_features.py)",
        "img_hv_type", "hypervisor_type",
    ),
    **alike(
        Fate.MADE, "drivers/libvirt/domain_xml.py, guest_devices.py, firmware.py",
        "hw_boot_menu", "hw_cdrom_bus", "hw_disk_bus", "hw_scsi_model", "hw_cpu_sockets", "hw_cpu_cores", "hw_cpu_threads",
        "hw_cpu_max_sockets", "hw_cpu_max_cores", "hw_cpu_max_threads", "hw_firmware_type", "hw_input_bus", "hw_machine_type",
        "hw_pointer_model", "hw_qemu_guest_agent", "hw_rescue_bus", "hw_rescue_device", "hw_serial_port_count", "hw_video_model",
        "hw_video_ram", "hw_vif_model", "hw_vif_multiqueue_enabled", "hw_watchdog_action", "os_command_line", "os_type",
    ),
    **alike(
        Fate.MADE, _MACHINE,
        "hw_pmu", "hw_time_hpet", "hw_viommu_model", "hw_virtio_packed_ring", "hw_maxphysaddr_mode", "hw_maxphysaddr_bits",
        "hw_sound_model", "hw_usb_model", "img_hide_hypervisor_id",
    ),
    **each(Fate.MADE, Fate.DRIVER_REFUSES, _MACHINE, "hw_redirected_usb_ports"),
    **each(Fate.NO_HOST, Fate.MADE, "guest_hardware.traits_of, drivers/libvirt/firmware.py", "os_secure_boot"),
    **alike(
        Fate.API, "operations/",
        "hw_auto_disk_config", "auto_disk_config", "img_bdm_v2", "bdm_v2", "img_block_device_mapping", "block_device_mapping",
        "img_config_drive", "img_mappings", "mappings", "img_root_device_name", "root_device_name", "os_require_quiesce",
    ),
    **alike(Fate.NO_EFFECT, "the usual model is made, as by Nova, which does not read it either", "hw_rng_model"),
    **alike(Fate.NO_EFFECT, "in Glance's metadata definitions, so images have them; Nova reads `hw_cpu_max_…`, and the mode from its settings",
        "hw_cpu_maxsockets", "hw_cpu_maxcores", "hw_cpu_maxthreads", "hw_cpu_mode"),
    **alike(Fate.NO_EFFECT, "no floppies are made, as by Nova's libvirt driver", "hw_floppy_bus"),
    **alike(Fate.NO_EFFECT, "only for a PCI alias, which is refused; `socket` asks for a trait", "hw_pci_numa_affinity_policy"),
    **alike(Fate.NO_EFFECT, "Nova's [glance] verify_glance_signatures is off by default",
        "img_signature", "img_signature_hash_method", "img_signature_certificate_uuid", "img_signature_key_type"),
    **alike(Fate.NO_EFFECT, "stored and shown; nothing in Nova's libvirt driver follows from it", "os_distro", "img_owner_id", "owner_id",
        "img_version", "os_admin_user", "vmware_ostype"),
    **alike(
        Fate.NO_EFFECT, "of VMware or Xen; Nova's libvirt driver does not read it",
        "hw_device_id", "xenapi_device_id", "hw_disk_type", "vmware_disktype", "hw_ipxe_boot", "ipxe_boot", "img_bittorrent",
        "bittorrent", "img_cache_in_nova", "cache_in_nova", "img_compression_level", "xenapi_image_compression_level",
        "img_linked_clone", "vmware_linked_clone", "img_use_agent", "xenapi_use_agent", "os_skip_agent_inject_files_at_boot",
        "xenapi_skip_agent_inject_files_at_boot", "os_skip_agent_inject_ssh", "xenapi_skip_agent_inject_ssh", "vmware_image_version",
    ),
}  # fmt: skip
