"""Notifications of shelving, moves, evacuations and swaps of volumes, in order and in both formats, sent by the operations themselves.

The golden files have what differs from event to event: who speaks, the states, the place, and what only this event has. Which fields and
versions a payload has is in `tests/pure/test_notifications_golden.py`. `MOORAGE_BLESS=1` writes them anew; read the diff against
Nova's `doc/notification_samples`.
"""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed
from moorage.model.ids import ConductorId
from moorage.model.notification import Notification
from moorage.operations.accept import accepted
from moorage.operations.notifications import unversioned, versioned
from moorage.operations.notifications.messages import Wording, messages_of
from moorage.operations.registry import SAGAS
from moorage.operations.steps import live_migration
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_evacuated import evacuating
from moorage_testing.region_fixture import SmallRegion, a_server
from moorage_testing.region_moved import about_moved, live_migrating, recorded, resizing
from moorage_testing.region_shelved import offloading, shelved, shelving, unshelving
from moorage_testing.region_states import imaged, swapping_volume
from moorage_testing.saga_proof import PROVED_OPERATION

GOLDEN = Path(__file__).parent.parent / "golden" / "notifications_told"
WORDING = Wording("both", image_url="http://image.example")
WITH_NOTHING = {"fault", "trusted_image_certificates"}
TELLS = ("state", "task_state", "power_state", "host", "availability_zone")
OLDER_TELLS = ("state", "state_description", "host", "availability_zone")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def in_world(world: Awaitable[Any], asked: Any) -> Any:
    await world
    return asked


async def offloaded_of(small: SmallRegion) -> Any:
    await shelved(small, offload=False)
    return msgspec.structs.replace(offloading(), server=await recorded(small))


PLOTS: dict[str, tuple[str, Callable[[SmallRegion], Awaitable[Any]]]] = {
    "shelve": ("shelve/1", lambda small: in_world(imaged(small), shelving(offload=False))),
    "shelve_and_offload": ("shelve/1", lambda small: in_world(imaged(small), shelving(offload=True))),
    "shelve_offload": ("shelve_offload/1", offloaded_of),
    "unshelve": ("unshelve/1", lambda small: in_world(shelved(small, offload=True), unshelving())),
    "volume_swap": ("swap_volume/1", swapping_volume),
    "volume_swap.error": ("swap_volume/1", swapping_volume),
    "resize": ("resize/1", resizing),
    "resize.error": ("resize/1", resizing),
    "resize_confirm": ("confirm_resize/1", lambda small: about_moved(small, "confirm_resize/1")),
    "resize_revert": ("revert_resize/1", lambda small: about_moved(small, "revert_resize/1")),
    "evacuate": ("evacuate/1", evacuating),
    "evacuate.error": ("evacuate/1", evacuating),
    "live_migration": ("live_migrate/1", live_migrating),
    "live_migration.error": ("live_migrate/1", live_migrating),
    "live_migration.abort": ("live_migrate/1", live_migrating),
}


def failing(small: SmallRegion, name: str, patch: pytest.MonkeyPatch) -> None:
    """No host does what is asked of it, or the source stops as it was told."""
    code = live_migration.ABORTED if name.endswith(".abort") else ""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise HostFailed("the host failed", code=code)

    tell_host = small.hosts.change_guest

    async def executing(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        if verb is Verb.SEND_LIVE:
            await refuse()
        return await tell_host(to, command_context, server, verb, payload)

    patch.setattr(small.hosts, "change_guest", executing)
    patch.setattr(small.hosts, "start_guest", refuse)
    patch.setattr(small.hosts, "swap_volume", refuse)


def normalized(notification: Notification) -> dict[str, Any]:
    """Both messages, without what every event of this server has."""
    found: dict[str, Any] = {}
    for message in messages_of(notification, WORDING):
        body = message.body
        told = {"priority": body["priority"], "publisher_id": body["publisher_id"]}
        payload = body["payload"]
        if message.topic == "notifications":
            assert PLAIN_OLDER.issubset(payload)
            told |= {name: payload[name] for name in OLDER_TELLS} | {"flavor": payload["instance_type"]}
            told |= {name: value for name, value in payload.items() if name not in PLAIN_OLDER}
        else:
            data = payload["nova_object.data"]
            assert PLAIN.issubset(data)
            told |= {"payload": f"{payload['nova_object.name']} {payload['nova_object.version']}"}
            told |= {name: data[name] for name in TELLS} | {"flavor": data["flavor"]["nova_object.data"]["name"]}
            own = {name: value for name, value in data.items() if name not in PLAIN}
            told |= {name: flat(value) for name, value in own.items() if value is not None or name not in WITH_NOTHING}
        found[body["event_type"]] = told
    return found


def flat(value: Any) -> Any:
    return value["nova_object.data"] if isinstance(value, dict) and "nova_object.data" in value else value


PLAIN = set(versioned.payload(Notification(id="", event="exists", at=0, server=a_server()))["nova_object.data"]) - {
    "audit_period"
}
PLAIN_OLDER = frozenset(unversioned.payload(Notification(id="", event="delete.start", at=0, server=a_server()), ""))


@pytest.mark.parametrize("name", PLOTS)
async def test_notifications_of_a_servers_life(name: str, small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    saga_name, prepared = PLOTS[name]
    saga, asked = SAGAS[saga_name], await prepared(small)
    new = accepted(
        saga, PROVED_OPERATION, asked.server, asked, owner=ConductorId("c"), user="u", seq=2, request_id="req-1"
    )
    await small.region.write(lambda tx: small.notification_writer.accepted(tx, [new]))
    fails = name.partition(".")[2] != ""
    if fails:
        failing(small, name, monkeypatch)
    paper = MemoryJournal(first_lines(saga), small.transact)
    with pytest.raises(Unwound) if fails else nullcontext():
        await execute(
            saga,
            PROVED_OPERATION,
            asked,
            small.context,
            paper,
            clock=ManualClock(),
            notification_writer=small.on_commit,
        )
    notifications = [each for each in await small.notifications() if each.event != "update"]
    assert small.notification_writer.failures == 0
    listed = [normalized(each) for each in notifications]
    file = GOLDEN / f"{name}.json"
    if os.environ.get("MOORAGE_BLESS"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")
    assert listed == json.loads(file.read_text())


def test_every_golden_file_is_used() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(PLOTS)
