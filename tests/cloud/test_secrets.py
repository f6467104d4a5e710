"""Secrets of callers are put into every field that accepts one, and searched for in everything that is stored, logged or sent.

A token and a password to log in with are kept nowhere. What a guest must be given is kept where it is for the guest, and is in no
log, fault, explanation, action, notification or line of the audit log.
"""

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cloud.conftest import Running, Start

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.config_audit_log import AuditLog
from moorage.main.config_notifications import Notifications
from moorage.main.library_logs import quiet_libraries
from moorage.main.service_clients import admin_password, demo_password
from moorage_testing.api_user import Person
from moorage_testing.waiting import PATIENCE_S, until

AT = {"OpenStack-API-Version": "compute 2.56"}
"""The last version that takes files for a guest."""


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


PASSWORDS = {
    "of a boot": "canary-1-adminpass",
    "changed": "canary-2-adminpass",
    "of a rebuild": "canary-3-adminpass",
    "of a rescue": "canary-4-adminpass",
    "of an evacuation": "canary-5-adminpass",
    "of a boot that fails": "canary-6-adminpass",
    "of a boot that is refused": "canary-7-adminpass",
}
WRONG = "canary-8-password"
USER_DATA, FILE = "#!canary-9-userdata", "canary-10-personality"
TO_GUESTS = {"user data": USER_DATA, "a file": FILE}
FOR_GUESTS = ("region.db", "cell1.db", "cell2.db", "hosts/")
"""Where what a guest is given may lie: its server's record, the journal of its boot, its host."""
DRIVES = "hosts/"
"""Its password is on its drive, as in Nova, and goes with it."""


async def ask(person: Person, method: str, path: str, body: Any) -> Any:
    return await person.http.request(method, f"{person.urls[0]}{path}", json=body, headers=AT)


async def live(running: Running, demo: Person) -> list[str]:
    """The main things that are done with a server, and some that fail; the ids of all servers that there were."""
    image = await demo.id_of("image", "tiny")
    flavor, bigger = await demo.id_of("flavor", "m1.nano"), await demo.id_of("flavor", "m1.tiny")
    network = await demo.id_of("network", "private")
    wanted = {
        "name": "canaries", "imageRef": image, "flavorRef": flavor, "networks": [{"uuid": network}],
        "adminPass": PASSWORDS["of a boot"], "user_data": coded(USER_DATA), "config_drive": True,
        "personality": [{"path": "/etc/canary", "contents": coded(FILE)}],
    }  # fmt: skip
    made = await ask(demo, "POST", "/servers", {"server": wanted})
    assert made.status_code == 202, made.text
    server = str(made.json()["server"]["id"])
    assert (await demo.settled(server))["status"] == "ACTIVE"
    for action in (
        {"changePassword": {"adminPass": PASSWORDS["changed"]}},
        {"rebuild": {"imageRef": image, "adminPass": PASSWORDS["of a rebuild"]}},
        {"rescue": {"adminPass": PASSWORDS["of a rescue"]}},
        {"unrescue": None},
        {"resize": {"flavorRef": bigger}},
        {"revertResize": None},
        {"createImage": {"name": "canary"}},
        {"evacuate": {"adminPass": PASSWORDS["of an evacuation"]}},
    ):
        answer = await ask(demo, "POST", f"/servers/{server}/action", action)
        assert answer.status_code in ({403} if "evacuate" in action else {200, 202}), (action, answer.text)
        await demo.settled(server)
        await operations_over(demo, server)
    with broken(running):
        failing = wanted | {"name": "fails", "adminPass": PASSWORDS["of a boot that fails"]}
        failed = str((await ask(demo, "POST", "/servers", {"server": failing})).json()["server"]["id"])
        assert (await demo.settled(failed))["status"] == "ERROR"
    refused = wanted | {"adminPass": PASSWORDS["of a boot that is refused"], "flavorRef": "no such flavor"}
    assert (await ask(demo, "POST", "/servers", {"server": refused})).status_code == 400
    return [server, failed]


async def operations_over(demo: Person, server: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await demo.compute("GET", "/ext/operations", server=server, status="open")).json()["operations"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def broken(running: Running) -> Iterator[None]:
    """Every host refuses to start a guest."""
    drivers = running.cloud.fleet.drivers
    before = {host: driver.dials for host, driver in drivers.items()}
    for driver in drivers.values():
        driver.turn(msgspec.structs.replace(driver.dials, verbs={"start_guest": VerbDial(fail_chance=1.0)}))
    yield
    for host, driver in drivers.items():
        driver.turn(before[host])


def kept_in(directory: Path) -> dict[str, bytes]:
    """Every file, by its place."""
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def holding(files: dict[str, bytes], text: str) -> set[str]:
    forms = {text.encode(), coded(text).encode(), coded(text).rstrip("=").encode()}
    return {name for name, data in files.items() if any(form in data for form in forms)}


@pytest.mark.slow
async def test_secrets_are_logged_nowhere_and_stored_only_for_guests(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quiet_libraries()
    log_file = tmp_path / "audit.jsonl"
    changes: dict[str, Any] = {
        "hosts": Hosts(count=4),
        "audit_log": AuditLog(enabled=True, reads=True, requests=True, file=str(log_file), notify=True),
        "notifications": Notifications(
            bus=True, notification_format="both", notify_on_state_change="vm_and_task_state"
        ),
    }
    calls: list[str] = []
    async with start(**changes) as running:

        async def on_message(_: str, payload: bytes) -> None:
            calls.append(payload.decode())

        await running.cloud.region.bus.subscribe("moorage.notification.>", on_message)
        user = {"name": "demo", "domain": {"id": "default"}, "password": WRONG}
        auth = {"identity": {"methods": ["password"], "password": {"user": user}}}
        url = f"{running.config.api.identity.url}/v3/auth/tokens"
        assert (await running.admin.http.post(url, json={"auth": auth})).status_code == 401
        async with running.person("demo", "demo") as demo:
            servers = await live(running, demo)
            answers = await seen(running, demo, servers)
            tokens = [str(each.http.headers["X-Auth-Token"]) for each in (demo, running.admin)]
            files = kept_in(running.config.data)
            for server in servers:
                await demo.gone(server)
        await until(lambda: any("compute.instance.delete.end" in each for each in calls))
        after = kept_in(running.config.data)
        logins = [WRONG, admin_password(running.config), demo_password(running.config), *tokens]
    assert len(calls) > 30
    assert len(answers) > 20
    places = {
        "log": caplog.text,
        "audit log": log_file.read_text(),
        "notifications": "\n".join(calls),
        "answers": "\n".join(answers),
    }
    for secret in (*logins, *PASSWORDS.values(), *TO_GUESTS.values()):
        found = {name for name, text in places.items() if secret in text or coded(secret) in text}
        assert found == set(), secret
    for secret in logins:
        kept = {each for each in holding(files, secret) | holding(after, secret) if not each.startswith("secrets/")}
        assert kept == set(), secret
    for name, secret in PASSWORDS.items():
        assert all(each.startswith(DRIVES) for each in holding(files, secret)), name
        assert holding(after, secret) == set(), f"{name}, when its server is gone"
    for name, secret in TO_GUESTS.items():
        assert all(each.startswith(FOR_GUESTS) for each in holding(files, secret) | holding(after, secret)), name


async def seen(running: Running, demo: Person, servers: list[str]) -> list[str]:
    """What the owner and an administrator are told of them, wherever they may look."""
    answers = []
    for person in (demo, running.admin):
        for server in servers:
            actions = (await person.compute("GET", f"/servers/{server}/os-instance-actions")).json()["instanceActions"]
            operations = (await person.compute("GET", "/ext/operations", server=server)).json()["operations"]
            paths = [
                f"/servers/{server}/os-instance-actions",
                *(f"/servers/{server}/os-instance-actions/{each['request_id']}" for each in actions),
                f"/ext/servers/{server}/explain",
                *(f"/ext/operations/{each['id']}" for each in operations),
            ]
            answers += [(await person.compute("GET", path)).text for path in paths]
            shown = (await person.compute("GET", f"/servers/{server}")).json()["server"]
            shown.pop("OS-EXT-SRV-ATTR:user_data", None)  # who asks for it by its name may have it
            answers.append(json.dumps(shown))
    return answers
