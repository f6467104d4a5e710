"""Serve one WSGI application of a service: `serve.py MODULE PORT THREADS`.

Neutron is given one thread: on SQLite, two writers at once end in "database is locked".
"""
# mypy: ignore-errors
# pyright: basic

import ctypes
import importlib
import signal
import sys
from types import FrameType

from cheroot import wsgi  # pyright: ignore[reportMissingImports]

PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # whoever started us may be killed, and then we go too
    module, port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sys.argv[1:] = []  # their option parsers must not see ours
    application = importlib.import_module(module).application
    server = wsgi.Server(("127.0.0.1", port), application, numthreads=threads, request_queue_size=128)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        server.start()
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    main()
