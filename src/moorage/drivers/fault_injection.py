"""The dials of a simulated host: its size, and the faults that it simulates.

Operators change them while the cloud runs, in `dials.json` in the host's directory: docs/operating/simulated-hosts.md.
"""

import random
from pathlib import Path
from typing import Literal

import msgspec

from moorage.model.guest import PhysicalFunction

ANY = "*"
MAX_DELAY_S = 3600.0


class VerbDial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults of one verb."""

    fail_times: int = 0
    """The verb fails this many times next; the count starts again whenever the dials change."""
    fail_chance: float = 0.0
    """After that, it fails each time with this probability, drawn from the host's seed."""
    fail_when: Literal["before", "after"] = "before"
    """Before the effect, or after it: then the guest exists although the host reports a failure."""
    hang: Literal["", "before", "after"] = ""
    """The verb reports no failure and does not end before its deadline.  `after`: the work is done and the reply is lost."""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Up to this many seconds are added to the delay."""
    says: str = "the simulated host was told to fail"
    code: str = "guest_failed"


class HostCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    vcpus: int | None = None
    ram_mib: int | None = None
    disk_gib: int | None = None


HONEST = HostCapacity()


class FaultSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of a simulated host."""

    seed: int = 0
    vcpus: int = 16
    ram_mib: int = 65_536
    disk_gib: int = 1_000
    reserved_vcpus: int | None = None
    reserved_ram_mib: int | None = None
    reserved_disk_gib: int | None = None
    vcpu_ratio: float | None = None
    ram_ratio: float | None = None
    disk_ratio: float | None = None
    """What is None counts as usual (512 MiB reserved, processors four times), until somebody sets it through Placement."""
    physical_networks: tuple[str, ...] = ("physnet1",)
    physical_functions: tuple[PhysicalFunction, ...] = ()
    """SR-IOV interfaces, with the virtual functions that guests may be given."""
    traits: tuple[str, ...] = ()
    """Traits in addition to those of the driver."""
    without_traits: tuple[str, ...] = ()
    really: HostCapacity = HONEST
    """If set, the real capacity: the host reports more, and refuses a guest beyond this (`host_full`)."""
    verbs: dict[str, VerbDial] = {}
    """By verb: `start_guest`, `destroy_guest`, `power_off` …; `*` for all others."""
    cpu_model: str = "simulated"
    """A guest can be live migrated only to a host with the same processors."""
    hypervisor_version: int = 1_000_000
    """A guest cannot be live migrated to an older hypervisor."""
    shared_storage: str = ""
    """A name: hosts with the same one have the disks of their guests on one storage, and send none when a guest is live migrated."""
    live_mib_per_s: float = 0.0
    """Speed of live migrations from this host; 0: at once."""
    live_dirty_mib_per_s: float = 0.0
    """How fast the guest writes its memory meanwhile, which is sent again: if this is faster than the transfer, it never ends by itself."""
    live_switch_s: float = 0.0
    """How long the guest is paused at the switch."""
    console_types: tuple[str, ...] = ("novnc", "serial")
    """Types of consoles that its guests have; also `spice-html5`, `spice-direct` and `webmks`, which only echo here."""
    console: str = ""
    """Text that is added to the console output of every guest."""
    fenced: bool = False
    """Whether the simulated fence plug-in (`[compute] fence_plugin`) reports that the machine has no power."""
    crash: tuple[str, ...] = ()
    """Servers whose guests crash as soon as the dial is read; `*` means all."""


class FaultCounter:
    """Counts failures and makes random choices for one setting of the dials."""

    def __init__(self, dials: FaultSettings) -> None:
        self.dials = dials
        self._dice = random.Random(dials.seed)
        self._failed: dict[str, int] = {}

    def of(self, verb: str) -> VerbDial | None:
        return self.dials.verbs.get(verb) or self.dials.verbs.get(ANY)

    def delay_s(self, dial: VerbDial) -> float:
        jitter_s = self._dice.uniform(0, dial.jitter_s) if dial.jitter_s else 0.0
        return min(dial.delay_s + jitter_s, MAX_DELAY_S)

    def fails(self, verb: str, dial: VerbDial) -> bool:
        """Tell whether the verb fails this time."""
        if self._failed.get(verb, 0) < dial.fail_times:
            self._failed[verb] = self._failed.get(verb, 0) + 1
            return True
        return bool(dial.fail_chance) and self._dice.random() < dial.fail_chance


def read_dials(file: Path, otherwise: FaultSettings) -> FaultSettings:
    """Return the host's dials, overridden by the file's. Raises msgspec.MsgspecError when it is not a valid dials file."""
    try:
        changed = msgspec.json.decode(file.read_bytes(), type=dict[str, msgspec.Raw])
    except FileNotFoundError:
        return otherwise
    whole = {**msgspec.json.decode(msgspec.json.encode(otherwise), type=dict[str, msgspec.Raw]), **changed}
    return msgspec.json.decode(msgspec.json.encode(whole), type=FaultSettings)
