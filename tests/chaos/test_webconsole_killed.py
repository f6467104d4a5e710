"""The web console of a set of processes in headless Chromium: conductors are killed in the middle of a boot, and the console itself."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.cloud.test_webconsole_browser import SETTLED

from moorage.main.embedded import admin_password
from moorage.main.local_cluster.cluster import CONSOLE_WEB, TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.api_user import Person
from moorage_testing.browser import BrowserTab, chromium, missing
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser"),
]

CONDUCTORS = ("conductor-1", "conductor-2")
HELD_S = 600.0


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialSet]:
    trial = TrialSet(
        tmp_path_factory.mktemp("set"),
        hosts=2,
        apis=1,
        guests_ask=True,
        durability="none",
        settings=f"\n{CHEAP_LOGINS_SETTINGS}",
    )
    try:
        trial.start()
        yield trial
    finally:
        trial.stop()


@asynccontextmanager
async def browsing(trial: TrialSet) -> AsyncIterator[BrowserTab]:
    """An administrator who is logged in."""
    async with chromium() as browser:
        page = await browser.page()
        await page.screen(1280, 800)
        await log_in(trial, page)
        yield page


async def log_in(trial: TrialSet, page: BrowserTab) -> None:
    await page.go(f"{trial.console_url}/login")
    await page.until("document.querySelector('#password')")
    for name, value in (("user", "admin"), ("password", admin_password(trial.config)), ("project", "admin")):
        await page.type(f"input[name={name}]", value)
    await page.click("#password button.main")
    await page.until(f"location.pathname === '/' && {SETTLED}")


async def sees(page: BrowserTab, words: str) -> None:
    await page.until(f"document.querySelector('main').innerText.includes({words!r})")


def hosts_of(trial: TrialSet) -> list[Path]:
    return sorted((trial.directory / "data" / "hosts").glob("host?"))


def hold_starts(trial: TrialSet, delay_s: float) -> None:
    for host in hosts_of(trial):
        (host / "dials.json").write_bytes(msgspec.json.encode({"verbs": {"start_guest": {"delay_s": delay_s}}}))


def release_unbuilt(trial: TrialSet) -> None:
    for host in hosts_of(trial):
        (host / "dials.json").unlink()


async def test_a_boot_with_killed_conductors_is_shown_waiting_then_active(trial: TrialSet) -> None:
    async with browsing(trial) as page, Person(trial.config, urls=trial.api_urls()) as admin:
        hold_starts(trial, HELD_S)
        server = await admin.boot("followed", networks="private")
        await page.go(f"{trial.console_url}/server/{server}")
        await page.until("document.querySelector('.steps .now')")
        await sees(page, "start guest")
        for name in CONDUCTORS:
            trial.kill(name)
        await page.go(f"{trial.console_url}/")
        await sees(page, "No conductor is up")
        await sees(page, "boot")
        await page.go(f"{trial.console_url}/server/{server}")
        await page.until("document.querySelector('.steps .now')")
        assert await page.run("document.querySelector('.facts .badge').textContent") == "BUILD"
        release_unbuilt(trial)
        for host in hosts_of(trial):  # the start that was held is another agent's by now
            trial.kill(f"agent-{host.name}")
        for name in (*CONDUCTORS, *(f"agent-{host.name}" for host in hosts_of(trial))):
            trial.run(name, *trial.arguments_of(name))
        loads = await page.run("performance.getEntriesByType('navigation').length")
        await page.until("document.querySelector('.facts .badge')?.textContent === 'ACTIVE'")
        await page.until("!document.querySelector('.steps .now')")
        assert await page.run("performance.getEntriesByType('navigation').length") == loads, "nobody loaded it again"
        await page.go(f"{trial.console_url}/")
        await page.until(f"{SETTLED} && !document.querySelector('main').innerText.includes('No conductor is up')")
        await admin.delete(server)
        assert page.complaints == []


async def test_a_console_that_is_killed_is_a_sentence_and_then_a_login(trial: TrialSet) -> None:
    async with browsing(trial) as page:
        await page.go(f"{trial.console_url}/servers")
        await page.until(f"location.pathname === '/servers' && {SETTLED}")
        trial.kill(CONSOLE_WEB)
        await page.until("document.getElementById('say').textContent.includes('does not answer')")
        assert "Name" in await page.run("document.querySelector('main').innerText"), "what was shown stays"
        trial.run(CONSOLE_WEB, *trial.arguments_of(CONSOLE_WEB))
        await page.until(
            "location.pathname === '/login' && document.getElementById('say').textContent.includes('over')"
        )
        await log_in(trial, page)
