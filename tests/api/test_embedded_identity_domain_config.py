"""The embedded identity service: options of a domain, and which options are not shown."""

from typing import Any

import pytest
from tests.api.test_embedded_identity_people import Cloud, cloud, with_password

from moorage_embedded.identity import domain_config, store

__all__ = ["cloud"]

ON_SQLITE = pytest.mark.parametrize("cloud", ["sqlite"], indirect=True)
"""For what no database has a part in."""

KEPT: Any = {"ldap": {"url": "ldap://d", "page_size": 3}, "identity": {"driver": "ldap"}}


async def test_options_of_a_domain(cloud: Cloud) -> None:
    domain = await cloud.made("domain", name="d")
    path = f"/domains/{domain['id']}/config"

    async def now(status: int, method: str, below: str = "", config: Any = None, token: str | None = None) -> Any:
        body = {} if config is None else {"json": {"config": config}}
        answer = await cloud.ask(method, path + below, token, **body)
        assert answer.status_code == status, f"{method} {below} {config}: {answer.status_code} {answer.text}"
        found = answer.json() if answer.content else {}
        return found["config"] if status < 300 and found else found.get("error", {}).get("message")

    for below, word in (("", "any options"), ("/ldap", "group ldap"), ("/ldap/url", "option url in group ldap")):
        said = f"Could not find {word} in domain configuration for domain {domain['id']}."
        assert await now(404, "GET", below) == said
    await now(204, "DELETE")
    await now(404, "DELETE", "/ldap")
    secret = {**KEPT, "ldap": {**KEPT["ldap"], "password": "geheim"}}
    assert await now(201, "PUT", "", secret) == KEPT
    assert await now(200, "PUT", "", secret) == KEPT
    assert await now(200, "GET") == KEPT
    assert (await cloud.ask("HEAD", path)).status_code == 200
    assert await now(200, "GET", "/ldap") == {"ldap": KEPT["ldap"]}
    assert await now(200, "GET", "/ldap/page_size") == {"page_size": 3}
    await now(404, "GET", "/ldap/password")
    await now(404, "GET", "/ldap/suffix")

    changed = await now(200, "PATCH", "", {"ldap": {"suffix": "s"}})
    assert changed == {**KEPT, "ldap": {**KEPT["ldap"], "suffix": "s"}}
    assert (await now(200, "PATCH", "/ldap", {"ldap": {"url": "v"}}))["ldap"]["url"] == "v"
    assert (await now(200, "PATCH", "/ldap/page_size", {"page_size": 0}))["ldap"]["page_size"] == 0
    assert "password" not in (await now(200, "PATCH", "/ldap/password", {"password": "x"}))["ldap"]

    start = "Invalid domain specific configuration: "
    for below, config, said in (
        ("", {}, "No options specified."),
        ("", {"ldap": {}}, "The value of group ldap specified in the config should be a dictionary of options."),
        ("", {"no": {"a": 1}}, "Group no is not supported for domain specific configurations."),
        ("", {"ldap": {"no": 1}}, "Option no in group ldap is not supported for domain specific configurations."),
        ("/ldap", {"identity": {"driver": "a"}},
         "request to update group ldap, but config provided contains group identity instead."),
        ("/ldap", KEPT, "Trying to update group ldap, so that, and only that, group must be specified in the config."),
        ("/ldap/url", {"user": "a"},
         "Trying to update option url in group ldap, but config provided contains option user instead."),
        ("/ldap/url", {"url": "a", "user": "a"},
         "Trying to update option url in group ldap, so that, and only that, option must be specified  in the config."),
    ):  # fmt: skip
        assert await now(403, "PATCH", below, config) == start + said
    await now(403, "PUT", "", {"no": {"a": 1}})
    await now(400, "PATCH", "", ["ldap"])
    await now(400, "PATCH", "", {"ldap": {"url": "x" * domain_config.VALUE_CHARS_MAX}})
    await now(404, "PATCH", "/ldap/user_filter", {"user_filter": "x"})
    await now(405, "PUT", "/ldap", {"ldap": {"url": "x"}})
    await now(204, "DELETE", "/ldap/page_size")
    await now(404, "DELETE", "/ldap/page_size")
    await now(204, "DELETE", "/identity")
    assert await now(200, "GET") == {"ldap": {"url": "v", "suffix": "s"}}

    # whoever may read the system sees it and changes nothing; others see nothing
    user = await cloud.made("user", name="u", password="pw")
    assert (await cloud.ask("PUT", f"/system/users/{user['id']}/roles/{await cloud.role('reader')}")).status_code == 204
    reader = (await cloud.login(with_password(user["id"], "pw"), {"system": {"all": True}})).headers["x-subject-token"]
    nobody = (await cloud.login(with_password(user["id"], "pw"))).headers["x-subject-token"]
    await now(200, "GET", token=reader)
    await now(403, "GET", token=nobody)
    for token in (reader, nobody):
        for method in ("PUT", "PATCH", "DELETE"):
            await now(403, method, "", KEPT, token)
    assert (await cloud.ask("GET", "/domains/config/default", nobody)).status_code == 403

    # they go with their domain
    assert (await cloud.ask("PATCH", path[: -len("/config")], json={"domain": {"enabled": False}})).status_code == 200
    assert (await cloud.ask("DELETE", path[: -len("/config")])).status_code == 204
    await now(404, "GET")
    assert await now(404, "PUT", "", KEPT) == f"Could not find domain: {domain['id']}."


@ON_SQLITE
async def test_a_secret_is_sealed_in_the_database(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    link = store.link

    def seen(tx: Any, table: str, row: Any) -> None:
        kept.append(row)
        link(tx, table, row)

    monkeypatch.setattr(store, "link", seen)
    body = {"config": {"ldap": {"password": "geheim", "user": "me"}}}
    assert (await cloud.ask("PUT", "/domains/default/config", json=body)).status_code == 201
    assert {row["option"]: "geheim" in row["value"] for row in kept} == {"password": False, "user": False}
    assert {row["option"] for row in kept if row["value"] == '"me"'} == {"user"}


@ON_SQLITE
async def test_options_without_a_domain_value_show_the_default(cloud: Cloud) -> None:
    answer = (await cloud.ask("GET", "/domains/config/default")).json()["config"]
    assert set(answer) == {"identity", "ldap"}
    assert "password" not in answer["ldap"]
    group = (await cloud.ask("GET", "/domains/config/identity/default")).json()["config"]
    assert group == {"identity": {"driver": "sql", "list_limit": None}}
    option = (await cloud.ask("GET", "/domains/config/ldap/url/default")).json()["config"]
    assert option == {"url": "ldap://localhost"}
    for path in ("no/default", "ldap/no/default", "ldap/password/default"):
        assert (await cloud.ask("GET", f"/domains/config/{path}")).status_code == 403
    user = await cloud.made("user", name="u", password="pw")
    token = (await cloud.login(with_password(user["id"], "pw"))).headers["x-subject-token"]
    rules = await cloud.ask("GET", "/domains/default/config/security_compliance", token)
    assert rules.json() == {
        "config": {"security_compliance": {"password_regex": None, "password_regex_description": None}}
    }
    rule = await cloud.ask("GET", "/domains/default/config/security_compliance/password_regex", token)
    assert rule.json() == {"config": {"password_regex": None}}
    for path in ("default/config/security_compliance/lockout_duration", "other/config/security_compliance"):
        assert (await cloud.ask("GET", f"/domains/{path}", token)).status_code == 403
