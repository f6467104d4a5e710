"""The guests that hosts reported, from the memory of this process's cell conductors."""

from collections.abc import Callable, Collection, Mapping, Sequence

from moorage.conductor.cell_conductor import CellConductor
from moorage.model.clock import Clock
from moorage.model.guest import PowerState
from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import CellId, ServerId

ANSWER_S = 5.0
LOOK_EVERY_S = 0.05
NAMED_MAX = 20
"""How many silent hosts are named; further ones are counted."""


class ReportedGuests:
    def __init__(self, cells: Callable[[], Sequence[CellConductor]], every: Sequence[CellId], clock: Clock) -> None:
        """`every`: all configured cells; this process may not have found each of them yet."""
        self._cells, self._every, self._clock = cells, every, clock

    def seen(self) -> tuple[Mapping[str, Mapping[ServerId, PowerState]], Mapping[str, str]]:
        """Host → its guests and their power; and what is silent, with the reason."""
        guests: dict[str, Mapping[ServerId, PowerState]] = {}
        silent: list[str] = []
        for cell in self._cells():
            for known in cell.known:
                if known.silent or known.reported_guests is None:
                    silent.append(known.host)
                else:
                    guests[known.host] = known.reported_guests
        reporting = {cell.cell for cell in self._cells()}
        out = {
            f"hosts of {cell}": "this process does not receive them" for cell in self._every if cell not in reporting
        }
        out |= {f"host {each}": "it has not reported" for each in sorted(silent)[:NAMED_MAX]}
        if len(silent) > NAMED_MAX:
            out["hosts"] = f"{len(silent) - NAMED_MAX} more have not reported"
        return guests, out

    async def differing(self) -> Mapping[str, Mapping[ServerId, GuestDevices]]:
        """Guests whose devices are not those of their records. What every host says of them is held against the records now, and hosts
        where they differ are asked for their reports.
        """
        changed: list[str] = []
        for cell in self._cells():
            changed += await cell.comparison.devices.hosts_that_differ(cell.known, self._clock.monotonic())
        if changed:
            await self.ask_again(changed)
        return {
            known.host: {server: each.devices for server, each in known.differing.items()}
            for cell in self._cells()
            for known in cell.known
            if known.differing and not known.silent
        }

    async def ask_again(self, hosts: Collection[str]) -> Collection[str]:
        """Ask these hosts for reports; return those that answered within a few seconds."""
        requested: list[tuple[CellConductor, str, int]] = []
        for cell in self._cells():
            for host in sorted(set(hosts) & cell.known.hosts.keys()):
                requested.append((cell, host, cell.known[host].reports))
                await cell.ask(host)
        until = self._clock.monotonic() + ANSWER_S
        while True:
            answered = [host for cell, host, before in requested if cell.known[host].reports > before]
            if len(answered) == len(requested) or self._clock.monotonic() >= until:
                return answered
            await self._clock.sleep(LOOK_EVERY_S)
