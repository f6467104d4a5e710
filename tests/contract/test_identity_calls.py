"""Calls of users' clients to the identity service, answered in the same way by the embedded one and the real Keystone."""

import uuid
from typing import Any

import pytest
from tests.helpers.contract_services import Ground

from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound


async def test_options_of_domains_and_catalogs_of_projects(ground: Ground) -> None:
    async def ask(method: str, path: str, body: Any = None) -> Any:
        return (await ground.raw_identity.call(method, path, token=ground.admin, body=body)).body

    async def refused(kind: type[Exception], said: str, method: str, path: str, body: Any = None) -> None:
        with pytest.raises(kind) as refusal:
            await ask(method, path, body)
        assert said in str(refusal.value), f"{method} {path}"

    name = f"d-{uuid.uuid4().hex[:8]}"
    domain = (await ask("POST", "/domains", {"domain": {"name": name, "enabled": False}}))["domain"]["id"]
    config = f"/domains/{domain}/config"
    await refused(NotFound, "any options in domain configuration", "GET", config)
    kept: Any = {"ldap": {"url": "u", "page_size": 3}, "identity": {"driver": "ldap"}}
    said = {**kept, "ldap": {**kept["ldap"], "password": "geheim"}}
    assert await ask("PUT", config, {"config": said}) == {"config": kept}
    assert await ask("GET", config + "/ldap/url") == {"config": {"url": "u"}}
    await refused(NotFound, "option password in group ldap", "GET", config + "/ldap/password")
    await refused(Forbidden, "Group no is not supported", "GET", config + "/no")
    await refused(Forbidden, "No options specified", "PUT", config, {"config": {}})
    await refused(
        Forbidden,
        "contains group identity instead",
        "PATCH",
        config + "/ldap",
        {"config": {"identity": said["identity"]}},
    )
    await refused(Forbidden, "contains option user instead", "PATCH", config + "/ldap/url", {"config": {"user": "a"}})
    changed = await ask("PATCH", config + "/ldap/url", {"config": {"url": "v"}})
    assert changed == {"config": {**kept, "ldap": {"url": "v", "page_size": 3}}}
    await ask("DELETE", config + "/identity")
    await refused(NotFound, "group identity", "DELETE", config + "/identity")
    await ask("DELETE", f"/domains/{domain}")
    defaults = (await ask("GET", "/domains/config/default"))["config"]
    assert {group: set(options) for group, options in defaults.items()} == {
        group: set((await ask("GET", f"/domains/config/{group}/default"))["config"][group])
        for group in ("identity", "ldap")
    }
    assert (defaults["identity"]["driver"], defaults["ldap"]["url"]) == ("sql", "ldap://localhost")

    tenant = await ground.tenant()
    service = (await ask("POST", "/services", {"service": {"type": name, "name": name}}))["service"]["id"]
    url = {"service_id": service, "url": "http://a"}
    ends = {
        interface: (await ask("POST", "/endpoints", {"endpoint": {**url, "interface": interface}}))["endpoint"]["id"]
        for interface in ("public", "internal")
    }

    async def catalog() -> dict[str, set[str]]:
        token = await ground.login(tenant.user, tenant.password, tenant.user)
        found = (await ground.raw_identity.call("GET", "/auth/catalog", token=token)).body["catalog"]
        return {each["name"]: {end["interface"] for end in each["endpoints"]} for each in found}

    whole = await catalog()
    groups, project = "/OS-EP-FILTER/endpoint_groups", f"/OS-EP-FILTER/projects/{tenant.project}"
    await refused(Invalid, "Expecting to find service_id or region_id or interface", "POST", groups,
                  {"endpoint_group": {"name": name, "filters": {"enabled": True}}})  # fmt: skip
    filters = {"service_id": service, "interface": "internal"}
    made = (await ask("POST", groups, {"endpoint_group": {"name": name, "filters": filters}}))["endpoint_group"]
    group = made["id"]
    assert {key: value for key, value in made.items() if key != "links"} == {
        "id": group, "name": name, "description": None, "filters": filters
    }  # fmt: skip
    try:
        await ask("PUT", f"{groups}/{group}/projects/{tenant.project}")
        await refused(Conflict, "project_endpoint_group", "PUT", f"{groups}/{group}/projects/{tenant.project}")
        assert await catalog() == {name: {"internal"}}
        await ask("PUT", f"{project}/endpoints/{ends['public']}")
        await refused(Conflict, "project_endpoint", "PUT", f"{project}/endpoints/{ends['public']}")
        assert await catalog() == {name: {"internal", "public"}}
        assert {each["id"] for each in (await ask("GET", f"{project}/endpoints"))["endpoints"]} == set(ends.values())
        assert [each["id"] for each in (await ask("GET", f"{project}/endpoint_groups"))["endpoint_groups"]] == [group]
        members = (await ask("GET", f"{groups}/{group}/projects"))["projects"]
        assert [each["id"] for each in members] == [tenant.project]
        await ask("DELETE", f"{project}/endpoints/{ends['public']}")
        await refused(NotFound, "not found in project", "DELETE", f"{project}/endpoints/{ends['public']}")
    finally:
        await ask("DELETE", f"{groups}/{group}")
    await refused(NotFound, "Could not find Endpoint Group", "GET", f"{groups}/{group}")
    assert await catalog() == whole
    await ask("DELETE", f"/services/{service}")
