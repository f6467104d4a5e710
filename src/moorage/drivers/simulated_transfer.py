"""The numbers of one live migration between simulated hosts: what was sent, and what is left."""

import asyncio
from pathlib import Path

from moorage.model.guest import GuestSpec, MoveTarget
from moorage.model.live_migration import LiveNow, LiveState
from moorage.model.migration import TransferProgress

MIB, GIB = 1 << 20, 1 << 30


class SimulatedTransfer:
    """One guest that is being sent."""

    def __init__(self, spec: GuestSpec, to: MoveTarget, move: str) -> None:
        self.to, self.move = Path(to.where), move
        self.memory = spec.ram_mib * MIB
        self.disk = 0 if to.shared_disks else (spec.root_gib + spec.ephemeral_gib) * GIB + spec.swap_mib * MIB
        self.memory_sent = self.disk_sent = 0
        self.memory_left, self.disk_left = self.memory, self.disk
        self.state, self.why, self.forced = LiveState.RUNNING, "", False
        self.task: asyncio.Task[None] | None = None

    def send(self, amount: int, dirty: int) -> None:
        """Send the disk first, then the memory; the guest writes a part of it again."""
        of_disk = min(self.disk_left, amount)
        self.disk_left, self.disk_sent = self.disk_left - of_disk, self.disk_sent + of_disk
        if self.disk_left:
            return
        of_memory = min(self.memory_left, amount - of_disk)
        self.memory_sent += of_memory
        left = self.memory_left - of_memory
        self.memory_left = min(self.memory, left + dirty) if left else 0

    def all_sent(self) -> None:
        self.disk_sent, self.memory_sent = self.disk_sent + self.disk_left, self.memory_sent + self.memory_left
        self.disk_left = self.memory_left = 0

    def now(self) -> LiveNow:
        sent = TransferProgress(
            self.memory, self.memory_sent, self.memory_left, self.disk, self.disk_sent, self.disk_left
        )  # fmt: skip
        return LiveNow(self.state, sent, self.why)
