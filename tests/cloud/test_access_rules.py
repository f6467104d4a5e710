"""A token of an application credential with access rules does what they allow, and nothing else, at every service."""

from tests.cloud.conftest import Running


async def test_an_application_credential_is_limited_by_its_access_rules(running: Running) -> None:
    admin, api = running.admin, running.config.api
    users = await admin.http.get(f"{api.identity.url}/v3/users", params={"name": "admin"})
    user = users.json()["users"][0]["id"]
    rules = [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}]
    body = {"application_credential": {"name": "reads", "secret": "s3cret", "access_rules": rules}}
    made = await admin.http.post(f"{api.identity.url}/v3/users/{user}/application_credentials", json=body)
    assert made.status_code == 201, made.text
    proof = {"id": made.json()["application_credential"]["id"], "secret": "s3cret"}
    identity = {"methods": ["application_credential"], "application_credential": proof}
    issued = await admin.http.post(f"{api.identity.url}/v3/auth/tokens", json={"auth": {"identity": identity}})
    bound = {"X-Auth-Token": issued.headers["x-subject-token"]}
    compute = f"{api.compute.url}/v2.1"
    assert (await admin.http.get(f"{compute}/servers", headers=bound)).status_code == 200
    assert (await admin.http.get(f"{compute}/flavors", headers=bound)).status_code == 401
    assert (await admin.http.post(f"{compute}/servers", headers=bound, json={})).status_code == 401
    assert (await admin.http.get(f"{api.image.url}/v2/images", headers=bound)).status_code == 401
    assert (await admin.http.get(f"{api.network.url}/v2.0/ports", headers=bound)).status_code == 401
    assert (await admin.http.get(f"{api.identity.url}/v3/users", headers=bound)).status_code == 401
    placement = f"{api.placement.url}/placement/resource_providers"
    assert (await admin.http.get(placement, headers=bound)).status_code == 401
    assert (await admin.http.get(placement)).status_code == 200
