"""A flood of one host: it is counted before it is decoded, others are heard at once, and an operator sees who sends it."""

import time

import pytest
from tests.sagas.test_host_approvals import LIFE, ApprovingConductor, approving

from moorage.bus import sender_checks, subjects
from moorage.bus.host_messages import Heartbeat
from moorage.bus.messages import read
from moorage.bus.sender_shares import MIB, OF_REPORTS, HostShare, SenderShares
from moorage.model.ids import CellId
from moorage.store.region import host_approvals

__all__ = ["approving"]
THIEF, OTHER = "thief.example.org", "other.example.org"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_messages_and_bytes_of_one_host_are_bounded() -> None:
    clock = Clock()
    shares = SenderShares(HostShare(10.0, 20, 1.0 * MIB, 4 * MIB), clock)
    mine, others = (subjects.from_host(CellId("c1"), host, subjects.REPORT) for host in (THIEF, OTHER))
    assert sum(shares.admits(mine, 100) for _ in range(1_000)) == 20
    assert shares.excess == 980
    assert shares.admits(others, 100)
    assert not shares.admits(subjects.from_host(CellId("c1"), THIEF, subjects.HEARTBEAT), 1), "all its subjects are one"
    clock.now_s += 1.0
    assert sum(shares.admits(mine, 100) for _ in range(1_000)) == 10, "as many as came together since"
    clock.now_s += 100.0
    assert sum(shares.admits(mine, MIB) for _ in range(20)) == 4
    assert shares.admits(others, MIB), "as large as one may be"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all messages that were decoded."""
    sizes: list[int] = []

    def counting(payload: bytes) -> object:
        sizes.append(len(payload))
        return read(payload)

    monkeypatch.setattr(sender_checks, "read", counting)
    return sizes


async def test_a_flood_of_one_host_is_not_read_and_is_shown(approving: ApprovingConductor, decoded: list[int]) -> None:
    here, cell, region = approving, approving.cell, approving.small.region
    for now, host in enumerate((THIEF, OTHER), start=1):
        await here.approve(host, cell, now)
    await here.look()
    junk = b"[" * (80 * 1024)
    own = subjects.from_host(cell, THIEF, subjects.REPORT)
    began = time.monotonic()
    for _ in range(7_000):
        await here.conductor._on_message(own, junk)
    took_s = time.monotonic() - began
    assert decoded.count(len(junk)) <= OF_REPORTS.bytes_at_once // len(junk) + 1 + 30 * took_s
    assert here.conductor.senders.excess > 6_000
    decoded.clear()
    await here.say(Heartbeat(OTHER, cell, LIFE, 1), subjects.from_host(cell, OTHER, subjects.HEARTBEAT))
    assert len(decoded) == 1, "others are heard as before"
    await here.look()
    rows = {host: await region.read(lambda tx, host=host: host_approvals.get(tx, host)) for host in (THIEF, OTHER)}
    assert "more than a host may" in rows[THIEF].refused_why  # type: ignore[union-attr]
    assert rows[OTHER].refused_why == ""  # type: ignore[union-attr]
