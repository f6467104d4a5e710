"""The web console's server: logins, sessions, protection of changes, headers for browsers, and messages of failures."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.webconsole_apis import COMPUTE, PASSWORD, Apis, Browser, console

from moorage.webconsole import files, topics
from moorage.webconsole.app import PAGES

ROW = {"id": "s1", "name": "one", "status": "ACTIVE", "addresses": {}, "flavor": {"original_name": "m1"}}
STATIC = Path(files.__file__).parent / "static"


@pytest.fixture
def apis() -> Apis:
    return Apis(answers={"/servers/detail": {"servers": [ROW]}})


async def test_a_login_gives_a_session_whose_cookie_scripts_cannot_read(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        reply = await browser.log_in()
        assert reply.status_code == 200, reply.text
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        assert "Max-Age" not in cookie
        shown = reply.json()
        assert (shown["user"], shown["project"], shown["admin"]) == ("ada", "one", True)
        assert "ada-0" not in reply.text + cookie, "the token never leaves the console"


async def test_with_tls_the_cookie_is_for_this_host_only(apis: Apis) -> None:
    async with console(apis, secure=True) as app:
        cookie = (await Browser(app).log_in()).headers["set-cookie"]
        assert cookie.startswith("__Host-moorage=")
        assert "Secure" in cookie
        assert "Path=/" in cookie


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("nobody", PASSWORD)])
async def test_a_failed_login_has_one_message_for_all_causes(apis: Apis, user: str, password: str) -> None:
    async with console(apis) as app:
        reply = await Browser(app).log_in(user, password)
        assert reply.status_code == 401
        assert reply.json() == {
            "error": "The name, the password or the project is not right, or the account is locked."
        }
        assert "set-cookie" not in reply.headers


async def test_an_application_credential_logs_in(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        body = {"credential_id": "c1", "credential_secret": PASSWORD}
        reply = await browser.http.post("/api/login", json=body)
        assert reply.status_code == 200
        browser.csrf = reply.json()["csrf"]
        assert [each["id"] for each in (await browser.get("/api/projects")).json()["projects"]] == ["p1"]
        assert (await browser.post("/api/project", {"project_id": "p2"})).status_code == 403


async def test_logins_that_fail_too_often_wait_a_minute(apis: Apis) -> None:
    async with console(apis, logins_per_minute=3) as app:
        browser = Browser(app)
        statuses = [(await browser.log_in("ada", "wrong")).status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert apis.asked["POST /v3/auth/tokens"] == 3
        assert (await browser.log_in()).status_code == 429


async def test_pages_without_a_session_show_nothing(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        for path in ("/api/session", "/api/projects", "/api/topic?topic=servers", "/events?topic=servers"):
            assert (await browser.get(path)).status_code == 401, path
        for path in ("/api/change", "/api/logout", "/api/project"):
            assert (await browser.post(path, {})).status_code == 401, path
        for page in PAGES:
            reply = await browser.get(f"/{page}")
            assert (reply.status_code, reply.headers["location"]) == (303, "/login"), page
        assert (await browser.get("/login")).status_code == 200


async def test_changes_need_the_sessions_csrf_token(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        good = browser.csrf
        for csrf in ("", "x", good[:-1]):
            browser.csrf = csrf
            assert (await browser.post("/api/change", {"change": "delete", "server": "s1"})).status_code == 403
            assert (await browser.post("/api/logout", {})).status_code == 403
        assert not [each for each in apis.asked if each.startswith("DELETE")]
        browser.csrf = good
        assert (await browser.post("/api/change", {"change": "delete", "server": "s1"})).status_code == 200
        assert apis.asked["DELETE /v2.1/servers/s1"] == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://console"}, 200),
        ({}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://other.console"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "https://cloud.example"}, 200),
    ],
)
async def test_requests_of_another_sites_page_are_refused(apis: Apis, headers: dict[str, str], status: int) -> None:
    async with console(apis, allowed_origins=("https://cloud.example",)) as app:
        browser = Browser(app)
        await browser.log_in()
        reply = await browser.post("/api/change", {"change": "delete", "server": "s1"}, **headers)
        assert reply.status_code == status
        body = {"user": "ada", "password": PASSWORD, "project": "one"}
        assert (await browser.http.post("/api/login", json=body, headers=headers)).status_code == status


async def test_the_content_security_policy_allows_no_foreign_resources(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        for path in ("/", "/login", "/static/app.css", "/nothing", "/api/session", "/api/topic?topic=nothing"):
            headers = (await browser.get(path)).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self';"), path
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] in {"no-store", "no-cache"}


def test_no_page_has_foreign_urls_or_inline_scripts_and_styles() -> None:
    for path in STATIC.rglob("*"):
        if path.is_file() and path.suffix != ".svg":
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://|//[a-z]+\.|innerHTML|outerHTML|eval\(|insertAdjacentHTML", text), path
        if path.suffix == ".html":
            assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son[a-z]+=", path.read_text()), path


async def test_files_are_compressed_and_cached(apis: Apis) -> None:
    async with console(apis) as app:
        reply = await Browser(app).get("/static/js/main.js", **{"Accept-Encoding": "gzip"})
        assert reply.headers["content-encoding"] == "gzip"
        again = await Browser(app).get("/static/js/main.js", **{"If-None-Match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    loaded = files.load()
    assert {"index.html", "login.html", "app.css", "icon.svg", "js/main.js", "js/pages/fitmap.js"} <= set(loaded)
    assert sum(len(each.packed or each.body) for each in loaded.values()) < 500_000


async def test_a_path_leads_nowhere_else(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        for path in (
            "/static/../app.py",
            "/static/..%2fapp.py",
            "/static//etc/passwd",
            "/server/a/b",
            "/api",
            "/static/",
        ):
            assert (await browser.get(path)).status_code == 404, path


async def test_a_session_ends_with_its_token(apis: Apis) -> None:
    apis.token_life_s = 20.0  # less than the margin that a session keeps
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        reply = await browser.get("/api/topic?topic=servers")
        assert reply.status_code == 401
        assert reply.json()["error"] == "You are not logged in, or the session is over. Log in again."
        assert len(app.sessions) == 0


async def test_an_expired_token_ends_the_session(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        assert (await browser.get("/api/topic?topic=servers")).status_code == 200
        apis.revoked.add("ada-0")
        reply = await browser.post("/api/change", {"change": "delete", "server": "s1"})
        assert reply.status_code == 401
        assert (await browser.get("/api/session")).status_code == 401


async def test_logout_ends_the_session_and_the_token(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        assert (await browser.post("/api/logout", {})).status_code == 200
        assert apis.revoked == {"ada-0"}
        assert (await browser.get("/api/session")).status_code == 401


async def test_one_user_takes_nobody_elses_place(apis: Apis) -> None:
    async with console(apis, sessions_of_a_user_max=2, sessions_max=3) as app:
        browsers = [Browser(app) for _ in range(4)]
        for each in browsers:
            assert (await each.log_in()).status_code == 200
        assert [(await each.get("/api/session")).status_code for each in browsers] == [401, 401, 200, 200]
        assert (await Browser(app).log_in("bob")).status_code == 200


async def test_sessions_are_bounded(apis: Apis) -> None:
    async with console(apis, sessions_max=1) as app:
        assert (await Browser(app).log_in()).status_code == 200
        reply = await Browser(app).log_in("bob")
        assert reply.status_code == 503
        assert "Try again later" in reply.json()["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"change": "format-disks"}', 400),
        (b'{"change": "delete"}', 400),
        (b'{"change": "delete", "server": ""}', 400),
        (b'{"change": "delete", "server": 7}', 400),
        (b'{"change": "action", "server": "s1", "action": "os-resetState"}', 400),
        (b'{"change": "boot", "name": "n", "flavor": "1", "image": "i", "count": 1000000}', 400),
        (b'{"change": "delete", "server": "s1", "url": "http://elsewhere"}', 400),
        (b"\xff" * 100, 400),
        (b"x" * 70_000, 413),
    ],
)
async def test_invalid_input_is_answered_with_a_message(apis: Apis, body: bytes, status: int) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        headers = {"X-CSRF-Token": browser.csrf, "Content-Type": "application/json"}
        reply = await browser.http.post("/api/change", content=body, headers=headers)
        assert reply.status_code == status
        assert reply.json()["error"].endswith(".")


async def test_a_form_of_another_site_cannot_log_in(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
            body = f'{{"user": "ada", "password": "{PASSWORD}", "project": "one"}}'.encode()
            reply = await browser.http.post("/api/login", content=body, headers={"Content-Type": kind})
            assert reply.status_code == 415
        assert (await browser.http.request("PATCH", "/api/login")).status_code == 405


@pytest.mark.parametrize("topic", ["", "nothing", "server", "server/", "servers?limit=9", "servers?name=" + "x" * 300])
async def test_an_unknown_topic_is_404(apis: Apis, topic: str) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        reply = await browser.http.get("/api/topic", params={"topic": topic})
        assert reply.status_code == 404
        assert not [each for each in apis.asked if each.startswith("GET /v2.1")]


async def test_an_id_cannot_leave_its_path(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        await browser.post("/api/change", {"change": "delete", "server": "../os-services/x?y#z"})
        await browser.http.get("/api/topic", params={"topic": "operation/../../os-services"})
        urls = [str(each.url) for each in apis.requests[1:]]
        assert f"{COMPUTE}/servers/..%2Fos-services%2Fx%3Fy%23z" in urls
        assert f"{COMPUTE}/ext/operations/..%2F..%2Fos-services" in urls


async def test_an_api_that_is_down_is_a_sentence(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        apis.down.add("compute")
        reply = await browser.get("/api/topic?topic=servers")
        assert reply.status_code == 502
        assert reply.json()["error"].startswith("The service at nova:8774 cannot be reached")
        apis.down.add("identity")
        assert (await browser.get("/api/projects")).json()["projects"] == [{"id": "p1", "name": "one"}]
        assert "keystone:5000 cannot be reached" in (await Browser(app).log_in()).json()["error"]


async def test_a_failing_part_of_a_page_shows_a_message(apis: Apis) -> None:
    apis.answers |= {
        "/ext/operations": {"operations": []},
        "/servers": {"servers": [ROW] * 3},
        "/limits": (403, {"forbidden": {"message": "Policy doesn't allow it."}}),
        "/ext/waiting": (403, {"forbidden": {"message": "Policy doesn't allow it."}}),
    }
    apis.down.add("network")
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        shown = (await browser.get("/api/topic?topic=overview")).json()
        assert shown["limits"] == {"trouble": "Policy doesn't allow it.", "status": 403}
        assert shown["active"] == 3
        assert shown["operations"] == []
        assert shown["sleepers"] == {"trouble": "Policy doesn't allow it.", "status": 403}


async def test_sleeping_operations_are_polled_rarely(apis: Apis) -> None:
    """Servers that wait for a host may do so for days: the overview counts them, and is polled as when nothing is on its way."""
    apis.answers |= {
        "/ext/operations": {"operations": [{"id": "o1", "status": "open"}]},
        "/ext/waiting": {"waiting": [], "servers": 1, "causes": {"memory": {"servers": 1, "oldest_since": "2026-11-20T09:14:02Z"}}},
    }  # fmt: skip
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        shown = (await browser.get("/api/topic?topic=overview")).json()
        assert shown["sleepers"]["causes"]["memory"]["servers"] == 1
        reader = topics.TopicReader(app._upstream, next(iter(app.sessions._sessions.values())).identity)
        assert not (await topics.overview(reader, "", {})).lively
        apis.answers["/ext/waiting"] = {"waiting": [], "servers": 0, "causes": {}}
        assert (await topics.overview(reader, "", {})).lively


async def test_a_refusal_of_the_api_keeps_its_message_and_status(apis: Apis) -> None:
    apis.answers["/servers"] = (403, {"forbidden": {"message": "Quota exceeded for instances."}})
    body = {"change": "boot", "name": "n", "flavor": "1", "image": "i", "networks": ["x"]}
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        reply = await browser.post("/api/change", body)
        assert (reply.status_code, reply.json()) == (403, {"error": "Quota exceeded for instances."})


@pytest.mark.parametrize("body", [b"<html>proxy</html>", b"[", b'"x"', b"7", b"\xff"])
async def test_junk_of_an_api_is_a_sentence(apis: Apis, body: bytes) -> None:
    import httpx

    usual = apis.handle

    def junk(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body) if "nova" in str(request.url) else usual(request)

    apis.handle = junk  # type: ignore[method-assign]
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in()
        for topic in (
            "servers",
            "overview",
            "server/s1",
            "fit-map",
            "fleet",
            "moves",
            "audits",
            "choices",
            "operations",
        ):
            reply = await browser.get(f"/api/topic?topic={topic}")
            assert reply.status_code in {200, 502}, (topic, reply.text)
            if reply.status_code != 200:
                assert reply.json()["error"].endswith(".")


def _roles(apis: Apis) -> Any:
    return {str(each.url.path) for each in apis.requests}


async def test_data_for_administrators_is_not_requested_for_users(apis: Apis) -> None:
    async with console(apis) as app:
        browser = Browser(app)
        await browser.log_in("bob")
        await browser.get("/api/topic?topic=overview")
        assert not {each for each in _roles(apis) if "fit-map" in each or "cells" in each}
        assert not [each for each in apis.requests if "all_tenants" in str(each.url) or "all_projects" in str(each.url)]
