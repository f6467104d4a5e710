"""What an image says about the hosts that can run it: architecture, hypervisor and its version, machine mode; by Nova's names and rules."""

import re
from collections.abc import Callable, Mapping

import msgspec

from moorage.model.errors import Invalid

ARCHITECTURES = frozenset({
    "alpha", "armv6", "armv7l", "armv7b", "aarch64", "cris", "i686", "ia64", "lm32", "m68k", "microblaze",
    "microblazeel", "mips", "mipsel", "mips64", "mips64el", "openrisc", "parisc", "parisc64", "ppc", "ppcle",
    "ppc64", "ppc64le", "ppcemb", "s390", "s390x", "sh4", "sh4eb", "sparc", "sparc64", "unicore32", "x86_64",
    "xtensa", "xtensaeb",
})  # fmt: skip
SAME_ARCHITECTURE = {
    "i386": "i686", "i486": "i686", "i586": "i686", "x86_32": "i686", "x86_32p": "i686", "amd64": "x86_64",
}  # fmt: skip
HYPERVISORS = frozenset({
    "baremetal", "bhyve", "docker", "fake", "hyperv", "ironic", "kqemu", "kvm", "lxc", "lxd", "openvz", "parallels",
    "vz", "phyp", "qemu", "test", "uml", "vbox", "vmware", "xen", "zvm", "prsm",
})  # fmt: skip
MODES = frozenset({"hvm", "xen", "uml", "exe"})
SAME_MODE = {"pv": "xen", "hv": "hvm", "baremetal": "hvm"}
ALSO = {"x86_64": ("x86_64", "i686")}
"""Guests' architectures that a host of an architecture runs, besides its own."""
RUNS = {"qemu": ("qemu", "kvm"), "simulated": ("qemu", "kvm", "fake", "test")}
"""For which hypervisors an image may be made that this one runs."""
EMULATED = "hw_emulation_architecture"
_VERSION = re.compile(r"\s*(<=|<|==|!=|>=|>)\s*(\d{1,9}(?:\.\d{1,9}){0,5})\s*")
_COMPARE: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b, ">=": lambda a, b: a >= b, ">": lambda a, b: a > b,
}  # fmt: skip


class HostKind(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a host says about itself, besides amounts and traits. Similar hosts say the same."""

    hypervisor_type: str = ""
    hypervisor_version: int = 0
    cpu: str = "{}"
    """`cpu_info`, as JSON with sorted keys."""

    @property
    def known(self) -> bool:
        """Whether the host has reported it; one of an earlier release's conductor has not."""
        return bool(self.hypervisor_type)

    def facts(self) -> dict[str, object]:
        """Return what `capabilities:` may ask for, by its names."""
        return {
            "hypervisor_type": self.hypervisor_type,
            "hypervisor_version": self.hypervisor_version,
            "cpu_info": msgspec.json.decode(self.cpu.encode()),
        }


class Requirements(msgspec.Struct, frozen=True):
    """Of one image; empty values require nothing."""

    architecture: str = ""
    hypervisor: str = ""
    mode: str = ""
    version: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def unmet_by(self, kind: HostKind) -> str:
        """Return what a host of this kind lacks; empty: nothing."""
        if not (self.architecture or self.hypervisor or self.mode):
            return ""  # as in Nova, where a version alone is not looked at
        own = str(msgspec.json.decode(kind.cpu.encode()).get("arch") or "")
        if self.architecture and own and self.architecture not in ALSO.get(own, (own,)):
            return f"its architecture is {own}, the image's is {self.architecture}"
        name = kind.hypervisor_type.lower()
        if self.hypervisor and self.hypervisor not in RUNS.get(name, (name,)):
            return f"its hypervisor is {kind.hypervisor_type}, the image is for {self.hypervisor}"
        if self.mode and self.mode != "hvm":
            return f"its guests are of the mode hvm, the image is for {self.mode}"
        has = _numbers(kind.hypervisor_version)
        for operator, wanted in self.version if kind.hypervisor_version else ():
            if not _COMPARE[operator](*_even(has, wanted)):
                return (
                    f"its hypervisor's version is {'.'.join(map(str, has))}, not {operator}{'.'.join(map(str, wanted))}"
                )
        return ""


NOTHING = Requirements()


def required_of(properties: Mapping[str, str]) -> Requirements:
    """Return what an image requires, also by Nova's older names. Raises Invalid for a value that is none of its field's."""
    architecture = properties.get("hw_architecture") or properties.get("architecture") or ""
    hypervisor = properties.get("img_hv_type") or properties.get("hypervisor_type") or ""
    mode = properties.get("hw_vm_mode") or properties.get("vm_mode") or ""
    version = properties.get("img_hv_requested_version") or properties.get("hypervisor_version_requires") or ""
    _architecture(properties.get(EMULATED, ""))
    if not (architecture or hypervisor or mode or version):
        return NOTHING
    hypervisor = {"xapi": "xen"}.get(hypervisor.lower(), hypervisor.lower())
    mode = SAME_MODE.get(mode.lower(), mode.lower())
    if hypervisor and hypervisor not in HYPERVISORS:
        raise Invalid(f"Invalid image metadata. Error: Hypervisor virt type '{hypervisor}' is not valid")
    if mode and mode not in MODES:
        raise Invalid(f"Invalid image metadata. Error: Virtual machine mode '{mode}' is not valid")
    return Requirements(_architecture(architecture), hypervisor, mode, _predicates(version))


def emulation_trait(properties: Mapping[str, str]) -> str:
    """Return the trait of hosts that emulate the image's architecture; empty: it names none."""
    value = properties.get(EMULATED, "").lower()
    return f"COMPUTE_ARCH_{SAME_ARCHITECTURE.get(value, value).upper()}" if value else ""


def _architecture(value: str) -> str:
    name = SAME_ARCHITECTURE.get(value.lower(), value.lower())
    if name and name not in ARCHITECTURES:
        raise Invalid(f"Invalid image metadata. Error: Architecture name '{value}' is not valid")
    return name


def _predicates(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    parts = [part for part in text.split(",") if part.strip()]
    found = [_VERSION.fullmatch(part) for part in parts]
    if None in found:
        raise Invalid(f"Invalid image metadata. Error: '{text}' is no condition on versions, such as '>=2.6, <9'")
    return tuple((each[1], tuple(map(int, each[2].split(".")))) for each in found if each is not None)


def _numbers(version: int) -> tuple[int, ...]:
    """`8002001` is 8.2.1."""
    return version // 1_000_000, version // 1000 % 1000, version % 1000


def _even(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    length = max(len(one), len(other))
    return one + (0,) * (length - len(one)), other + (0,) * (length - len(other))
