"""Imports libvirt-python when a driver is started; if it is missing, one sentence says so."""

import importlib
import logging
import threading
from typing import Any

from moorage.model.errors import Invalid

_log = logging.getLogger(__name__)

MISSING = (
    "libvirt-python (packages libvirt-dev, pkg-config, gcc and python3-dev; then, in the directory of Moorage's repository: "
    ".venv/bin/pip install -c constraints.txt -e '.[libvirt]')"
)

_lock = threading.Lock()
_loaded: Any = None
"""libvirt has one event loop in a process."""


def library() -> Any:
    """Return the module with its event loop running, which notices a daemon that hangs. Raises Invalid when it is not installed."""
    global _loaded
    with _lock:
        if _loaded is None:
            try:
                found = importlib.import_module("libvirt")
            except ImportError as missing:
                raise Invalid(MISSING, private=str(missing)) from missing
            found.registerErrorHandler(_ignore_errors, None)  # it prints each failure otherwise; ours are raised
            found.virEventRegisterDefaultImpl()
            threading.Thread(target=_run_events, args=(found,), name="libvirt-events", daemon=True).start()
            _loaded = found
    return _loaded


def _ignore_errors(_: object, __: object) -> None:
    """Ignore errors in the handler, because they are raised too."""


def _run_events(found: Any) -> None:
    while True:
        try:
            found.virEventRunDefaultImpl()
        except found.libvirtError as failure:  # a connection that was closed raises here, and must not end the thread
            _log.debug("libvirt's event loop: %s", failure)
