"""Which tokens the web console ends: those that it does not use any more, and none that others come from."""

import pytest
from tests.helpers.webconsole_apis import Apis, Browser, console

ROW = {"id": "s1", "name": "one", "status": "ACTIVE", "addresses": {}, "flavor": {"original_name": "m1"}}


@pytest.fixture
def apis() -> Apis:
    return Apis(answers={"/servers/detail": {"servers": [ROW]}})


async def test_changing_the_project_creates_a_new_session(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        before = browser.http.cookies["moorage"]
        reply = await browser.post("/api/project", {"project_id": "p2"})
        assert reply.status_code == 200
        assert browser.http.cookies["moorage"] != before
        assert len(app.sessions) == 1
        browser.csrf = reply.json()["csrf"]
        assert (await browser.get("/api/topic?topic=servers")).status_code == 200, "the new token is good"


async def test_logout_ends_the_tokens_of_all_projects(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        for ended in (set[str](), {"ada-1"}):
            reply = await browser.post("/api/project", {"project_id": "p2"})
            browser.csrf = reply.json()["csrf"]
            assert apis.revoked == ended, "who ends the login's own ends the new one, too"
        assert (await browser.post("/api/logout", {})).status_code == 200
        assert apis.revoked == {"ada-0", "ada-1", "ada-2"}
