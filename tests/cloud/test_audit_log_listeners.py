"""The audit log of a whole cloud: requests at each listener, with their users, in a file and on the bus."""

import json
from pathlib import Path
from typing import Any

from tests.cloud.conftest import Start

from moorage.main.config import Hosts
from moorage.main.config_audit_log import AuditLog
from moorage.main.config_notifications import Notifications
from moorage.main.service_clients import admin_password, demo_password
from moorage_testing.waiting import until


async def test_actions_at_every_listener_are_logged_and_sent(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    wanted = AuditLog(enabled=True, file=str(path), notify=True)
    async with start(hosts=Hosts(count=1), audit_log=wanted, notifications=Notifications(bus=True)) as running:
        sent: list[dict[str, Any]] = []

        async def on_message(_: str, payload: bytes) -> None:
            message = json.loads(json.loads(payload)["oslo.message"])
            if message["event_type"].startswith(("audit.", "identity.")):
                sent.append(message)

        await running.cloud.region.bus.subscribe("moorage.notification.>", on_message)
        user = {"name": "demo", "domain": {"id": "default"}, "password": "canary-wrong"}
        auth = {"identity": {"methods": ["password"], "password": {"user": user}}}
        url = f"{running.config.api.identity.url}/v3/auth/tokens"
        assert (await running.admin.http.post(url, json={"auth": auth})).status_code == 401
        async with running.person("demo", "demo") as demo:
            server = await demo.boot("audited")
            await demo.settled(server)
            refused = await demo.compute("GET", "/os-services")
            assert refused.status_code == 403
            await demo.compute("POST", f"/servers/{server}/action", {"lock": None})
            await demo.compute("POST", f"/servers/{server}/action", {"unlock": None})
            await demo.network("POST", "/security-groups", {"security_group": {"name": "audited"}})
            await demo.delete(server)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        await until(lambda: len(sent) >= len(lines))
    text = path.read_text()
    for secret in ("canary-", admin_password(running.config), demo_password(running.config), "gAAAA"):
        assert secret not in text
    listed = [(each["event_type"], each["payload"]) for each in lines]
    logins = [payload for kind, payload in listed if kind == "identity.authenticate"]
    assert [each["outcome"] for each in logins[-2:]] == ["failure", "success"]
    assert logins[-2]["initiator"]["name"] == "demo"
    assert logins[-2]["reason"]["reasonCode"] == "401"
    me = logins[-1]["target"]["id"]
    assert me == logins[-1]["initiator"]["id"]
    mine = [payload for kind, payload in listed if kind == "audit.http.response" and payload["initiator"]["id"] == me]
    seen = [(each["action"], each["target"]["typeURI"], each["outcome"], each["reason"]["reasonCode"]) for each in mine]
    assert seen == [
        ("create", "service/compute/servers", "success", "202"),
        ("read/list", "service/compute/os-services", "failure", "403"),
        ("update/lock", "service/compute/servers/server/action", "success", "202"),
        ("update/unlock", "service/compute/servers/server/action", "success", "202"),
        ("create", "service/network/security-groups", "success", "201"),
        ("delete", "service/compute/servers/server", "success", "204"),
    ]
    assert {each["target"]["id"] for each in (mine[0], mine[2], mine[3], mine[5])} == {server}
    assert all(each["initiator"]["host"]["address"] == "127.0.0.1" for each in mine)
    assert [each["message_id"] for each in sent[: len(lines)]] == [each["message_id"] for each in lines]
    assert sent[0]["payload"] == lines[0]["payload"]
