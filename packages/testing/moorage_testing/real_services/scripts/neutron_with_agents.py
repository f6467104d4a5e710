"""Serve Neutron's API and take its agents' state reports, in one process: `neutron_with_agents.py PORT`.

Production has a broker between the two; here Neutron's own RPC server and the agents' own RPC client meet over the in-memory
transport of oslo.messaging.  `POST /agent-reports` plays the agent: its body is the state that one agent reports, and it is
sent and handled as every other.  One thread serves HTTP: on SQLite, two writers at once end in "database is locked".

With a broker (`transport_url`) it is the server of real agents: all that Neutron's `neutron-rpc-server` listens to is listened to here, and
every transaction begins as a writer, since theirs are beside the API's.
"""
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import contextlib
import ctypes
import json
import signal
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

PORT = int(sys.argv[1])
sys.argv[1:] = []  # Neutron's option parser must not see ours

from cheroot import wsgi  # noqa: E402
from neutron.wsgi.api import application  # noqa: E402  reads the configuration, makes the plug-ins

from neutron.agent.rpc import PluginReportStateAPI  # noqa: E402  isort: skip  after the configuration was read
from neutron.api.rpc.callbacks import resources  # noqa: E402
from neutron.conf.agent import common as agent_options  # noqa: E402
from neutron.services.segments import db as segments  # noqa: E402
from neutron_lib import context  # noqa: E402
from neutron_lib.agent import topics  # noqa: E402
from neutron_lib.plugins import directory  # noqa: E402
from oslo_config import cfg  # noqa: E402
from sqlalchemy import event  # noqa: E402
from sqlalchemy.engine import Engine  # noqa: E402

BODY_MAX_BYTES = 64 * 1024


def has_broker() -> bool:
    return not cfg.CONF.transport_url.startswith("fake:")


def _begins(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> tuple[str, Any]:
    """oslo.db begins each transaction with this statement; one that reads, and then writes, would end in "database is locked"."""
    return ("BEGIN IMMEDIATE" if statement == "BEGIN" else statement), parameters


def serve_agents() -> None:
    """What the agents of all hosts ask and say, over the broker."""
    event.listen(Engine, "before_cursor_execute", _begins, retval=True)
    for plugin in directory.get_unique_plugins():
        if hasattr(plugin, "start_rpc_listeners"):
            with contextlib.suppress(NotImplementedError):
                plugin.start_rpc_listeners()


def agent_report_app() -> Callable[..., Iterable[bytes]]:
    """The WSGI application that reports what an agent says; the answer is what Neutron says of that agent."""
    agent_options.register_agent_state_opts_helper(cfg.CONF)
    if not has_broker():
        directory.get_plugin().start_rpc_state_reports_listener()
    reports = PluginReportStateAPI(topics.REPORTS)

    def report(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        state = json.loads(environ["wsgi.input"].read(min(int(environ["CONTENT_LENGTH"]), BODY_MAX_BYTES)))
        state["resource_versions"] = resources.LOCAL_RESOURCE_VERSIONS
        known_as = reports.report_state(context.get_admin_context_without_session(), state, use_call=True)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"agent_status": known_as}).encode()]

    return report


def one_segments_plugin() -> None:
    """Deleting its first network, Neutron makes a second `segments` plug-in unless this name has one; then both report."""
    segments.segments_plugin = directory.get_plugin("segments")


PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # whoever started us may be killed, and then we go too
    one_segments_plugin()
    if has_broker():
        serve_agents()
    applications = wsgi.PathInfoDispatcher({"/": application, "/agent-reports": agent_report_app()})
    server = wsgi.Server(("127.0.0.1", PORT), applications, numthreads=1, request_queue_size=128)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        server.start()
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    main()
