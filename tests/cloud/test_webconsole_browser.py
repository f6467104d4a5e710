"""The web console in headless Chromium over a whole cloud: each page with real data, a boot followed live, a refusal explained, and no errors.

Pictures of every page are written where `MOORAGE_PICTURES` names a directory; people look at them after a change of style.
"""

import base64
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.cloud.conftest import Running, Start, a_config

from moorage.main.config import ApiConfig, Hosts, Listen
from moorage.main.embedded import admin_password, demo_password
from moorage.main.local_cluster.ports import free_port
from moorage.webconsole import topics
from moorage.webconsole.app import App
from moorage_testing.browser import BrowserTab, chromium, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")]

FIRST_PAGE_MS, WIRE_MAX_BYTES = 300, 500_000
FRAME_MS = 50
"""Two frames of the screen, and what is drawn in them."""
BUSY_TIMES = 4
"""So much longer it may take beside other tests."""
PAGES = ("/", "/servers", "/operations", "/fit-map", "/fleet", "/moves", "/what-if", "/audits")
SETTLED = "document.querySelector('main[aria-busy=false]') && document.querySelector('main .card, main .map')"


class Visitor:
    """Somebody at a browser."""

    def __init__(self, page: BrowserTab, url: str, running: Running) -> None:
        self.page, self.url, self.running = page, url, running

    async def log_in(self, user: str = "admin") -> None:
        config = self.running.config
        password = admin_password(config) if user == "admin" else demo_password(config)
        await self.page.go(f"{self.url}/login")
        await self.page.until("document.querySelector('#password')")
        for name, value in (("user", user), ("password", password), ("project", user)):
            await self.page.type(f"input[name={name}]", value)
        await self.page.click("#password button.main")
        await self.page.until(f"location.pathname === '/' && {SETTLED}")

    async def visit(self, path: str) -> None:
        await self.page.go(self.url + path)
        await self.page.until(f"location.pathname === {path.partition('?')[0]!r} && {SETTLED}")

    async def text(self) -> str:
        return str(await self.page.run("document.querySelector('main').innerText"))

    async def sees(self, words: str) -> None:
        await self.page.until(f"document.querySelector('main').innerText.includes({words!r})")

    async def screenshot(self, name: str) -> None:
        if directory := os.environ.get("MOORAGE_PICTURES"):
            await self.page.screenshot(Path(directory) / f"{name}.png")


@asynccontextmanager
async def visiting(start: Start, tmp_path: Path, **changes: Any) -> AsyncIterator[Visitor]:
    """A cloud with its console, and a browser there; whatever its console complains about fails the test."""
    ports: ApiConfig = a_config(tmp_path / "data").api
    api = msgspec.structs.replace(ports, webconsole=Listen(port=free_port()))
    async with start(api=api, **changes) as running, chromium() as browser:
        page = await browser.page()
        await page.screen(1280, 800)
        yield Visitor(page, api.webconsole.url, running)
        assert page.complaints == []
        elsewhere = [each for each in page.requests if not each.startswith(api.webconsole.url)]
        assert elsewhere == [], "nothing is loaded from elsewhere"


async def fill(running: Running) -> tuple[str, str]:
    """Both segments of the routed network are full: (one that got an address, the one that did not)."""
    last = ""
    for number in range(8):
        last = await running.admin.boot(f"db-{number}", networks="routed")
        await running.admin.active(last)
    refused = await running.admin.boot("db-8", networks="routed")
    assert (await running.admin.settled(refused))["status"] == "ERROR"
    return last, refused


async def test_each_page_shows_its_data(start: Start, tmp_path: Path) -> None:
    async with visiting(start, tmp_path, hosts=Hosts(count=6)) as visitor:
        running, page = visitor.running, visitor.page
        placed, refused = await fill(running)
        waits = await running.admin.boot("db-9", networks="routed", hints={"moorage:wait": "true"})
        services = (await running.admin.compute("GET", "/os-services", binary="nova-compute")).json()["services"]
        ids = {each["host"]: each["id"] for each in services}
        await running.admin.compute("PUT", f"/os-services/{ids['host6']}", {"forced_down": True})
        await visitor.log_in()
        await visitor.sees("Addresses of routed")
        await visitor.sees("no free address on the network's segment")
        await visitor.sees("1 server waits for a host: 1 for addresses, the first since")
        await visitor.screenshot("overview")
        await running.admin.gone(waits)

        await visitor.visit("/servers?status=ERROR")
        await visitor.sees("1 server")
        assert "db-7" not in await visitor.text()

        await visitor.visit(f"/server/{refused}")
        await visitor.sees("6 hosts looked at, 0 would do")
        await visitor.sees("taken back")
        assert await page.run(
            "getComputedStyle(document.querySelector('.steps .undo'), '::after').backgroundColor"
        ) != (await page.run("getComputedStyle(document.querySelector('.steps .failed'), '::after').backgroundColor"))
        assert "no free address" in await page.run("document.querySelector('.stack').getAttribute('aria-label')")
        await visitor.screenshot("refused")

        await visitor.visit(f"/server/{placed}")
        await visitor.sees("announce")
        await visitor.sees("br-int")
        assert re.search(r"rack-b \(physnet2\)|physnet1", await visitor.text())
        await visitor.screenshot("server")

        await visitor.visit("/operations")
        await visitor.sees("boot")
        await visitor.screenshot("operations")
        await page.click("main table a")
        await page.until("location.pathname.startsWith('/operation/') && document.querySelector('.steps')")
        await visitor.screenshot("operation")

        await visitor.visit("/fit-map")
        await page.run("document.querySelector('.map').focus()")
        for _ in range(7):
            await page.press("ArrowRight")
        await page.until("document.getElementById('readout').textContent.includes('addresses free')"
                         " || document.getElementById('readout').textContent.includes('not wired')")  # fmt: skip
        drawn = "[...document.querySelector('canvas').getContext('2d').getImageData(200, 40, 1, 1).data].some(Boolean)"
        await page.until(drawn)
        await visitor.screenshot("fit-map")

        await visitor.visit("/fleet?trouble=1")
        await visitor.sees("forced down by user")
        await visitor.screenshot("fleet")

        await visitor.visit("/moves")
        await page.type("input[name=host]", "host1")
        await page.click("main form button")
        await visitor.sees("would leave host1")
        await visitor.screenshot("moves")

        await visitor.visit("/what-if")
        await page.click("form[data-key=capacity] button")
        await page.until("/more servers? fits?/.test(document.querySelector('main').innerText)")
        await page.type("form[data-key=failover] input", "host1")
        await page.click("form[data-key=failover] button")
        await visitor.sees("host host1:")
        await page.run(CHOOSE_ROUTED)
        await page.click("form:not([data-key]) button.main")
        await visitor.sees("would fail")
        await visitor.sees("no free address on the network's segment")
        await visitor.screenshot("what-if")

        await visitor.visit("/audits")
        await page.click("main button.main")
        await page.until("document.querySelector('main table a')")
        await visitor.screenshot("audits")
        await page.click("main table a")
        await page.until("location.pathname.startsWith('/audit/')")
        await visitor.sees("Findings")


async def test_a_boot_is_shown_live_until_active(start: Start, tmp_path: Path) -> None:
    async with visiting(start, tmp_path) as visitor:
        page, gate = visitor.page, visitor.running.delay_verb("start_guest")
        await visitor.log_in()
        await visitor.visit("/servers")
        await page.run(
            "[...document.querySelectorAll('button')].find((each) => each.textContent === 'New server').click()"
        )
        await page.until("document.querySelector('#new-server input[name=name]')")
        await page.type("#new-server input[name=name]", "live")
        await page.click("#new-server button.main")
        await page.until("location.pathname.startsWith('/server/') && document.querySelector('.steps .now')")
        await visitor.sees("start guest")
        assert "BUILD" in await visitor.text()
        await visitor.screenshot("boot-under-way")
        loads = await page.run("performance.getEntriesByType('navigation').length")
        gate.set()
        await page.until("document.querySelector('.facts .badge')?.textContent === 'ACTIVE'")
        await page.until("!document.querySelector('.steps .now')")
        assert await page.run("performance.getEntriesByType('navigation').length") == loads, "nobody loaded it again"
        assert await page.run("document.title") == "live – Moorage"
        await page.run("[...document.querySelectorAll('button')].find((each) => each.textContent === 'Delete').click()")
        await page.until("document.querySelector('dialog[open]')")
        await page.run(
            "[...document.querySelectorAll('dialog button')].find((each) => each.textContent === 'Delete it').click()"
        )
        await page.until("location.pathname === '/servers'")
        await page.until("!document.querySelector('main').innerText.includes('live')")


async def test_owners_see_causes_and_counts_and_no_hosts(start: Start, tmp_path: Path) -> None:
    async with visiting(start, tmp_path) as visitor, visitor.running.person("demo", "demo") as demo:
        placed = await demo.boot("mine", networks="private")
        await demo.active(placed)
        await visitor.log_in("demo")
        nav = await visitor.page.run("document.getElementById('nav').innerText")
        assert "Fleet" not in nav
        for path in ("/", "/servers", f"/server/{placed}", "/operations"):
            await visitor.visit(path)
            text = await visitor.page.run("document.documentElement.outerHTML")
            assert not re.search(r"host\d|cell\d|br-int|conductor-", text), path
        await visitor.visit(f"/server/{placed}")
        await visitor.sees("would do")
        await visitor.sees("announce")
        await visitor.screenshot("owner")
        await demo.delete(placed)


async def test_a_session_that_ends_and_an_api_that_is_away_are_sentences(start: Start, tmp_path: Path) -> None:
    async with visiting(start, tmp_path) as visitor:
        page, running = visitor.page, visitor.running
        await visitor.log_in()
        app = running.cloud.webconsole
        assert isinstance(app, App)
        await visitor.visit("/servers")
        await app._upstream._client._transport.aclose()
        app._upstream._client._transport = _Away()  # the API is gone for the console
        app.feeds.wake(next(iter(app.sessions._sessions.values())))
        await page.until("document.getElementById('say').textContent.includes('cannot be reached')")
        assert "Name" in await visitor.text(), "what was shown stays"
        for session in list(app.sessions._sessions.values()):
            app.sessions.end(session)
        app.feeds.closing.set()  # the streams end, and the browsers come again
        await page.until(
            "location.pathname === '/login' && document.getElementById('say').textContent.includes('over')"
        )
        page.complaints.clear()  # the browser notes the 401


class _Away:
    """Nobody answers."""

    async def handle_async_request(self, request: Any) -> Any:
        raise httpx.ConnectError("connection refused", request=request)

    async def aclose(self) -> None:
        return None


async def test_pages_load_fast_and_support_phones_and_dark_mode(start: Start, tmp_path: Path) -> None:
    async with visiting(start, tmp_path) as visitor:
        page = visitor.page
        await visitor.log_in()
        took_ms = []
        for _ in range(5):
            await page.call("Network.clearBrowserCache")
            await visitor.visit("/")
            took_ms.append(await page.run("performance.getEntriesByName('shown')[0].startTime"))
            assert page.wire_bytes < WIRE_MAX_BYTES
        assert min(took_ms) < FIRST_PAGE_MS * BUSY_TIMES, took_ms
        for name, width, dark in (("phone", 390, False), ("dark", 1280, True), ("phone-dark", 390, True)):
            await page.screen(width, 844, dark=dark, phone=width < 500)
            for path in PAGES:
                await visitor.visit(path)
                assert await page.run("document.documentElement.scrollWidth <= innerWidth"), (name, path)
                await visitor.screenshot(f"{name}-{path.strip('/') or 'overview'}")


async def test_the_fit_map_of_ten_thousand_hosts_is_fluent(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large(*_: Any) -> topics.TopicState:
        return topics.TopicState({"fit_map": a_fleet(10_000, 64), "segments": []})

    monkeypatch.setitem(topics.PLAIN, "fit-map", large)
    async with visiting(start, tmp_path) as visitor:
        page = visitor.page
        await visitor.log_in()
        await visitor.visit("/fit-map")
        await visitor.sees("10,000 hosts")
        for size in ("16", "2"):
            await page.run(f"""(() => {{ const found = document.querySelectorAll('.filter select')[2];
                found.value = '{size}'; found.onchange({{ target: found }}); }})()""")
            frames_ms = await page.run(SCROLLED)
            assert sorted(frames_ms)[len(frames_ms) // 2] < FRAME_MS * BUSY_TIMES, frames_ms
        await visitor.screenshot("fit-map-10000")
        await page.run("document.querySelector('.map').focus()")
        await page.press("End")
        await page.until("document.getElementById('readout').textContent.includes('host9999')", 20)


def a_fleet(hosts: int, segments: int) -> dict[str, Any]:
    """What the API answers of so many hosts, each of which is wired to one segment."""
    totals = {"VCPU": 64, "MEMORY_MB": 262_144, "DISK_GB": 2_000}
    part = [(number * 7919 % 1000) / 1000 for number in range(hosts)]

    def column(total: int) -> dict[str, list[int]]:
        return {"free": [int(total * each) for each in part], "total": [total] * hosts}

    def wired(segment: int) -> str:
        bits = "".join("1" if number % segments == segment else "0" for number in range(hosts))
        return base64.b64encode(int(bits, 2).to_bytes(hosts // 8, "big")).decode()

    return {
        "hosts": {
            "name": [f"host{number}" for number in range(hosts)],
            "cell": [number * 4 // hosts for number in range(hosts)],
            "zone": [0] * hosts,
            "state": [2 if number % 997 == 0 else 0 for number in range(hosts)],
        },
        "cells": ["cell1", "cell2", "cell3", "cell4"],
        "zones": ["nova"],
        "resources": {name: column(total) for name, total in totals.items()},
        "bandwidth": {"egress": column(25_000_000), "ingress": column(25_000_000)},
        "segments": [
            {"id": f"s{each}", "name": f"rack-{each}", "free": each * 4, "total": 252, "hosts": wired(each)}
            for each in range(segments)
        ],
    }


async def test_pages_work_with_the_keyboard_and_have_labels(start: Start, tmp_path: Path) -> None:
    async with visiting(start, tmp_path) as visitor:
        page = visitor.page
        await visitor.log_in()
        await page.press("g")
        await page.press("s")
        await page.until("location.pathname === '/servers'")
        await page.until("document.activeElement.tagName === 'H1'")
        await page.until("document.querySelector('main input[type=search]')")
        await page.press("/")
        await page.until("document.activeElement.type === 'search'")
        for path in PAGES:
            await visitor.visit(path)
            assert await page.run(UNLABELLED) == [], path
            assert await page.run("document.querySelectorAll('h1').length") == 1
            assert await page.run("document.querySelector('nav a[aria-current=page]') !== null")


CHOOSE_ROUTED = """(() => { const found = document.querySelector('form:not([data-key]) select[name=networks]');
  found.selectedIndex = [...found.options].findIndex((each) => each.text === 'routed'); })()"""
SCROLLED = """(async () => {
  const box = document.querySelector('.map'), frames = [];
  for (let step = 1; step <= 30; step++) {
    const before = performance.now();
    box.scrollTop = step * 200;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    frames.push(performance.now() - before);
  }
  return frames;
})()"""
UNLABELLED = """[...document.querySelectorAll('button, a, input, select, table, [role=img], [role=meter], progress, summary')]
  .filter((each) => !(each.textContent?.trim() || each.getAttribute('aria-label') || each.labels?.length || each.querySelector?.('caption')
    || each.closest('[aria-hidden=true]'))).map((each) => each.outerHTML.slice(0, 200))"""
