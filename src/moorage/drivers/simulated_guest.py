"""One simulated guest: the contents of its file, and its console output at a boot."""

import msgspec

from moorage.drivers.simulated_disks import BARE, RAW
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ImageId
from moorage.model.rescue import RescueSpec

MAX_CONSOLE_BYTES = 100_000


class SimulatedGuest(msgspec.Struct):
    """One file."""

    spec: GuestSpec
    power: PowerState
    console: str = ""
    boots: int = 0
    rescue: RescueSpec | None = None
    """Set while the guest is in rescue."""
    ephemeral_since: int = 0
    """The boot at which its ephemeral disk was made; a rebuild that preserves the disk does not change it."""
    rebuilds: int = 0
    password: str = ""
    """`salt$hash`, as a guest keeps its own; set by its agent."""
    dumps: int = 0
    """Number of crash dumps."""
    on_since: float = 0.0
    """When it was switched on, by its host's clock."""
    written: str = ""
    """Data that its programs wrote to its disk, after the data of its image."""
    formats: tuple[str, str] = (RAW, BARE)
    """Of the disk's data, as the image service names them: disk format, container format."""
    snapshot: ImageId | None = None
    """For which image a copy of its disk was taken last; without the copy, it was sent."""
    chains: dict[str, tuple[tuple[str, str], ...]] = msgspec.field(default_factory=dict)
    """Volume → (snapshot, file) of each snapshot that the volume service had taken here, the newest last."""

    frozen_for: str = ""
    """Purpose for which it is quiesced, until `frozen_until` by its host's clock."""
    frozen_until: float = 0.0
    thawed_for: str = ""
    """Purpose for which it was quiesced last, and thawed in time."""

    move: str = ""
    """The last move that brought it here, or made it another size."""
    incoming: bool = False
    """Whether it is a place that waits for a guest of another host; `move` names the move."""
    leaving: tuple[str, str] | None = None
    """The target of its live migration: the other host's directory, and the move."""
    stands_still: PowerState | None = None
    """Its power state before it was paused for the switch."""
    silent_since: float = 0.0
    """When it was paused for the switch, by its host's clock."""
    silences: tuple[float, ...] = ()
    """How long it was paused in each of its live migrations."""
    left: "SimulatedGuest | None" = None
    """As it was before that, where it was here already; until the move is confirmed."""

    def write(self, text: str) -> None:
        self.console = (self.console + text)[-MAX_CONSOLE_BYTES:]

    def boot(self, now: float) -> None:
        """Start the guest from its own disk or the rescue image, and write a kernel's messages to its console."""
        self.power = PowerState.RUNNING
        self.boots += 1
        self.on_since = now
        self.frozen_for, self.frozen_until = "", 0.0
        spec = self.spec
        name = spec.hostname or spec.name
        nics = "".join(
            f"[    1.{place:06d}] virtio_net virtio{place}: {vif.mac} mtu {vif.mtu}"
            f" {', '.join(each.address for each in vif.addresses) or 'no address'}\n"
            for place, vif in enumerate(spec.vifs)
        )
        root = "LABEL=root" if self.rescue is None else f"LABEL=rescue image={self.rescue.image}"
        self.write(
            f"[    0.000000] Linux version 6.12.0-moorage (simulated) #{self.boots}\n"
            f"[    0.000000] Command line: root={root} ro console=ttyS0\n"
            f"[    0.004000] smpboot: Allowing {spec.vcpus} CPUs\n"
            f"[    0.008000] Memory: {spec.ram_mib * 1024}K available\n"
            f"{nics}[    2.000000] cloud-init: instance-id {spec.server}\n"
            f"\n{name} login: "
        )
