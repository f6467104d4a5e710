"""Sets up a process before its event loop runs, and handles its signals."""

import asyncio
import resource
import signal
import sys

from moorage.main.config import LISTENERS, OPTIONAL_PORTS, Config
from moorage.main.event_loop import SWITCH_INTERVAL_S
from moorage.main.http_servers import reread_certificates
from moorage.main.library_logs import quiet_libraries
from moorage.main.logs import set_up_log

OPEN_FILES_MAX = 65_536


def set_up_process(config: Config) -> None:
    """Set up the log, the switching of threads, and the limit of open connections and files."""
    set_up_log(config)
    quiet_libraries()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_file_limit()


def _raise_file_limit() -> None:
    """Raise the limit of open files to what this user may have: the usual 1,024 are fewer than the connections of one listener."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(OPEN_FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stop_on_signals(config: Config) -> asyncio.Event:
    """Return an event that is set when the process is asked to stop. If a listener has a certificate, SIGHUP reads it again."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stopping.set)
    if any(getattr(config.api, name).has_tls for name in (*LISTENERS, *OPTIONAL_PORTS)):
        loop.add_signal_handler(signal.SIGHUP, reread_certificates)
    return stopping


def print_ready(what: str) -> None:
    """Print the line for which whoever started this process waits."""
    print(f"moorage: {what}: ready", flush=True)
