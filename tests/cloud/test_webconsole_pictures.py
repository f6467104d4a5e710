"""Pages of the web console match the small reference pictures in tests/golden/pictures, within a tolerance.

Texts, times and names differ from run to run, and so do fonts from machine to machine; layout, colours and what is drawn do not.
`MOORAGE_BLESS=1` writes them anew; look at them before they are committed.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cloud.conftest import Start
from tests.cloud.test_webconsole_browser import Visitor, fill, visiting

from moorage.main.config import Hosts
from moorage_testing.browser import BrowserTab, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")]

PICTURES = Path(__file__).parent.parent / "golden" / "pictures"
WIDTH, HEIGHT = 320, 200
WHOLE_MOST, PART_MOST = 0.03, 0.12
"""How far a page may be from its picture: everywhere, and in one of 64 parts."""
SETTLED_PAGES = {
    "overview": "/", "servers": "/servers", "operations": "/operations", "fit-map": "/fit-map", "fleet": "/fleet",
    "moves": "/moves", "what-if": "/what-if", "audits": "/audits",
}  # fmt: skip


class Gallery:
    """Compares what a tab shows with the picture of that name; all that are too far apart are said in the end."""

    def __init__(self, canvas: BrowserTab) -> None:
        self._canvas = canvas
        self.wrong: list[str] = []

    async def hold(self, page: BrowserTab, name: str) -> None:
        shown = await page.thumbnail(self._canvas, WIDTH, HEIGHT)
        golden = PICTURES / f"{name}.png"
        if os.environ.get("MOORAGE_BLESS"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_bytes(shown)
        whole, part = await self.apart(golden.read_bytes(), shown)
        if whole > WHOLE_MOST or part > PART_MOST:
            self.wrong.append(f"{name}: {whole:.3f}, and {part:.3f} in one part")

    async def apart(self, one: bytes, other: bytes) -> tuple[float, float]:
        return await self._canvas.difference(one, other)


@asynccontextmanager
async def viewing(start: Start, tmp_path: Path) -> AsyncIterator[tuple[Visitor, Gallery]]:
    async with visiting(start, tmp_path, hosts=Hosts(count=6)) as visitor:
        yield visitor, Gallery(await visitor.page.other_tab())


async def test_pages_match_their_reference_pictures(start: Start, tmp_path: Path) -> None:
    async with viewing(start, tmp_path) as (visitor, gallery):
        placed, refused = await fill(visitor.running)
        await visitor.page.go(f"{visitor.url}/login")
        await visitor.page.until("document.querySelector('#password')")
        await gallery.hold(visitor.page, "login")
        await visitor.log_in()
        for dark in (False, True):
            await visitor.page.screen(1280, 800, dark=dark)
            for name, path in SETTLED_PAGES.items():
                await visitor.visit(path)
                await gallery.hold(visitor.page, f"{name}-dark" if dark else name)
        await visitor.page.screen(1280, 800)
        for name, server in (("server", placed), ("refused", refused)):
            await visitor.visit(f"/server/{server}")
            await visitor.sees("looked at")
            await gallery.hold(visitor.page, name)
        await visitor.page.screen(390, 844, phone=True)
        await visitor.visit("/")
        await gallery.hold(visitor.page, "phone")
        assert gallery.wrong == []


async def test_a_page_without_its_style_differs_from_its_picture(start: Start, tmp_path: Path) -> None:
    """Each of these would be seen: no style sheet, the colours of the dark, an empty page, another page."""
    async with viewing(start, tmp_path) as (visitor, gallery):
        page = visitor.page
        await visitor.log_in()
        golden = (PICTURES / "overview.png").read_bytes()

        async def is_seen() -> bool:
            whole, part = await gallery.apart(golden, await page.thumbnail(gallery._canvas, WIDTH, HEIGHT))
            return whole > WHOLE_MOST or part > PART_MOST

        await page.run("[...document.styleSheets].forEach((each) => { each.disabled = true; })")
        assert await is_seen()
        await page.screen(1280, 800, dark=True)
        await visitor.visit("/")
        assert await is_seen()
        await page.screen(1280, 800)
        await visitor.visit("/fit-map")
        assert await is_seen()
        await visitor.visit("/")
        await page.run("document.querySelector('main').replaceChildren()")
        assert await is_seen()
