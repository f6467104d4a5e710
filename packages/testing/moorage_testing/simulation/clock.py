"""Machines and their clocks: wall time that is wrong by minutes and jumps, a loop's time that stands still while its machine sleeps."""

import asyncio

from moorage_testing.simulation.loop import PROCESS, SimulatedProcess, VirtualLoop

EPOCH_S = 1_900_000_000.0
"""What a right wall clock says when the loop's clock is at its start."""


class SimulatedMachine:
    """One machine; its processes share its clock."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.offset_s = 0.0
        """How far its wall clock is ahead of the right time."""
        self.drift = 0.0
        """Seconds that it gains in a second."""
        self.asleep = False
        """It stands still with all that is on it, guests too."""

    def now(self) -> float:
        """Wall time."""
        passed_s = self.loop.now - 1_000.0
        return EPOCH_S + passed_s * (1.0 + self.drift) + self.offset_s


class MachineProcess(SimulatedProcess):
    """A process that knows its machine."""

    def __init__(self, name: str, machine: SimulatedMachine) -> None:
        super().__init__(name)
        self.machine = machine


def machine_here(otherwise: SimulatedMachine) -> SimulatedMachine:
    """The machine of the process that runs now."""
    process = PROCESS.get()
    return process.machine if isinstance(process, MachineProcess) else otherwise


class VirtualClock:
    """`model.clock.Clock` of one machine."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine

    def now(self) -> float:
        return self._machine.now()

    def monotonic(self) -> float:
        """Goes on while the machine sleeps, as CLOCK_BOOTTIME does; the loop's own time does not."""
        return self._machine.loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
