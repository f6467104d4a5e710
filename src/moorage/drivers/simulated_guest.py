"""One simulated guest: what its file holds, and what it writes to its console when it boots."""

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
    """Set while it runs from a rescue image."""
    ephemeral_since: int = 0
    """The boot at which its ephemeral disk was made: a rebuild that preserves the disk leaves it."""
    rebuilds: int = 0
    password: str = ""
    """`salt$hash`, as a guest keeps its own; set by its agent."""
    dumps: int = 0
    """Crash dumps it was made to write."""
    on_since: float = 0.0
    """Since when it runs, by its host's clock."""
    written: str = ""
    """What its programs wrote to its disk, behind the data of its image."""
    formats: tuple[str, str] = (RAW, BARE)
    """Of the disk's data, as the image service names them: disk format, container format."""
    snapshot: ImageId | None = None
    """For which image a copy of its disk was taken last; without the copy, it was sent."""
    chains: dict[str, tuple[tuple[str, str], ...]] = msgspec.field(default_factory=dict)
    """Volume → (snapshot, file) of each snapshot that the volume service had taken here, the newest last."""

    frozen_for: str = ""
    """Why it is still, until `frozen_until` by its host's clock."""
    frozen_until: float = 0.0
    thawed_for: str = ""
    """Why it was still last, and was let go in time."""

    move: str = ""
    """The last move that brought it here, or made it another size."""
    incoming: bool = False
    """It is a place that waits for a guest that runs elsewhere; `move` says for which move."""
    leaving: tuple[str, str] | None = None
    """Where it is being sent while it runs: the other host's directory, and the move."""
    stands_still: PowerState | None = None
    """What it was before it stood still to change hosts."""
    silent_since: float = 0.0
    """When it stood still, to change hosts; by its host's clock."""
    silences: tuple[float, ...] = ()
    """How long it stood still, each time that it changed hosts while it ran."""
    left: "SimulatedGuest | None" = None
    """As it was before that, where it was here already; until the move is confirmed."""

    def write(self, text: str) -> None:
        self.console = (self.console + text)[-MAX_CONSOLE_BYTES:]

    def boot(self, now: float) -> None:
        """On, from its own disk or from the rescue image, with the lines of a kernel that starts."""
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
