"""What every process of ours does before its loop runs, and with its signals."""

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
    """The log, how threads take turns, and how many connections and files there may be."""
    set_up_log(config)
    quiet_libraries()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _raise_file_limit()


def _raise_file_limit() -> None:
    """The usual 1,024 are fewer than the connections that one listener lets in; what this user may have is no more than asked for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(OPEN_FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stop_on_signals(config: Config) -> asyncio.Event:
    """Set when the process is told to stop. Where a listener has a certificate, SIGHUP means that it is to be read again."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stopping.set)
    if any(getattr(config.api, name).has_tls for name in (*LISTENERS, *OPTIONAL_PORTS)):
        loop.add_signal_handler(signal.SIGHUP, reread_certificates)
    return stopping
