"""Headless Chromium, driven over its DevTools protocol: pages as people see them, with what their consoles complained about.

    async with chromium() as browser:
        page = await browser.page()
        await page.go("http://127.0.0.1:8785/login")
        await page.until("document.querySelector('form')")

Debian's package `chromium` is enough; `missing()` says so where it is not there.
"""

import asyncio
import base64
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from moorage_testing.waiting import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
CALL_S = 60.0
POLL_S = 0.03
MESSAGE_MAX_BYTES = 64 * 1024 * 1024
FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)


_PIXELS = """async (png, width, height) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = new OffscreenCanvas(width || image.width, height || image.height), context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return [canvas, context.getImageData(0, 0, canvas.width, canvas.height)];
}"""
DRAWN = f"""async (png, width, height) => {{
  const [canvas] = await ({_PIXELS})(png, width, height), reader = new FileReader();
  const blob = await canvas.convertToBlob({{ type: "image/png" }});
  return new Promise((done) => {{ reader.onload = () => done(reader.result); reader.readAsDataURL(blob); }});
}}"""
COMPARED = f"""async (one, other) => {{
  const [[, a], [, b]] = [await ({_PIXELS})(one), await ({_PIXELS})(other)];
  if (a.width !== b.width || a.height !== b.height) throw new Error("the pictures have different sizes");
  const parts = new Float64Array(64), counts = new Float64Array(64);
  for (let y = 0; y < a.height; y++) for (let x = 0; x < a.width; x++) {{
    const at = 4 * (y * a.width + x), part = 8 * Math.floor(8 * y / a.height) + Math.floor(8 * x / a.width);
    for (let channel = 0; channel < 3; channel++) parts[part] += Math.abs(a.data[at + channel] - b.data[at + channel]) / 255;
    counts[part] += 3;
  }}
  const sum = (list) => list.reduce((total, each) => total + each, 0);
  return [sum(parts) / sum(counts), Math.max(...parts.map((each, part) => each / counts[part]))];
}}"""


def missing() -> str:
    """Why there is no browser here; empty: there is one."""
    return "" if _program() else f"none of {', '.join(NAMES)} is installed (apt-get install chromium)"


def _program() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """What the browser refused, or what a script threw."""


class BrowserTab:
    """One tab."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        """Errors of the browser's console: exceptions, failed loads, refusals of the content security policy."""
        self.requests: list[str] = []
        """URLs that were asked for."""
        self.wire_bytes = 0
        """What came over the wire since the last `go`."""

    async def call(self, method: str, **params: Any) -> Any:
        """Raises BrowserError."""
        return await self._browser.call(method, params, self._session)

    async def go(self, url: str) -> None:
        """Begins to load a page; wait for what it should show by `until`."""
        self.wire_bytes = 0
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of an expression; of a promise, what it becomes. Raises BrowserError for what it throws."""
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    async def until(self, script: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until the expression is true. Raises TimeoutError with what the page shows."""
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    with suppress(BrowserError):  # the page is being replaced
                        if await self.run(f"Boolean({script})"):
                            return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            text = await self.run("document.body.innerText")
            raise TimeoutError(f"never: {script}\nthe page shows:\n{text}\ncomplaints: {self.complaints}") from None

    async def type(self, selector: str, text: str) -> None:
        """Into the field, as by hand."""
        await self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.run(f"document.querySelector({json.dumps(selector)}).select?.()")
        await self.call("Input.insertText", text=text)

    async def click(self, selector: str) -> None:
        await self.run(f"document.querySelector({json.dumps(selector)}).click()")

    async def press(self, key: str) -> None:
        """One key, where the focus is."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    async def screen(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """The size of the window, and whether its user likes it dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG; `whole`: down to the end of the page."""
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(_write, path, base64.b64decode(answer["data"]))

    async def other_tab(self) -> "BrowserTab":
        """Another tab of the same browser, with an empty page and cookies of its own."""
        return await self._browser.page()

    async def thumbnail(self, onto: "BrowserTab", width: int, height: int) -> bytes:
        """What is to be seen now as a PNG of this size. `onto` is a tab without a content security policy, which draws it."""
        answer = await self.call("Page.captureScreenshot", format="png")
        drawn = await onto.run(f"({DRAWN})({json.dumps(answer['data'])}, {width}, {height})")
        return base64.b64decode(str(drawn).partition(",")[2])

    async def difference(self, one: bytes, other: bytes) -> tuple[float, float]:
        """How far two PNGs of one size are apart, from 0 to 1: over the whole image, and in that of its 64 parts where they are furthest apart.

        Raises BrowserError for pictures of different sizes.
        """
        pictures = [base64.b64encode(each).decode() for each in (one, other)]
        whole, part = await self.run(f"({COMPARED})({json.dumps(pictures[0])}, {json.dumps(pictures[1])})")
        return float(whole), float(part)

    def take(self, event: dict[str, Any]) -> None:
        """One event of this tab."""
        method, params = event["method"], event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "assert"}:
            self.complaints.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Network.dataReceived":
            self.wire_bytes += params["encodedDataLength"]
        elif method == "Network.responseReceived":
            self.wire_bytes += params["response"].get("encodedDataLength", 0)


class Browser:
    """One process, reached by a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._pages: dict[str, BrowserTab] = {}
        self._task = asyncio.create_task(self._read(), name="browser")

    async def call(self, method: str, params: dict[str, Any], session: str | None = None) -> Any:
        """Raises BrowserError."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        await self._connection.send(json.dumps(message))
        async with asyncio.timeout(CALL_S):
            return await future

    async def page(self) -> BrowserTab:
        """A new tab with cookies of its own."""
        context = (await self.call("Target.createBrowserContext", {}))["browserContextId"]
        target = await self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        session = (await self.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}))[
            "sessionId"
        ]
        page = self._pages[session] = BrowserTab(self, session)
        for each in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{each}.enable")
        return page

    async def close(self) -> None:
        await self._connection.close()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _read(self) -> None:
        async for text in self._connection:
            message = json.loads(text)
            if (number := message.get("id")) is not None:
                future = self._waiting.pop(number)
                if "error" in message:
                    future.set_exception(BrowserError(message["error"]["message"]))
                else:
                    future.set_result(message["result"])
            elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                page.take(message)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with a profile that is gone afterwards. Raises FileNotFoundError where none is installed."""
    program = _program()
    if program is None:
        raise FileNotFoundError(missing())
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        flags = [*FLAGS, f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        process = await asyncio.create_subprocess_exec(
            program, *flags, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            port, path = await _address(Path(profile) / "DevToolsActivePort", process)
            async with connect(
                f"ws://127.0.0.1:{port}{path}", max_size=MESSAGE_MAX_BYTES, compression=None
            ) as connection:
                browser = Browser(connection)
                try:
                    yield browser
                finally:
                    await browser.close()
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


async def _address(file: Path, process: asyncio.subprocess.Process) -> tuple[str, str]:
    """Where it listens: it writes that when it is ready."""
    async with asyncio.timeout(PATIENCE_S):
        while process.returncode is None:
            with suppress(FileNotFoundError, ValueError):
                port, path = (await asyncio.to_thread(file.read_text)).split("\n")[:2]
                return port, path
            await asyncio.sleep(POLL_S)
    raise BrowserError(f"the browser ended with {process.returncode} before it was ready")
