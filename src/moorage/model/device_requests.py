"""Devices and features of a guest's machine that flavors and images ask for: their values, contradictions, and the traits of hosts that make them."""

from collections.abc import Mapping

import msgspec
import os_traits

from moorage.model.errors import Invalid
from moorage.model.image_requirements import emulation_trait
from moorage.model.request_values import boolean_of, integer_of

PACKED_TRAIT = "COMPUTE_NET_VIRTIO_PACKED"
PASSTHROUGH_TRAIT, EMULATED_TRAIT = "COMPUTE_ADDRESS_SPACE_PASSTHROUGH", "COMPUTE_ADDRESS_SPACE_EMULATED"
SOUND, USB, VIOMMU = "COMPUTE_SOUND_MODEL_", "COMPUTE_USB_MODEL_", "COMPUTE_VIOMMU_MODEL_"
USB_PORTS_MAX = 15
UNMADE_SOUND = frozenset({"virtio"})
"""Models that hosts with real guests do not make."""
SAME = ("maxphysaddr_mode", "maxphysaddr_bits", "sound_model", "usb_model", "redirected_usb_ports", "viommu_model")
"""Names for which flavor and image must not say different things."""
SWITCHES = ("pmu", "virtio_packed_ring")
CHOICES = {
    "maxphysaddr_mode": ("passthrough", "emulate"),
    "sound_model": ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "usb_model": ("none", "nec-xhci", "qemu-xhci"),
    "viommu_model": ("intel", "smmuv3", "virtio", "auto"),
}
_TRAITS = frozenset(os_traits.get_traits())


class MachineRequest(msgspec.Struct, frozen=True):
    """What flavor and image ask of the guest's machine; empty and None: nothing."""

    address_mode: str = ""
    address_bits: int = 0
    sound: str = ""
    usb: str = ""
    usb_ports: int = 0
    viommu: str = ""
    packed: bool = False
    pmu: bool | None = None
    hidden: bool = False
    """Whether the hypervisor is not to be shown to the guest."""
    hpet: bool = False


def check(specs: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Raises Invalid for a value that is not allowed, and when flavor and image contradict each other."""
    machine_request(specs, properties)


def machine_request(specs: Mapping[str, str], properties: Mapping[str, str]) -> MachineRequest:
    """Return what is asked of the machine. Raises Invalid, as `check` does."""
    text = {name: _same(name, specs, properties) for name in SAME}
    for name, choices in CHOICES.items():
        if text[name] and text[name] not in choices:
            raise Invalid(f"Invalid {name} '{text[name]}'. Allowed values: {', '.join(choices)}")
    ports = integer_of("redirected_usb_ports", text["redirected_usb_ports"] or "0")
    if ports > USB_PORTS_MAX:
        raise Invalid(f"At most {USB_PORTS_MAX} USB ports can be redirected, and {ports} were requested.")
    if text["maxphysaddr_mode"] == "emulate" and not text["maxphysaddr_bits"]:
        raise Invalid("hw:maxphysaddr_mode is emulate, and no width is given: set hw:maxphysaddr_bits as well.")
    pmu, packed = (_switch(name, specs, properties) for name in SWITCHES)
    hidden = ("hide_hypervisor_id", "hw:hide_hypervisor_id")
    return MachineRequest(
        address_mode=text["maxphysaddr_mode"],
        address_bits=integer_of("maxphysaddr_bits", text["maxphysaddr_bits"] or "0"),
        sound=text["sound_model"],
        usb=text["usb_model"],
        usb_ports=ports,
        viommu=text["viommu_model"],
        packed=bool(packed),
        pmu=pmu,
        hidden=any(boolean_of(specs.get(name)) for name in hidden)
        or boolean_of(properties.get("img_hide_hypervisor_id")),
        hpet=boolean_of(properties.get("hw_time_hpet")),
    )


def traits_of(specs: Mapping[str, str], properties: Mapping[str, str]) -> set[str]:
    """Return the traits of hosts that make it. A contradiction, which `check` refuses, asks for what the flavor says."""
    wanted: set[str] = set()
    if any(boolean_of(each) for each in (specs.get("hw:virtio_packed_ring"), properties.get("hw_virtio_packed_ring"))):
        wanted.add(PACKED_TRAIT)
    mode = specs.get("hw:maxphysaddr_mode") or properties.get("hw_maxphysaddr_mode")
    if mode:
        wanted.add(PASSTHROUGH_TRAIT if mode == "passthrough" else EMULATED_TRAIT)
    for name, prefix in (("sound_model", SOUND), ("usb_model", USB), ("viommu_model", VIOMMU)):
        value = specs.get(f"hw:{name}") or properties.get(f"hw_{name}") or ""
        trait = prefix + value.replace("-", "_").upper()
        if value and trait in _TRAITS:
            wanted.add(trait)
    if trait := emulation_trait(properties):
        wanted.add(trait)
    return wanted


def _same(name: str, specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    of_flavor, of_image = specs.get(f"hw:{name}", ""), properties.get(f"hw_{name}", "")
    if of_flavor and of_image and of_flavor != of_image:
        raise Invalid(_conflict(name, of_flavor, of_image))
    return of_flavor or of_image


def _switch(name: str, specs: Mapping[str, str], properties: Mapping[str, str]) -> bool | None:
    of_flavor, of_image = specs.get(f"hw:{name}"), properties.get(f"hw_{name}")
    if of_flavor is not None and of_image is not None and boolean_of(of_flavor) != boolean_of(of_image):
        raise Invalid(_conflict(name, of_flavor, of_image))
    given = of_image if of_flavor is None else of_flavor
    return None if given is None else boolean_of(given)


def _conflict(name: str, of_flavor: str, of_image: str) -> str:
    return f"The flavor's extra spec hw:{name} is {of_flavor}, and conflicts with the image's property hw_{name}, which is {of_image}."
