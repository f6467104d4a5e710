"""The page in which people see a console: noVNC where it is installed, and a page that says how to install it where it is not.

The npm package `@novnc/novnc` is a library without a page, so a small one is served around it; a whole noVNC (Debian's package, or
its repository) brings `vnc_lite.html` and is served as it is.
"""

import base64
import hashlib
from collections.abc import Collection
from pathlib import Path

from starlette.responses import FileResponse, HTMLResponse, Response

PAGE = "vnc_lite.html"
MODULES = ("core/rfb.js", "lib/rfb.js")
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
NOTHING = "default-src 'none'"
"""What a page without scripts may load."""
OURS = (
    "default-src 'self'; script-src 'self' 'sha256-{}'; style-src 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; form-action 'none'"
)
WHOLE_NOVNC = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "media-src 'self' data:; connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; form-action 'none'"
)
"""Its pages have scripts of their own between their lines."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff": "font/woff",
    ".ttf": "font/ttf",
    ".oga": "audio/ogg",
    ".mp3": "audio/mpeg",
}
"""What is served, and nothing else of the directory."""

MISSING = """<!doctype html><meta charset="utf-8"><title>Console</title>
<h1>noVNC is not installed here</h1>
<p>Install it (<code>npm install @novnc/novnc</code>, or your distribution's package <code>novnc</code>) and name its directory in the
configuration of the console proxy: <code>[console] novnc_directory</code>.</p>
<p>Consoles work without it, for clients that speak WebSocket themselves.</p>
"""
AROUND = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>noVNC</title><link rel="icon" href="data:,">
<style>html,body{height:100%%;margin:0;background:#222;color:#eee;font:14px sans-serif}body{display:flex;flex-direction:column}
#said{padding:4px 8px}#screen{flex:1;overflow:hidden}</style>
<script type="module">
import RFB from "./%s";
const said = document.getElementById("said");
const asked = new URLSearchParams(window.location.search);
const scheme = window.location.protocol === "https:" ? "wss" : "ws";
const path = asked.get("path") ?? "websockify";
const url = `${scheme}://${window.location.host}/${path.replace(/^\\//, "")}`;
const rfb = new RFB(document.getElementById("screen"), url, {});
rfb.scaleViewport = true;
rfb.addEventListener("connect", () => { said.textContent = "Connected."; rfb.focus(); });
rfb.addEventListener("disconnect", (event) => {
  said.textContent = event.detail.clean ? "Disconnected." : "The connection was refused or lost: ask for a new console.";
});
rfb.addEventListener("desktopname", (event) => { document.title = event.detail.name; said.textContent = event.detail.name; });
</script></head><body><div id="said">Connecting …</div><div id="screen"></div></body></html>
"""
"""It has the title of noVNC's own page, because clients search the page for it."""


class Pages:
    """Files of one directory, by their path; none when no directory is configured."""

    def __init__(self, directory: str, allowed_origins: Collection[str] = ()) -> None:
        """`allowed_origins`: host names of pages that may show a console in a frame."""
        self._directory = Path(directory).resolve() if directory else None
        hosts = "".join(f" {each} {each}:*" for each in allowed_origins)
        self._frames = f"frame-ancestors 'self'{hosts}"

    def headers(self, may_load: str = NOTHING) -> dict[str, str]:
        """Of an answer, a page or not."""
        return {**HEADERS, "Content-Security-Policy": f"{may_load}; {self._frames}"}

    def page(self, path: str) -> Response:
        """What is at this path of ours."""
        name = path.strip("/") or PAGE
        file = self._file(name)
        if file is not None:
            return FileResponse(file, media_type=TYPES[file.suffix], headers=self.headers(WHOLE_NOVNC))
        if name != PAGE:
            return HTMLResponse(
                "<!doctype html><title>Not found</title><p>There is no such page.</p>", 404, self.headers()
            )
        module = next((each for each in MODULES if self._file(each) is not None), None)
        if module is None:
            return HTMLResponse(MISSING, 404, self.headers())
        page = AROUND % module
        return HTMLResponse(page, 200, self.headers(OURS.format(_script_hash(page))))

    def _file(self, name: str) -> Path | None:
        """A file below the directory, wherever links lead."""
        if self._directory is None:
            return None
        try:
            file = (self._directory / name).resolve()
            is_served = file.is_relative_to(self._directory) and file.suffix in TYPES and file.is_file()
        except (OSError, ValueError):
            return None
        return file if is_served else None


def _script_hash(page: str) -> str:
    """Of the one script that stands in the page, so that no other runs there."""
    script = page.partition('<script type="module">')[2].partition("</script>")[0]
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
