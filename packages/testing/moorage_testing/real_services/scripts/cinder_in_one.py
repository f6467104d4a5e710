"""Serve Cinder's API, its scheduler and its volume service in one process: `cinder_in_one.py PORT`.

Production has a broker between the three; here they meet over the in-memory transport of oslo.messaging, in native threads.
The back ends are `cinder_files.Driver` in the same directory.  On SQLite a transaction that reads and then writes ends in "database is
locked" when another writes meanwhile: each begins as a writer here.
"""
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import ctypes
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

PORT, SETTINGS = int(sys.argv[1]), sys.argv[2]
sys.argv[1:] = ["--config-file", SETTINGS]
os.environ["OS_CINDER_DISABLE_EVENTLET_PATCHING"] = "true"

from cinder import monkey_patch  # noqa: E402

monkey_patch.patch()

from cheroot import wsgi  # noqa: E402
from cinder.wsgi import wsgi as cinder_wsgi  # noqa: E402  registers the options
from oslo_config import cfg  # noqa: E402
from sqlalchemy import event  # noqa: E402
from sqlalchemy.engine import Engine  # noqa: E402

THREADS = 4
PR_SET_PDEATHSIG = 1


@event.listens_for(Engine, "connect")
def _connected(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")


@event.listens_for(Engine, "before_cursor_execute", retval=True)
def _begins(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> tuple[str, Any]:
    """oslo.db begins each transaction with this statement."""
    return ("BEGIN IMMEDIATE" if statement == "BEGIN" else statement), parameters


def start_services() -> None:
    """The scheduler listens first: the back ends report to it when they start."""
    from cinder import service

    scheduler = service.Service.create(binary="cinder-scheduler")
    volumes = [
        service.Service.create(
            host=f"{cfg.CONF.host}@{each}", service_name=each, binary="cinder-volume", coordination=True
        )
        for each in cfg.CONF.enabled_backends
    ]
    # The scheduler waits for what the back ends tell it, and only then returns.
    first = threading.Thread(target=scheduler.start, name="scheduler", daemon=True)
    first.start()
    for volume in volumes:
        volume.start()
    first.join()
    for volume in volumes:
        volume.manager.publish_service_capabilities(_admin())


def _admin() -> Any:
    from cinder import context

    return context.get_admin_context()


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # whoever started us may be killed, and then we go too
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    application = cinder_wsgi.initialize_application()
    start_services()
    server = wsgi.Server(("127.0.0.1", PORT), application, numthreads=THREADS, request_queue_size=128)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        os._exit(0)  # its threads do not end by themselves, and what it kept is thrown away

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server.start()


if __name__ == "__main__":
    main()
