"""Libraries whose own log says too much."""

import logging

TALKATIVE = ("httpx", "httpcore")
"""At the level `debug` httpcore writes whole headers, and with them tokens."""


def quiet_libraries() -> None:
    """Of these, warnings alone reach the log, whatever `log_level` says."""
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
