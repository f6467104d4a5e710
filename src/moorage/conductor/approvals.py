"""The hosts whose messages a cell's conductor accepts: those that an operator approved for this cell.

Messages of other hosts are ignored: their reports make nothing schedulable, they get no data of any server, and
`moorage host list` shows that they wait. The broker binds a key to a name and a cell (`bus/permissions.py`), so a
sender with an approved name has its key. When hosts are approved automatically, their names are stored, and stay
approved when that setting changes.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from moorage.bus.sender_checks import FromHost
from moorage.bus.subjects import token
from moorage.model.clock import Clock
from moorage.model.ids import CellId
from moorage.sql import Database, label
from moorage.store.region import host_approvals
from moorage.store.region.host_approvals import WAITING_MAX, Counted

SAY_AGAIN_S = 300.0
"""How often the log repeats that a host waits, or is refused."""
SAID_MAX = 1_000

logger = logging.getLogger(__name__)

Revoked: TypeAlias = Callable[[str], None]


class Approvals:
    """The approvals of one cell. `automatic`: hosts need no approval."""

    def __init__(self, cell: CellId, region: Database, clock: Clock, *, automatic: bool = True) -> None:
        self._cell, self._region, self._clock, self._automatic = cell, region, clock, automatic
        self._counted = Counted()
        self._approved: dict[str, CellId] = {}
        self._names: dict[str, str] = {}
        """Names of approved hosts, by their form in a subject."""
        self._unasked: dict[str, CellId] = {}
        self._waiting: dict[str, CellId] = {}
        self._refused: dict[str, str] = {}
        self._logged_at: dict[tuple[str, str], float] = {}

    def admits(self, message: FromHost) -> bool:
        """Whether the message is accepted; if not, note that the host waits, or what was refused."""
        cell = self._approved.get(message.host)
        if cell == self._cell:
            return True
        if self._automatic:
            if len(self._unasked) < WAITING_MAX:
                self._unasked[message.host] = self._cell
            return True
        if cell is None:
            if len(self._waiting) < WAITING_MAX:
                self._waiting[message.host] = self._cell
            self._log_refusal(message.host, "waits for an operator to approve it: moorage host approve")
        else:
            self.refuse(message.host, f"it reports that it is in cell {self._cell}, and is approved for {cell}")
        return False

    def allows(self, host: str) -> bool:
        """Whether the host may be up."""
        return self._automatic or self._approved.get(host) == self._cell

    def refuse(self, host: str, why: str) -> None:
        """Note that a message of the host was refused."""
        if len(self._refused) < WAITING_MAX:
            self._refused[host] = why
        self._log_refusal(host, f"is refused: {why}")

    def refuse_forged(self, sender: tuple[str, str] | None, why: str) -> None:
        """Like `refuse`, for a sender that is known only by the subject."""
        if sender is not None and (host := self._names.get(sender[1])) is not None:
            self.refuse(host, why)

    def _log_refusal(self, host: str, what: str) -> None:
        now = self._clock.monotonic()
        if now - self._logged_at.get((host, what), float("-inf")) < SAY_AGAIN_S:
            return
        self._logged_at.pop((host, what), None)
        self._logged_at[host, what] = now
        if len(self._logged_at) > SAID_MAX:
            del self._logged_at[next(iter(self._logged_at))]
        logger.warning("cell %s: host %r %s", self._cell, host, what)

    @property
    def reset_at(self) -> int:
        """When an operator last took back a turn of a host of the region, as far as was read."""
        return self._counted.reset_at

    async def refresh(self) -> list[str]:
        """Read the approvals, and write what was noted. Returns the hosts of this cell whose approval was removed."""
        with label("hosts"):
            await self._write()
            counted = await self._region.read(host_approvals.counted)
            if counted == self._counted:
                return []
            approved = await self._region.read(host_approvals.approved)
        revoked = [host for host, cell in self._approved.items() if cell == self._cell and approved.get(host) != cell]
        self._counted, self._approved = counted, approved
        self._names = {token(host): host for host in approved}
        return [] if self._automatic else revoked

    async def _write(self) -> None:
        unasked, waiting, refused = self._unasked, self._waiting, self._refused
        if not (unasked or waiting or refused):
            return
        now = int(self._clock.now() * 1_000_000)
        if unasked:
            await self._region.write(lambda tx: host_approvals.approve_unasked(tx, unasked, now))
            self._approved |= unasked
            self._unasked = {}
        if waiting:
            await self._region.write(lambda tx: host_approvals.record_waiting(tx, waiting, now))
            self._waiting = {}
        if refused:
            await self._region.write(lambda tx: host_approvals.note_refused(tx, refused, now))
            self._refused = {}
