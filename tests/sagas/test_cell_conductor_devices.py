"""A cell's conductor compares the volumes and interfaces of guests with the servers' records."""

from typing import Any

import msgspec
import pytest
from tests.helpers.cell_conductor import BOOT, ON, ONE, CellUnderTest, at, known

from moorage.agent.report import listed_devices
from moorage.bus.host_messages import DEVICES_LISTED_MAX, HostReport, ReportWanted
from moorage.bus.messages import encode
from moorage.conductor.audit.guest_reports import ReportedGuests
from moorage.conductor.device_comparison import ALL_EVERY_S, LOOK_EVERY_S
from moorage.model.debt import Debt, DebtKind
from moorage.model.fencing_token import FencingToken
from moorage.model.guest_devices import (
    GuestDevices,
    GuestInterface,
    GuestVolume,
    devices_digest,
    recorded_devices,
)
from moorage.model.ids import ServerId
from moorage.operations.steps import servers as records
from moorage.store.region import debts
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER
from moorage_testing.region_volumes import VOLUME

__all__ = ["at"]


async def right(at: CellUnderTest) -> GuestDevices:
    server = (await records.find(at.small.context, SERVER)).server
    assert server is not None
    return recorded_devices(server)


def with_volume(devices: GuestDevices) -> GuestDevices:
    return msgspec.structs.replace(devices, volumes=(*devices.volumes, GuestVolume(VOLUME)))


def reporting(at: CellUnderTest, devices: GuestDevices) -> HostReport:
    all_of_them = {SERVER: devices}
    return msgspec.structs.replace(at.report(ON), devices=all_of_them, devices_digest=devices_digest(all_of_them))


def differing(at: CellUnderTest) -> Any:
    return at.conductor.known[at.host].differing


async def asked_again(at: CellUnderTest, passed_s: float) -> bool:
    at.told.clear()
    at.clock.passed_s += passed_s
    for each in at.conductor.known:
        await at.conductor._ask_if_due(each)
    await at.say(at.beat(at.conductor.known[at.host].beat + 1, ON, devices=at.conductor.known[at.host].devices))
    return bool(at.heard(ReportWanted))


async def test_a_difference_counts_when_two_reports_show_it(
    at: CellUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    await known(at)
    await at.say(reporting(at, await right(at)))
    assert differing(at) == {}
    await at.say(reporting(at, with_volume(await right(at))))
    assert differing(at)[SERVER].looks == 1
    assert await asked_again(at, 30.0)
    await at.say(reporting(at, with_volume(await right(at))))
    assert differing(at)[SERVER].looks == 2
    assert f"it has a volume that its record does not list: {VOLUME}" in caplog.text
    await at.say(reporting(at, await right(at)))
    assert differing(at) == {}


async def test_a_server_that_an_operation_holds_is_not_judged(at: CellUnderTest) -> None:
    await known(at)
    await at.held()
    for _ in range(3):
        await at.say(reporting(at, with_volume(await right(at))))
        assert differing(at) == {}
    await at.small.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT))
    await at.say(reporting(at, with_volume(await right(at))))
    assert differing(at)[SERVER].looks == 1, "what was seen while it was held does not count"


async def test_a_server_for_which_something_is_owed_is_not_judged(at: CellUnderTest) -> None:
    await known(at)

    owed = Debt(SERVER, BOOT, DebtKind.UNPLUG_VOLUME, VOLUME, at.conductor.cell, at.host, FencingToken(1), "silent", 1)
    await at.small.region.write(lambda tx: debts.owe(tx, owed))
    await at.say(reporting(at, with_volume(await right(at))))
    assert differing(at) == {}


async def test_a_host_that_says_nothing_of_devices_is_not_known_to_have_none(at: CellUnderTest) -> None:
    """An earlier release, and a report that has no room for the guest."""
    await known(at)
    for _ in range(2):
        await at.say(at.report(ON))
        await at.say(msgspec.structs.replace(at.report(ON), devices_digest="of others"))
        assert differing(at) == {}


async def test_a_changed_digest_is_compared_with_the_records_and_seldom_asks_for_a_report(at: CellUnderTest) -> None:
    await known(at)
    await at.say(reporting(at, await right(at)))
    devices = {SERVER: with_volume(await right(at))}
    at.told.clear()
    await at.say(at.beat(1, ON, devices=devices_digest({SERVER: await right(at)})))
    await at.compare()
    assert at.heard(ReportWanted) == []
    await at.say(at.beat(2, ON, devices=devices_digest(devices)))
    assert at.heard(ReportWanted) == [], "a boot or an attach changes it, too"
    at.clock.passed_s += LOOK_EVERY_S
    await at.conductor.compare_some()
    assert not at.conductor.known[at.host].due(at.clock.monotonic()), "an operation may be under way"
    at.clock.passed_s += LOOK_EVERY_S
    await at.conductor.compare_some()
    assert at.conductor.known[at.host].due(at.clock.monotonic())


async def test_a_record_that_changes_under_its_guest_is_noticed(at: CellUnderTest) -> None:
    """As when a database is put back: the host says the same as before."""
    await known(at)
    lately = {SERVER: with_volume(await right(at))}
    await at.say(at.beat(1, ON, devices=devices_digest(lately)))
    host = at.conductor.known[at.host]
    host.devices_agreed, host.devices_compared = devices_digest(lately), at.clock.monotonic()
    for _ in range(2):
        at.clock.passed_s += ALL_EVERY_S
        await at.conductor.compare_some()
    assert host.due(at.clock.monotonic())


async def test_an_audit_holds_all_hosts_against_the_records_at_once(at: CellUnderTest) -> None:
    await known(at)
    lately = {SERVER: with_volume(await right(at))}
    await at.say(at.beat(1, ON, devices=devices_digest(lately)))
    assert await at.conductor.comparison.devices.hosts_that_differ(at.conductor.known, at.clock.monotonic()) == [
        at.host
    ]
    await at.say(reporting(at, lately[SERVER]))
    seen = ReportedGuests(lambda: [at.conductor], [at.cell], at.clock)
    at.conductor.ask = lambda host: at.say(reporting(at, lately[SERVER]))  # type: ignore[method-assign]
    assert await seen.differing() == {at.host: {SERVER: lately[SERVER]}}


def test_one_report_is_no_larger_than_a_message_may_be() -> None:
    id = "0d0c0b0a-0000-4000-8000-"
    each = GuestDevices(
        tuple(GuestVolume(f"{id}{volume:012}", f"{id}{volume:012}", f"{id}{volume:012}") for volume in range(3)),
        tuple(GuestInterface(f"{id}{port:012}", "fa:16:3e:00:00:00") for port in range(2)),
    )
    guests = {ServerId(f"{id}{number:012}"): each for number in range(5_000)}
    seen: set[ServerId] = set()
    last = ""
    while len(seen) < len(guests):
        listed = listed_devices(guests, last)
        assert sum(devices.count for devices in listed.values()) <= DEVICES_LISTED_MAX
        report = HostReport("host1", "cell1", "x", ONE, guests=dict.fromkeys(guests, 1), devices=listed)  # type: ignore[arg-type]
        assert len(encode(report)) < 900_000
        assert not seen & listed.keys() or len(seen) + len(listed) > len(guests), (
            "each report continues where the last one ended"
        )
        seen |= listed.keys()
        last = next(reversed(listed))
