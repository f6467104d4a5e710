"""A management controller that speaks Redfish for hosts that are namespaces: who switches one off there kills what runs on it.

It has what a fence asks for: `/redfish/v1`, each machine's power state, and `ComputerSystem.Reset` with `ForceOff` and `On`.
"""

import json
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import override

ROOT = "/redfish/v1"
SYSTEMS = f"{ROOT}/Systems"
RESET = "Actions/ComputerSystem.Reset"
KINDS = ("On", "ForceOff")


class RedfishController:
    """`with RedfishController({"host1": crash}, port, files) as controller:`; `crash()` has killed all there when it returns.

    `files` has the certificate `cert.pem` of 127.0.0.1, and its `key.pem`.
    """

    def __init__(self, machines: dict[str, Callable[[], object]], port: int, files: Path) -> None:
        self.machines, self.off = machines, set[str]()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files / "cert.pem", files / "key.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "RedfishController":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def get(self, path: str) -> dict[str, Any] | None:
        """None: there is no such thing."""
        if path == ROOT:
            return {
                "@odata.id": ROOT, "Id": "root", "Name": "root", "RedfishVersion": "1.6.0",
                "UUID": "0d0c0b0a-0000-4000-8000-0000000000ff", "Systems": {"@odata.id": SYSTEMS},
            }  # fmt: skip
        if path == SYSTEMS:
            members = [{"@odata.id": f"{SYSTEMS}/{host}"} for host in self.machines]
            return {"@odata.id": SYSTEMS, "Name": "systems", "Members": members, "Members@odata.count": len(members)}
        host = path.removeprefix(f"{SYSTEMS}/")
        if host not in self.machines:
            return None
        reset = {"target": f"{SYSTEMS}/{host}/{RESET}", "ResetType@Redfish.AllowableValues": list(KINDS)}
        return {
            "@odata.id": path, "Id": host, "Name": host, "UUID": "", "PowerState": "Off" if host in self.off else "On",
            "Actions": {"#ComputerSystem.Reset": reset},
        }  # fmt: skip

    def reset(self, path: str, kind: str) -> HTTPStatus:
        host = path.removeprefix(f"{SYSTEMS}/").removesuffix(f"/{RESET}")
        if host not in self.machines or kind not in KINDS:
            return HTTPStatus.BAD_REQUEST
        if kind == "On":
            self.off.discard(host)
        elif host not in self.off:
            self.machines[host]()
            self.off.add(host)
        return HTTPStatus.NO_CONTENT

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        controller = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = controller.get(self.path.rstrip("/"))
                self._answer(HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK, found or {})

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(controller.reset(self.path, asked.get("ResetType", "")), {})

            def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
                data = b"" if status is HTTPStatus.NO_CONTENT else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        return Handler
