"""libvirt-python, which is not everywhere: it is looked for when a driver is started, and said in one sentence when it is missing."""

import importlib
import logging
import threading
from typing import Any

from moorage.model.errors import Invalid

_log = logging.getLogger(__name__)

MISSING = "libvirt-python (packages libvirt-dev, pkg-config, gcc and python3-dev; then: pip install 'moorage[libvirt]')"

_lock = threading.Lock()
_loaded: Any = None
"""libvirt has one event loop in a process."""


def library() -> Any:
    """The module, with its event loop running: without one a daemon that hangs is not noticed. Raises Invalid when it is not installed."""
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
    """libvirt's errors are raised as well."""


def _run_events(found: Any) -> None:
    while True:
        try:
            found.virEventRunDefaultImpl()
        except found.libvirtError as failure:  # a connection that was closed raises here, and must not end the thread
            _log.debug("libvirt's event loop: %s", failure)
