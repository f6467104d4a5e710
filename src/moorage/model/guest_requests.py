"""What flavors and images ask of processors, memory and encryption: Nova's refusals, and what a host must have for it.

No driver makes any of this yet.  So that nobody is told it is there, the scheduler asks hosts for Nova's resource classes and traits
(`resources_of`, `traits_of`), which no host has, and rejects them for the rest (`unmade`).  A server that an earlier release booted with such
a flavor keeps working: its moves ask for `settled` extra specs and properties.
"""

import re
from collections.abc import Mapping, Sequence

from moorage.model.device_requests import UNMADE_SOUND
from moorage.model.errors import Invalid
from moorage.model.request_values import boolean_of, cpus_of, integer_of

PMEM = "CUSTOM_PMEM_NAMESPACE_"
PCPU, VCPU, MEM_ENCRYPTION_CONTEXT = "PCPU", "VCPU", "MEM_ENCRYPTION_CONTEXT"
NODES_MAX = 128
DEDICATED, MIXED, SHARED = "dedicated", "mixed", "shared"
POLICIES = (DEDICATED, SHARED, MIXED)
THREAD_POLICIES = ("prefer", "isolate", "require")
EMULATOR_POLICIES = ("isolate", "share")
MEMORY_MODELS = {
    "amd-sev": "HW_CPU_X86_AMD_SEV",
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    "amd-sev-snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel-tdx": "HW_CPU_X86_INTEL_TDX",
}
"""How the memory is encrypted → the trait of a processor that does it."""
_PINNED = re.compile(r"resources[\w-]*:PCPU$")
FORMATS = ("plain", "luks", "luksv2")
EPHEMERAL_TRAIT = "COMPUTE_EPHEMERAL_ENCRYPTION"
STATELESS_MODELS = frozenset({"amd-sev-snp", "intel-tdx"})
NAMES = (
    "cpu_dedicated_mask", "cpu_policy", "cpu_realtime", "cpu_realtime_mask", "cpu_thread_policy", "emulator_threads_policy",
    "ephemeral_encryption", "ephemeral_encryption_format", "ephemeral_encryption_secret_uuid", "locked_memory",
    "mem_encryption", "mem_encryption_model", "mem_page_size", "numa_nodes", "pmem",
)  # fmt: skip
"""Without `hw:` and `hw_`; `numa_cpus.N` and `numa_mem.N` besides."""
NUMBERED = ("numa_cpus.", "numa_mem.")
SOUND_MODELS = ("hw:sound_model", "hw_sound_model")


def check(vcpus: int, ram_mib: int, specs: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Raises Invalid for what Nova refuses at its API: values that are not allowed, and wishes that contradict each other."""
    policy, dedicated = (
        _policy(specs, properties),
        _mask("hw:cpu_dedicated_mask", specs.get("hw:cpu_dedicated_mask"), vcpus),
    )
    _check_processors(vcpus, specs, properties, policy, dedicated)
    _check_memory(specs, properties)
    _check_nodes(vcpus, ram_mib, specs, properties, policy)
    encrypted_memory(specs, properties)
    encrypted_disks(specs, properties)


def resources_of(vcpus: int, specs: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, int]:
    """Return the amounts that a host must have, as Nova's scheduler asks for them. A contradiction, which `check` refuses, asks for most."""
    wanted: dict[str, int] = {}
    policy = specs.get("hw:cpu_policy") or properties.get("hw_cpu_policy")
    if policy in (DEDICATED, MIXED):
        pinned = vcpus
        if policy == MIXED:
            mask = (
                specs.get("hw:cpu_dedicated_mask")
                or properties.get("hw_cpu_realtime_mask")
                or specs.get("hw:cpu_realtime_mask")
            )
            pinned = len(_pinned(mask, vcpus)) or vcpus
        wanted[VCPU] = vcpus - pinned
        wanted[PCPU] = pinned + (specs.get("hw:emulator_threads_policy") == "isolate")
    if _wants("mem_encryption", specs, properties):
        wanted[MEM_ENCRYPTION_CONTEXT] = 1
    for label in filter(None, (each.strip() for each in specs.get("hw:pmem", "").split(","))):
        name = PMEM + "".join(each if each.isalnum() else "_" for each in label).upper()
        wanted[name] = wanted.get(name, 0) + 1
    return wanted


def traits_of(specs: Mapping[str, str], properties: Mapping[str, str]) -> set[str]:
    """Return the traits that a host must have for encryption, and for processors whose threads are not shared."""
    wanted: set[str] = set()
    if _wants("mem_encryption", specs, properties):
        model = specs.get("hw:mem_encryption_model") or properties.get("hw_mem_encryption_model") or "amd-sev"
        wanted.add(MEMORY_MODELS.get(model, MEMORY_MODELS["amd-sev"]))
    if _wants("ephemeral_encryption", specs, properties):
        wanted.add(EPHEMERAL_TRAIT)
        format = specs.get("hw:ephemeral_encryption_format") or properties.get("hw_ephemeral_encryption_format")
        if format in FORMATS:
            wanted.add(f"{EPHEMERAL_TRAIT}_{format.upper()}")
    if (specs.get("hw:cpu_thread_policy") or properties.get("hw_cpu_thread_policy")) == "require":
        wanted.add("HW_CPU_HYPERTHREADING")
    if "socket" in (specs.get("hw:pci_numa_affinity_policy"), properties.get("hw_pci_numa_affinity_policy")):
        wanted.add("COMPUTE_SOCKET_PCI_NUMA_AFFINITY")
    return wanted


def unmade(specs: Mapping[str, str], properties: Mapping[str, str]) -> list[str]:
    """Return the names that ask for what no driver makes, and that no resource class or trait stands for."""
    chosen = ("numa_nodes", "mem_page_size")
    names = [
        mark + name
        for mark, settings in (("hw:", specs), ("hw_", properties))
        for name in chosen
        if settings.get(mark + name)
    ]
    switches = ((specs, "hw:locked_memory"), (specs, "hw:cpu_realtime"), (properties, "hw_locked_memory"))
    return names + [name for settings, name in switches if boolean_of(settings.get(name))]


def unmade_names(specs: Mapping[str, str], properties: Mapping[str, str]) -> list[str]:
    """Return all names that ask for what no driver makes, also those for which a resource class or a trait stands."""
    names = unmade(specs, properties)
    for settings, prefix in ((specs, "hw:"), (properties, "hw_")):
        names += [f"{prefix}cpu_policy"] if settings.get(f"{prefix}cpu_policy") in (DEDICATED, MIXED) else []
        switches = ("mem_encryption", "ephemeral_encryption")
        names += [prefix + name for name in switches if boolean_of(settings.get(prefix + name))]
    return names + ["hw:pmem"] * bool(specs.get("hw:pmem")) + [name for name in specs if _PINNED.match(name)]


def settled(settings: Mapping[str, str]) -> dict[str, str]:
    """Return extra specs or properties without what no driver makes: a guest that exists has none of it, and is not refused for it."""
    return {
        name: value
        for name, value in settings.items()
        if not is_unmade(name) and not (name in SOUND_MODELS and value in UNMADE_SOUND)
    }


def stands_for(resource: str) -> bool:
    """Whether a claim on this class is for what no driver makes: the site has said by Placement that a host has it."""
    return resource in (PCPU, MEM_ENCRYPTION_CONTEXT) or resource.startswith(PMEM)


def is_unmade(name: str) -> bool:
    """Whether this extra spec or property asks for what no driver makes."""
    for mark in ("hw:", "hw_"):
        if name.startswith(mark):
            rest = name.removeprefix(mark)
            return rest in NAMES or rest.startswith(NUMBERED)
    return False


# ------------------------------------------------------------------------------------------------------ processors


def _policy(specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    of_flavor, of_image = specs.get("hw:cpu_policy", ""), properties.get("hw_cpu_policy", "")
    for source, value in (("flavor extra specs", of_flavor), ("image properties", of_image)):
        if value and value not in POLICIES:
            raise Invalid(
                f"CPU policy requested from '{source}' is invalid, requested={value}, available={', '.join(POLICIES)}"
            )
    if (of_flavor == MIXED and of_image == DEDICATED) or (of_flavor == SHARED and of_image in (MIXED, DEDICATED)):
        raise Invalid(
            f"The image's hw_cpu_policy={of_image} is not permitted to override the flavor's hw:cpu_policy={of_flavor}."
        )
    return of_flavor or of_image


def _thread_policy(specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    of_flavor, of_image = specs.get("hw:cpu_thread_policy", ""), properties.get("hw_cpu_thread_policy", "")
    for source, value in (("flavor extra specs", of_flavor), ("image properties", of_image)):
        if value and value not in THREAD_POLICIES:
            available = ", ".join(THREAD_POLICIES)
            raise Invalid(
                f"CPU thread policy requested from '{source}' is invalid, requested={value}, available={available}"
            )
    if of_flavor not in ("", "prefer") and of_image and of_image != of_flavor:
        raise Invalid(
            "The image's hw_cpu_thread_policy is not permitted to override the flavor's hw:cpu_thread_policy."
        )
    return of_image or of_flavor if of_flavor in ("", "prefer") else of_flavor


def _check_processors(
    vcpus: int, specs: Mapping[str, str], properties: Mapping[str, str], policy: str, dedicated: set[int] | None
) -> None:
    threads, emulator = _thread_policy(specs, properties), specs.get("hw:emulator_threads_policy", "")
    if emulator and emulator not in EMULATOR_POLICIES:
        raise Invalid(f"Emulator threads option '{emulator}' is invalid; available: {', '.join(EMULATOR_POLICIES)}")
    policy = _policy_of_amounts(vcpus, specs, policy, emulator)
    if threads and (
        "trait:HW_CPU_HYPERTHREADING" in specs or properties.get("trait:HW_CPU_HYPERTHREADING") == "required"
    ):
        raise Invalid("Use either trait:HW_CPU_HYPERTHREADING or a CPU thread policy; not both.")
    realtime = _realtime(vcpus, specs, properties, emulator)
    if policy in ("", SHARED):
        if threads:
            raise Invalid("Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy")
        if emulator == "isolate":
            raise Invalid("An isolated CPU emulator threads option requires a dedicated CPU policy option.")
        if realtime:
            raise Invalid("Cannot set realtime policy in a non dedicated cpu pinning policy")
    if dedicated and policy != MIXED:
        raise Invalid("hw:cpu_dedicated_mask can only be used with hw:cpu_policy=mixed.")
    if policy == MIXED and bool(realtime) == bool(dedicated):
        raise Invalid(
            "Dedicated CPU set can be specified from either hw:cpu_dedicated_mask or hw:cpu_realtime_mask, and one is needed."
        )


def _policy_of_amounts(vcpus: int, specs: Mapping[str, str], policy: str, emulator: str) -> str:
    """The policy, also by `resources:PCPU`."""
    shared, pinned = _amount_in_specs("VCPU", specs), _amount_in_specs("PCPU", specs)
    if policy and (shared or pinned):
        raise Invalid("Use either resources:VCPU and resources:PCPU, or hw:cpu_policy and hw_cpu_policy; not both.")
    if shared and pinned:
        raise Invalid("It is not possible to specify both resources:VCPU and resources:PCPU; use one or the other.")
    if pinned:
        expected = vcpus + (emulator == "isolate")
        if pinned != expected:
            raise Invalid(f"resources:PCPU is {pinned}; with this flavor it must be exactly {expected}.")
    return DEDICATED if pinned else policy


def _realtime(vcpus: int, specs: Mapping[str, str], properties: Mapping[str, str], emulator: str) -> set[int]:
    if not boolean_of(specs.get("hw:cpu_realtime")):
        return set()
    given = properties.get("hw_cpu_realtime_mask") or specs.get("hw:cpu_realtime_mask")
    chosen = _pinned(given, vcpus, "cpu_realtime_mask") if given else set(range(vcpus))
    if not chosen or (chosen == set(range(vcpus)) and not emulator):
        raise Invalid(
            "Realtime policy needs vCPU(s) mask configured with at least one RT vCPU and one ordinary vCPU. "
            "See hw:cpu_realtime_mask or hw_cpu_realtime_mask"
        )
    if not chosen <= set(range(vcpus)):
        raise Invalid(
            "Realtime policy vCPU(s) mask names vCPUs that the flavor does not have. See hw:cpu_realtime_mask"
        )
    return chosen


def _mask(name: str, value: str | None, vcpus: int) -> set[int] | None:
    if not value:
        return None
    chosen = _pinned(value, vcpus, name)
    if not chosen or not chosen < set(range(vcpus)):
        raise Invalid(f"{name}={value} must name at least one of the flavor's vCPUs, not all of them, and no others.")
    return chosen


def _pinned(value: str | None, vcpus: int, name: str = "hw:cpu_dedicated_mask") -> set[int]:
    text = value or ""
    return cpus_of(name, f"0-{vcpus - 1},{text}" if text.strip().startswith("^") else text)


def _amount_in_specs(resource: str, specs: Mapping[str, str]) -> int:
    values = [value for name, value in specs.items() if name.startswith("resources") and name.endswith(f":{resource}")]
    return sum(int(each) for each in values if each.isdecimal() and len(each) < len("1000000"))


# ---------------------------------------------------------------------------------------------------------- memory


def _check_memory(specs: Mapping[str, str], properties: Mapping[str, str]) -> None:
    of_flavor, of_image = specs.get("hw:mem_page_size", ""), properties.get("hw_mem_page_size", "")
    if of_image and of_flavor not in ("any", "large"):
        raise Invalid(f"Page size {of_image} forbidden against '{of_flavor or '<empty>'}'")
    locked = _agreed_switch("locked_memory", specs, properties)
    if locked and not of_flavor and not of_image:
        raise Invalid("locked_memory value in image or flavor is forbidden when mem_page_size is not set.")


def _check_nodes(
    vcpus: int, ram_mib: int, specs: Mapping[str, str], properties: Mapping[str, str], policy: str
) -> None:
    of_flavor, of_image = specs.get("hw:numa_nodes", ""), properties.get("hw_numa_nodes", "")
    if of_flavor and of_image:
        raise Invalid(
            "Image property 'hw_numa_nodes' is not permitted to override NUMA configuration set against the flavor"
        )
    count = integer_of("numa_nodes", of_flavor or of_image or "0")
    if (of_flavor or of_image) and not 1 <= count <= NODES_MAX:
        raise Invalid(f"The property 'numa_nodes' cannot be '{count}'. It must be a number greater than 0")
    paged = specs.get("hw:mem_page_size") or properties.get("hw_mem_page_size") or specs.get("hw:pmem")
    if not count and not paged and policy not in (DEDICATED, MIXED):
        return
    count = count or 1
    cpus, memory = _numbered("numa_cpus", specs, properties), _numbered("numa_mem", specs, properties)
    if not cpus and not memory:
        if vcpus % count or ram_mib % count:
            raise Invalid(
                "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA nodes. Explicit assignment is required"
            )
        return
    if len(cpus) != count or len(memory) != count:
        raise Invalid("CPU and memory allocation must be provided for all NUMA nodes")
    _check_parts(vcpus, ram_mib, cpus, memory)


def _check_parts(vcpus: int, ram_mib: int, cpus: Sequence[str], memory: Sequence[str]) -> None:
    """Each processor is of one node, and the nodes have the whole memory."""
    assigned: set[int] = set()
    for node, text in enumerate(cpus):
        for cpu in cpus_of(f"numa_cpus.{node}", text):
            if cpu >= vcpus:
                raise Invalid(f"CPU number {cpu} is larger than max {vcpus - 1}")
            if cpu in assigned:
                raise Invalid(f"CPU number {cpu} is assigned to two nodes")
            assigned.add(cpu)
    if len(assigned) != vcpus:
        raise Invalid(f"CPU number {sorted(set(range(vcpus)) - assigned)} is not assigned to any node")
    total = sum(integer_of(f"numa_mem.{node}", each) for node, each in enumerate(memory))
    if total != ram_mib:
        raise Invalid(f"{total} MB of memory assigned, but expected {ram_mib} MB")


def _numbered(name: str, specs: Mapping[str, str], properties: Mapping[str, str]) -> list[str]:
    of_flavor = [specs[key] for node in range(NODES_MAX) if (key := f"hw:{name}.{node}") in specs]
    of_image = [properties[key] for node in range(NODES_MAX) if (key := f"hw_{name}.{node}") in properties]
    if of_flavor and of_image:
        raise Invalid(
            f"Image property 'hw_{name}' is not permitted to override NUMA configuration set against the flavor"
        )
    return of_flavor or of_image


# ------------------------------------------------------------------------------------------------------ encryption


def encrypted_memory(specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """Return how the guest's memory is to be encrypted; empty: it is not. Raises Invalid for a contradiction."""
    if not _agreed_switch("mem_encryption", specs, properties):
        return ""
    of_flavor, of_image = specs.get("hw:mem_encryption_model", ""), properties.get("hw_mem_encryption_model", "")
    if of_flavor and of_image and of_flavor != of_image:
        raise Invalid(
            f"The flavor's hw:mem_encryption_model={of_flavor} conflicts with the image's hw_mem_encryption_model={of_image}."
        )
    model = of_image or of_flavor or "amd-sev"
    if model not in MEMORY_MODELS:
        raise Invalid(f"Memory encryption model {model} is invalid; available: {', '.join(MEMORY_MODELS)}")
    if properties.get("hw_firmware_type") != "uefi":
        raise Invalid("Memory encryption requested, but the image does not have hw_firmware_type=uefi, which it needs.")
    machine = properties.get("hw_machine_type", "")
    if machine and "q35" not in machine:
        raise Invalid(f"Machine type '{machine}' is not compatible with memory encryption: q35 is needed.")
    if model in STATELESS_MODELS and not boolean_of(properties.get("hw_firmware_stateless")):
        raise Invalid(f"Memory encryption {model} needs an image with hw_firmware_stateless=true.")
    return model


def encrypted_disks(specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """Return the format in which local disks are to be encrypted; empty: they are not. Raises Invalid for a contradiction."""
    wanted = _agreed_switch("ephemeral_encryption", specs, properties)
    of_flavor = specs.get("hw:ephemeral_encryption_format", "")
    of_image = properties.get("hw_ephemeral_encryption_format", "")
    if of_flavor and of_image and of_flavor != of_image:
        raise Invalid(
            f"The flavor's hw:ephemeral_encryption_format={of_flavor} conflicts with the image's "
            f"hw_ephemeral_encryption_format={of_image}."
        )
    format = of_flavor or of_image or "luks"
    if format not in FORMATS:
        raise Invalid(f"Invalid ephemeral encryption format {format}. Allowed values: {', '.join(FORMATS)}")
    return format if wanted else ""


def _agreed_switch(name: str, specs: Mapping[str, str], properties: Mapping[str, str]) -> bool:
    of_flavor, of_image = specs.get(f"hw:{name}"), properties.get(f"hw_{name}")
    if of_flavor is not None and of_image is not None and boolean_of(of_flavor) != boolean_of(of_image):
        raise Invalid(
            f"The flavor's extra spec hw:{name} is {of_flavor}, and conflicts with the image's property hw_{name}, which is {of_image}."
        )
    return boolean_of(of_flavor) or boolean_of(of_image)


def _wants(name: str, specs: Mapping[str, str], properties: Mapping[str, str]) -> bool:
    return boolean_of(specs.get(f"hw:{name}")) or boolean_of(properties.get(f"hw_{name}"))
