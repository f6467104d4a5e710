"""Runs the `openstack` client on one JSON list of arguments per line of its input; a process of its own, started once.

Starting the client for each command would take longer than the commands do.
"""

import contextlib
import io
import json
import sys
import warnings

warnings.simplefilter("ignore")  # the client's own

from openstackclient.shell import OpenStackShell  # noqa: E402
from osc_lib.clientmanager import ClientCache, ClientManager  # noqa: E402


def forget_clients() -> None:
    """The client keeps its connections on the class, as a process is expected to run one command for one user."""
    for kind in (ClientManager, *ClientManager.__subclasses__()):
        for kept in vars(kind).values():
            if isinstance(kept, ClientCache):
                kept._handle = None


for line in sys.stdin:
    answer, errors = io.StringIO(), io.StringIO()
    forget_clients()
    with contextlib.redirect_stdout(answer), contextlib.redirect_stderr(errors):
        try:
            status = OpenStackShell().run(json.loads(line))
        except SystemExit as ended:
            status = ended.code
    sys.stdout.write(json.dumps({"status": status, "answer": answer.getvalue(), "errors": errors.getvalue()}) + "\n")
    sys.stdout.flush()
