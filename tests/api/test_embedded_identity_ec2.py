"""The embedded identity service: pairs of access key and secret (OS-EC2), and policies."""

from tests.api.test_embedded_identity_people import Cloud, cloud, with_password

__all__ = ["cloud"]


async def test_pairs_of_access_key_and_secret(cloud: Cloud) -> None:
    project = (await cloud.ask("GET", "/projects?name=admin")).json()["projects"][0]["id"]
    user, other = await cloud.made("user", name="u", password="pw"), await cloud.made("user", name="v", password="pw")
    token = (await cloud.login(with_password(user["id"], "pw"))).headers["x-subject-token"]
    path = f"/users/{user['id']}/credentials/OS-EC2"
    made = await cloud.ask("POST", path, token, json={"tenant_id": project})
    assert made.status_code == 201, made.text
    pair = made.json()["credential"]
    assert (pair["user_id"], pair["tenant_id"], pair["trust_id"]) == (user["id"], project, None)
    assert pair["links"] == {"self": f"http://c:5000/v3{path}/{pair['access']}"}
    assert pair["secret"] != pair["access"]
    second = (await cloud.ask("POST", path, token, json={"tenant_id": project})).json()["credential"]
    listed = (await cloud.ask("GET", path, token)).json()["credentials"]
    assert sorted(each["access"] for each in listed) == sorted((pair["access"], second["access"]))
    assert (await cloud.ask("GET", f"{path}/{pair['access']}", token)).json()["credential"] == pair
    kept = (await cloud.ask("GET", f"/credentials?type=ec2&user_id={user['id']}")).json()["credentials"]
    assert len(kept) == 2  # the same things by the other path
    spoilt = {"credential": {"blob": "no JSON"}}
    assert (await cloud.ask("PATCH", f"/credentials/{kept[0]['id']}", json=spoilt)).status_code == 400
    strange = (await cloud.login(with_password(other["id"], "pw"))).headers["x-subject-token"]
    for method, place in (("GET", path), ("GET", f"{path}/{pair['access']}"), ("DELETE", f"{path}/{pair['access']}")):
        assert (await cloud.ask(method, place, strange)).status_code == 403
    assert (await cloud.ask("POST", path, strange, json={"tenant_id": project})).status_code == 403
    theirs = f"/users/{other['id']}/credentials/OS-EC2/{pair['access']}"
    assert (await cloud.ask("GET", theirs, strange)).status_code == 404
    assert (await cloud.ask("POST", path, token, json={})).status_code == 400
    assert (await cloud.ask("POST", path, token, json={"tenant_id": "no-such"})).status_code == 404
    assert (await cloud.ask("DELETE", f"{path}/{pair['access']}", token)).status_code == 204
    assert (await cloud.ask("GET", f"{path}/{pair['access']}", token)).status_code == 404


async def test_ec2_policies_are_stored(cloud: Cloud) -> None:
    body = {"policy": {"type": "application/json", "blob": "{}"}}
    made = await cloud.ask("POST", "/policies", json=body)
    assert made.status_code == 201, made.text
    id = made.json()["policy"]["id"]
    changed = await cloud.ask("PATCH", f"/policies/{id}", json={"policy": {"type": "text/plain"}})
    assert (changed.json()["policy"]["type"], changed.json()["policy"]["blob"]) == ("text/plain", "{}")
    assert [each["id"] for each in (await cloud.ask("GET", "/policies?type=text/plain")).json()["policies"]] == [id]
    assert (await cloud.ask("GET", "/policies?type=other")).json()["policies"] == []
    assert (await cloud.ask("POST", "/policies", json={"policy": {"type": "x"}})).status_code == 400
    user = await cloud.made("user", name="u", password="pw")
    token = (await cloud.login(with_password(user["id"], "pw"))).headers["x-subject-token"]
    assert (await cloud.ask("GET", "/policies", token)).status_code == 403
    assert (await cloud.ask("DELETE", f"/policies/{id}")).status_code == 204
    assert (await cloud.ask("GET", f"/policies/{id}")).status_code == 404
