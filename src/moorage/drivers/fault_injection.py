"""The dials of a simulated host: how big it seems, and everything that can go wrong on it.

Operators turn them while the cloud runs, in `dials.json` in the host's directory: docs/operating/simulated-hosts.md.
"""

import random
from pathlib import Path
from typing import Literal

import msgspec

from moorage.model.guest import PhysicalFunction

ANY = "*"
MAX_DELAY_S = 3600.0


class VerbDial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong with one verb."""

    fail_times: int = 0
    """The next so many times; counted anew whenever the dials are turned."""
    fail_chance: float = 0.0
    """After those, each time with this chance, drawn from the host's seed."""
    fail_when: Literal["before", "after"] = "before"
    """Before the effect, or after it: the guest is there, and yet the host says that it failed."""
    hang: Literal["", "before", "after"] = ""
    """A failure is not said at all: the verb never ends, until its time is up.  `after`: the work is done and the reply is lost."""
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Up to so much is added to the delay."""
    says: str = "the simulated host was told to fail"
    code: str = "guest_failed"


class Capacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    vcpus: int | None = None
    ram_mib: int | None = None
    disk_gib: int | None = None


HONEST = Capacity()


class FaultSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything about a simulated host."""

    seed: int = 0
    vcpus: int = 16
    ram_mib: int = 65_536
    disk_gib: int = 1_000
    reserved_vcpus: int = 0
    reserved_ram_mib: int = 512
    reserved_disk_gib: int = 0
    vcpu_ratio: float = 4.0
    ram_ratio: float = 1.0
    disk_ratio: float = 1.0
    physical_networks: tuple[str, ...] = ("physnet1",)
    physical_functions: tuple[PhysicalFunction, ...] = ()
    """SR-IOV interfaces, with the virtual functions that guests may be given."""
    traits: tuple[str, ...] = ()
    """Beside those that the driver has anyway."""
    without_traits: tuple[str, ...] = ()
    really: Capacity = HONEST
    """If set, what the host has in truth: it promises the rest and refuses a guest that goes beyond (`host_full`)."""
    verbs: dict[str, VerbDial] = {}
    """By verb: `start_guest`, `destroy_guest`, `power_off` …; `*` for all others."""
    cpu_model: str = "simulated"
    """A guest that runs goes on only on a host whose processors are the same."""
    hypervisor_version: int = 1_000_000
    """A guest that runs goes to no older hypervisor."""
    live_mib_per_s: float = 0.0
    """How fast a guest that runs is sent to another host; 0: at once."""
    live_dirty_mib_per_s: float = 0.0
    """How fast it writes to its memory meanwhile, which is sent again: what is written faster than sent never arrives by itself."""
    live_switch_s: float = 0.0
    """How long it stands still when it changes hosts."""
    console_types: tuple[str, ...] = ("novnc", "serial")
    """Kinds of console that its guests have; also `spice-html5`, `spice-direct` and `webmks`, which only echo here."""
    console: str = ""
    """Added to what every guest writes to its console."""
    fenced: bool = False
    """Of the machine: it has no power, says the simulated fence plug-in (`[compute] fence_plugin`)."""
    crash: tuple[str, ...] = ()
    """Servers whose guests crash as soon as the dial is read; `*` is all."""


class FaultCounter:
    """Counts and draws for one setting of the dials."""

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
        """Does it go wrong this time?"""
        if self._failed.get(verb, 0) < dial.fail_times:
            self._failed[verb] = self._failed.get(verb, 0) + 1
            return True
        return bool(dial.fail_chance) and self._dice.random() < dial.fail_chance


def read_dials(file: Path, otherwise: FaultSettings) -> FaultSettings:
    """The file's dials laid over the host's own; `msgspec.MsgspecError` if it is not a dials file."""
    try:
        changed = msgspec.json.decode(file.read_bytes(), type=dict[str, msgspec.Raw])
    except FileNotFoundError:
        return otherwise
    whole = {**msgspec.json.decode(msgspec.json.encode(otherwise), type=dict[str, msgspec.Raw]), **changed}
    return msgspec.json.decode(msgspec.json.encode(whole), type=FaultSettings)
