"""Notifications of a whole cloud, received with the real oslo.messaging and on the bus: each event once, in order, in Nova's format."""

import asyncio
import importlib.util
import json
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.config_notifications import Notifications
from moorage.store.region.notifications import OUTBOX
from moorage_testing.notification_listener import NotificationListener, id_of, listening
from moorage_testing.waiting import until

PATIENCE_S = 180.0

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("oslo_messaging") is None, reason="the extra `notifications` is not installed"
)


LIFE = [
    "create.start",
    "create.end",
    "power_off.start",
    "power_off.end",
    "power_on.start",
    "power_on.end",
    "reboot.start",
    "reboot.end",
    "pause.start",
    "pause.end",
    "unpause.start",
    "unpause.end",
    "suspend.start",
    "suspend.end",
    "resume.start",
    "resume.end",
    "trigger_crash_dump.start",
    "trigger_crash_dump.end",
    "rescue.start",
    "rescue.end",
    "unrescue.start",
    "unrescue.end",
    "rebuild_scheduled",
    "rebuild.start",
    "rebuild.end",
    "interface_attach.start",
    "interface_attach.end",
    "interface_detach.start",
    "interface_detach.end",
    "delete.start",
    "shutdown.start",
    "shutdown.end",
    "delete.end",
]
OLD = [
    each.replace("_scheduled", ".scheduled")
    for each in LIFE
    if not each.startswith(("interface", "trigger_crash_dump"))
]
"""Nova has no unversioned words for interfaces and crash dumps."""
ACTIONS: list[dict[str, Any]] = [
    {"os-stop": None},
    {"os-start": None},
    {"reboot": {"type": "HARD"}},
    {"pause": None},
    {"unpause": None},
    {"suspend": None},
    {"resume": None},
    {"trigger_crash_dump": None},
    {"rescue": None},
    {"unrescue": None},
    {"rebuild": {}},
]


async def live(running: Running) -> str:
    """One server through everything that can be done to it."""
    conductor = running.cloud.region.conductor
    assert conductor is not None
    server = (await running.admin.active("a"))["id"]
    image = await running.admin.id_of("image", "tiny")
    for action in ACTIONS:
        body = {"rebuild": {"imageRef": image}} if "rebuild" in action else action
        reply = await running.admin.compute("POST", f"/servers/{server}/action", body)
        assert reply.status_code in {200, 202}, reply.text
        await running.admin.settled(server)
        await until(lambda: not conductor.executing)  # a crash dump shows no task while it is under way
    network = await running.admin.id_of("network", "private")
    path = f"/servers/{server}/os-interface"
    reply = await running.admin.compute("POST", path, {"interfaceAttachment": {"net_id": network}})
    assert reply.status_code == 200, reply.text
    port = reply.json()["interfaceAttachment"]["port_id"]
    assert (await running.admin.compute("DELETE", f"{path}/{port}")).status_code == 202
    await until(lambda: not conductor.executing, PATIENCE_S)  # a delete would be accepted while the detach goes on
    await running.admin.gone(server)
    return str(server)


async def nothing_waits(running: Running) -> None:
    """What was sent is crossed out, a moment later."""
    async with asyncio.timeout(PATIENCE_S):
        while await running.cloud.region.databases.region.read(OUTBOX.count):  # noqa: ASYNC110 - a condition in a database
            await asyncio.sleep(0.01)


def wanted(url: str, **also: Any) -> Notifications:
    return Notifications(transport_url=url, publisher_host="rack1", **also)


@pytest.mark.parametrize("url", ["fake://", "kombu+memory://"])
async def test_a_servers_life_is_sent_in_both_formats_through_oslo_messaging(start: Start, url: str) -> None:
    with listening(url, "notifications") as old, listening(url, "versioned_notifications") as new:
        async with start(notifications=wanted(url, notification_format="both"), hosts=Hosts(count=2)) as running:
            server = await live(running)
            await until(lambda: len(old.heard) >= len(OLD) and len(new.heard) >= len(LIFE), PATIENCE_S)
            await nothing_waits(running)
        assert old.types(server) == [f"compute.instance.{each}" for each in OLD]
        assert new.types(server) == [f"instance.{each}" for each in LIFE]
        hosts = {each.publisher_id for each in old.heard if not each.event_type.endswith("rebuild.scheduled")}
        assert len(hosts) == 1
        assert hosts.pop().startswith("compute.host")
        others = [each for each in new.heard if not each.publisher_id.startswith("nova-compute:")]
        assert [(each.publisher_id.partition(":")[0], each.event_type) for each in others] == [
            ("nova-conductor", "instance.rebuild_scheduled")
        ]
        assert len({each.message_id for each in old.heard + new.heard}) == len(OLD) + len(LIFE)
        cards = [len(each.payload["nova_object.data"]["ip_addresses"]) for each in new.heard]
        assert cards[0] == cards[-1] == 0, "none before it is built, none when it is gone"
        assert cards[LIFE.index("interface_attach.end")] == cards[LIFE.index("create.end")] + 1
        assert cards[LIFE.index("interface_detach.end")] == cards[LIFE.index("create.end")]
        built = next(each for each in old.heard if each.event_type.endswith("create.end"))
        assert built.payload["fixed_ips"][0]["label"] == "private"
        assert (built.payload["state"], built.payload["message"]) == ("active", "Success")
        assert built.context["request_id"].startswith("req-")
        begun = next(each for each in new.heard if each.event_type.endswith("create.start"))
        assert begun.payload["nova_object.data"]["host"] is None


async def test_notifications_are_off_by_default_and_can_use_the_bus(start: Start) -> None:
    async with start(hosts=Hosts(count=1), notifications=Notifications(bus=True)) as running:
        messages: list[tuple[str, Any]] = []

        async def on_message(subject: str, payload: bytes) -> None:
            envelope = json.loads(payload)
            assert envelope["oslo.version"] == "2.0"
            messages.append((subject, json.loads(envelope["oslo.message"])))

        await running.cloud.region.bus.subscribe("moorage.notification.>", on_message)
        server = (await running.admin.active("a"))["id"]
        await until(lambda: len(messages) == 2, PATIENCE_S)
        assert [(subject, id_of(each["payload"]), each["event_type"]) for subject, each in messages] == [
            ("moorage.notification.notifications.info", server, "compute.instance.create.start"),
            ("moorage.notification.notifications.info", server, "compute.instance.create.end"),
        ]
    assert Notifications().wanted is False


async def test_a_failed_host_sends_an_error_and_the_next_a_start(start: Start) -> None:
    with listening("fake://", "notifications") as old:
        changes = wanted("fake://", notify_on_state_change="vm_and_task_state")
        async with start(notifications=changes, hosts=Hosts(count=3)) as running:
            running.set_faults_everywhere(start_guest=VerbDial(fail_chance=1.0))
            refused = await running.admin.boot("nowhere", networks="private")
            found = await running.admin.settled(refused)
            assert found["status"] == "ERROR"
            await until(lambda: "error" in states(old), PATIENCE_S)
            await until(lambda: len([each for each in old.heard if each.event_type.endswith("create.error")]) == 3)
            await nothing_waits(running)
    starts, errors = (
        [each for each in old.heard if each.event_type == f"compute.instance.create.{which}"]
        for which in ("start", "error")
    )
    assert [each.priority for each in starts + errors] == ["info"] * 3 + ["error"] * 3
    hosts = [each.publisher_id for each in starts]
    assert len(set(hosts)) == 3, "each host says its own"
    assert [each.publisher_id for each in errors] == hosts
    assert {(each.payload["state"], each.payload["code"]) for each in errors} == {("building", 500)}
    assert states(old)[0] == "building"
    assert "active" not in states(old)


def states(listener: NotificationListener) -> list[str]:
    return [each.payload["state"] for each in listener.heard if each.event_type == "compute.instance.update"]


async def test_notifications_of_changes_without_an_operation(start: Start) -> None:
    """Locks are told in the newer format only; tags always; the rest where updates are wanted."""
    with listening("fake://", "notifications") as old, listening("fake://", "versioned_notifications") as new:
        changes = wanted("fake://", notification_format="both", notify_on_state_change="vm_state")
        async with start(notifications=changes, hosts=Hosts(count=1)) as running:
            server = (await running.admin.active("before"))["id"]
            await until(lambda: new.types(server)[-1:] == ["instance.create.end"], PATIENCE_S)
            await until(lambda: old.types(server)[-1:] == ["compute.instance.create.end"], PATIENCE_S)
            old.heard.clear()
            new.heard.clear()
            path = f"/servers/{server}"
            await running.admin.compute("POST", f"{path}/action", {"lock": {"locked_reason": "why"}})
            await running.admin.compute("POST", f"{path}/action", {"unlock": None})
            await running.admin.compute("PUT", path, {"server": {"name": "after"}})
            await running.admin.compute("POST", f"{path}/metadata", {"metadata": {"a": "b"}})
            await running.admin.compute("PUT", f"{path}/tags/blue")
            await until(lambda: len(new.heard) == 5, PATIENCE_S)
            await until(lambda: len(old.heard) == 3, PATIENCE_S)
    assert new.types() == ["instance.lock", "instance.unlock", *["instance.update"] * 3]
    locked, _, renamed, _, tagged = (each.payload["nova_object.data"] for each in new.heard)
    assert (locked["locked"], locked["locked_reason"]) == (True, "why")
    assert (renamed["old_display_name"], renamed["display_name"]) == ("before", "after")
    assert tagged["tags"] == ["blue"]
    assert [each.publisher_id for each in new.heard] == [
        "nova-api:rack1", "nova-api:rack1", "nova-compute:rack1", "nova-compute:rack1", "nova-api:rack1"
    ]  # fmt: skip
    assert [each.publisher_id for each in old.heard] == ["compute.rack1", "compute.rack1", "nova-api.rack1"]
    assert old.heard[1].payload["metadata"] == {"a": "b"}


async def test_a_message_returned_by_the_broker_is_sent_again_unchanged(start: Start) -> None:
    """At least once: what a reader gives back comes again with its id."""
    with listening("kombu+memory://", "notifications") as old:
        old.refusals = 1
        async with start(notifications=wanted("kombu+memory://"), hosts=Hosts(count=1)) as running:
            await running.admin.active("a")
            await until(lambda: len(old.heard) >= 2, PATIENCE_S)
    assert sorted(old.types()) == ["compute.instance.create.end", "compute.instance.create.start"]


def test_the_listener_can_miss() -> None:
    assert NotificationListener().types() == []
