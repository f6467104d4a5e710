"""Limits the logs of libraries that log too much."""

import logging

TALKATIVE = ("httpx", "httpcore")
"""At the level `debug` httpcore writes whole headers, and with them tokens."""


def quiet_libraries() -> None:
    """Let only warnings of these libraries reach the log, whatever `log_level` is."""
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
