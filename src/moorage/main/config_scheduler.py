"""`[scheduler]`, `[waiting]` and `[fence]` of the configuration."""

from typing import Annotated

import msgspec

from moorage.drivers.redfish_fence import RedfishMachine
from moorage.model.waiting import SECONDS_PER_YEAR, WaitingLimits

SUFFIX = "_weight_multiplier"


class FenceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for `fence_plugin = "redfish"`: the management controllers of hosts, and what they may be asked to do."""

    machines: tuple[RedfishMachine, ...] = ()
    """One for each host that can be asked; a host without one needs an operator's word."""
    power_off: bool = False
    """Whether an evacuation switches off the machine of a silent host; else it only asks whether the machine is off."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 3.0
    """How long a controller may take to connect, and to answer each request."""
    off_within_s: Annotated[float, msgspec.Meta(gt=0, le=240)] = 60.0
    """How long a machine may take until it reports that it is off; less than the time limit of the evacuation's step."""


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much each weigher counts; below 0 it prefers the opposite. Metadata of aggregates of the same names set it for their hosts."""

    ram_weight_multiplier: float = 1.0
    cpu_weight_multiplier: float = 1.0
    disk_weight_multiplier: float = 1.0
    soft_affinity_weight_multiplier: float = 1.0
    soft_anti_affinity_weight_multiplier: float = 1.0
    segment_addresses_weight_multiplier: float = 5.0
    """Prefer segments with many addresses left."""
    last_addresses_weight_multiplier: float = 10.0
    """Leave the last tenth of a segment's addresses to servers that can be nowhere else."""
    bandwidth_weight_multiplier: float = 3.0
    """Let guaranteed bandwidth and compute of a host run out together."""
    build_failure_weight_multiplier: float = 1_000.0
    cross_cell_move_weight_multiplier: float = 10_000.0
    """Of moves that may leave their cell: prefer to stay."""
    decisions_bytes_max: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 128 << 20
    """Room of the files that keep a process's decisions, in `decisions` of its data directory, for `moorage schedule --replay`; 0: none are kept."""
    decisions_age_max_s: Annotated[float, msgspec.Meta(gt=0, le=31_536_000)] = 604_800.0
    """How old such a file may be when the next is begun."""

    @property
    def multipliers(self) -> dict[str, float]:
        """By the weighers' names."""
        names = [name for name in self.__struct_fields__ if name.endswith(SUFFIX)]
        return {name.removesuffix(SUFFIX): getattr(self, name) for name in names}


class WaitingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Boots that wait for a host instead of ending in ERROR (`moorage:wait`). Who may ask for it says the policy `moorage:servers:wait`."""

    time_s: Annotated[float, msgspec.Meta(ge=1, le=SECONDS_PER_YEAR)] = 3_600.0
    """How long a server waits that does not say for how long; then it ends in ERROR."""
    time_max_s: Annotated[float, msgspec.Meta(ge=1, le=SECONDS_PER_YEAR)] = 86_400.0
    """The longest time that may be asked for."""
    servers_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 10_000
    """So many servers of the region may wait at once; 0: none may."""
    project_servers_max: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1_000
    """The same of one project."""

    @property
    def limits(self) -> WaitingLimits:
        """As operations have them."""
        return WaitingLimits(self.time_s, self.time_max_s, self.servers_max, self.project_servers_max)
