"""Notifications are the same with early ports and binding in the conductor on or off: types and payloads; publishers may differ (S0.19)."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from moorage.model.errors import Conflict
from moorage.model.ids import OperationId
from moorage.operations.notifications.messages import Wording, messages_of
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.legacy_hosts import OldRegion
from moorage_testing.region_fixture import a_boot, a_server

BOOT = SAGAS["boot/1"]
BOOTED = OperationId("booted")
LEVELS = {
    "all gates open": ((3, 3, 3), True),
    "early ports only": ((2, 2, 2), True),
    "all gates shut": ((1, 1, 1), True),
    "no credentials": ((1, 1, 1), False),
}
CHANGING = {"message_id", "timestamp", "launched_at", "created_at", "updated_at", "host", "node", "publisher_id"}
"""Times, names of hosts, and ids: what differs from boot to boot."""


@pytest.fixture
async def old() -> AsyncIterator[OldRegion]:
    region = await OldRegion.open()
    assert isinstance(region, OldRegion)
    yield region
    await region.close()


def plain(part: Any) -> Any:
    """Without what differs from boot to boot, by whoever it is done."""
    if isinstance(part, dict):
        return {key: plain(value) for key, value in part.items() if key not in CHANGING}
    return [plain(each) for each in part] if isinstance(part, list) else part


async def notifications_of_boot(old: OldRegion, gates: str, *, refused: bool) -> tuple[list[Any], list[str]]:
    """A boot that succeeds, at once or at the second host: the messages in both formats, and who said them."""
    levels, credentials = LEVELS[gates]
    await old.of(dict(zip(("host1", "host2", "host3"), levels, strict=True)), credentials=credentials)
    await old.fresh(a_server(), BOOTED)
    if refused:
        old.hosts.refuse_builds = {"host1": 1, "host2": 0, "host3": 1}
    decided = old.gates()
    boot = msgspec.structs.replace(a_boot(BOOTED), gates=decided, min_level=decided.min_level)
    log = MemoryJournal(first_lines(BOOT), old.transact)
    await execute(BOOT, BOOTED, boot, old.context, log, notification_writer=old.on_commit)
    notifications = [each for each in await old.notifications() if each.event.startswith("create")]
    messages = [message.body for each in notifications for message in messages_of(each, Wording("both"))]
    return [plain(each) for each in messages], [each["publisher_id"] for each in messages]


@pytest.mark.parametrize("gates", [name for name in LEVELS if name != "all gates open"])
@pytest.mark.parametrize("refused", [False, True])
async def test_notifications_are_the_same_with_open_and_shut_gates(gates: str, refused: bool, old: OldRegion) -> None:
    new_way, _ = await notifications_of_boot(old, "all gates open", refused=refused)
    old_way, publishers = await notifications_of_boot(old, gates, refused=refused)
    ends = [each["event_type"] for each in new_way if each["event_type"].startswith("instance")]
    assert ends[0] == "instance.create.start"
    assert ends[-1] == "instance.create.end"
    assert len(old_way) >= 4
    by_type = {each["event_type"]: each for each in new_way}
    assert {each["event_type"] for each in old_way} <= by_type.keys() | {
        "instance.create.error",
        "compute.instance.create.error",
    }
    for each in old_way:
        if each["event_type"] in by_type and not each["event_type"].endswith("error"):
            assert each == by_type[each["event_type"]]
    assert {each.replace(":", ".").split(".")[0] for each in publishers} == {"compute", "nova-compute"}


@pytest.mark.parametrize("gates", ["all gates open", "all gates shut"])
async def test_the_maker_of_the_ports_reports_that_they_could_not_be_made(gates: str, old: OldRegion) -> None:
    """Early ports: a start and an error of the conductor; else of every host that tried."""
    levels, credentials = LEVELS[gates]
    await old.of(dict(zip(("host1", "host2", "host3"), levels, strict=True)), credentials=credentials)
    await old.fresh(a_server(), BOOTED)

    async def refuses(*_: Any, **__: Any) -> Any:
        raise Conflict("no more addresses", code="no_addresses")

    old.network.ensure_ports = refuses  # type: ignore[method-assign]
    decided = old.gates()
    boot = msgspec.structs.replace(a_boot(BOOTED), gates=decided, min_level=decided.min_level)
    with pytest.raises(Unwound):
        await execute(
            BOOT,
            BOOTED,
            boot,
            old.context,
            MemoryJournal(first_lines(BOOT), old.transact),
            notification_writer=old.on_commit,
        )
    notifications = [each for each in await old.notifications() if each.event.startswith("create")]
    services = {each.service for each in notifications if each.event == "create.error"}
    events = [each.event for each in notifications]
    assert events == ["create.start", "create.error"] * (len(events) // 2)
    assert services == {"conductor" if gates == "all gates open" else "compute"}
    assert {each.server.vm_state.value for each in notifications} == {"building"}
