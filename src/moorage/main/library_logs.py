"""Limits the logs of libraries that log too much."""

import logging

TALKATIVE = ("httpx", "httpcore")
"""At the level `debug` httpcore writes whole headers, and with them tokens."""


OF_NO_USE = "returning true from eof_received()"
"""Python's TLS says so when the other end closes a connection that a library began without TLS; the library says what matters."""


def quiet_libraries() -> None:
    """Let only warnings of these libraries reach the log, whatever `log_level` is."""
    logging.getLogger("asyncio").addFilter(lambda record: not record.getMessage().startswith(OF_NO_USE))
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
