"""Real tokens of a domain, of the system and without a scope, of a user with administrator roles everywhere: they give no access to servers."""

from typing import Any

from tests.cloud.conftest import Running

from moorage.main.service_clients import admin_password

SCOPES: dict[str, Any] = {
    "domain": {"domain": {"id": "default"}},
    "system": {"system": {"all": True}},
    "unscoped": "unscoped",
}


async def test_only_tokens_of_projects_may_do_anything(running: Running) -> None:
    admin, api = running.admin, running.config.api
    identity = f"{api.identity.url}/v3"
    user = (await admin.http.get(f"{identity}/users", params={"name": "admin"})).json()["users"][0]["id"]
    role = (await admin.http.get(f"{identity}/roles", params={"name": "admin"})).json()["roles"][0]["id"]
    granted = await admin.http.put(f"{identity}/domains/default/users/{user}/roles/{role}")
    assert granted.status_code == 204, granted.text
    server = await admin.active("somebodys")
    volume = await admin.volume("POST", "/volumes", {"volume": {"size": 1}})
    assert volume.status_code == 202, volume.text
    mine = volume.json()["volume"]["id"]
    asks = [
        ("GET", f"{api.compute.url}/v2.1/servers?all_tenants=1", 403),
        ("GET", f"{api.compute.url}/v2.1/os-services", 403),
        ("GET", f"{api.compute.url}/v2.1/servers/{server['id']}", 404),
        ("DELETE", f"{api.compute.url}/v2.1/servers/{server['id']}", 404),
        ("GET", f"{api.placement.url}/placement/resource_providers", 403),
        ("GET", f"{api.placement.url}/placement/usages?project_id=x", 403),
        ("GET", f"{api.image.url}/v2/images", 403),
        ("GET", f"{api.volume.url}/v3/volumes/detail?all_tenants=1", 403),
        ("DELETE", f"{api.volume.url}/v3/volumes/{mine}", 404),
    ]
    for name, scope in SCOPES.items():
        who = {"name": "admin", "domain": {"id": "default"}, "password": admin_password(running.config)}
        auth = {"identity": {"methods": ["password"], "password": {"user": who}}, "scope": scope}
        issued = await admin.http.post(f"{identity}/auth/tokens", json={"auth": auth})
        assert issued.status_code == 201, issued.text
        sent = {
            "X-Auth-Token": issued.headers["x-subject-token"],
            "OpenStack-API-Version": "placement 1.39, volume 3.70",
        }
        listed = [(await admin.http.request(method, url, headers=sent)).status_code for method, url, _ in asks]
        assert listed == [status for _, _, status in asks], name
        ports = await admin.http.get(f"{api.network.url}/v2.0/ports", headers=sent)
        assert (ports.status_code, ports.json()) == (200, {"ports": []}), name
    await admin.volume("DELETE", f"/volumes/{mine}")
    await admin.gone(server["id"])
