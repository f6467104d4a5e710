"""`moorage host`: moves every server of a host elsewhere and shows the progress (N13); and approves hosts of the region."""

import argparse
import json
import sys
import time
from typing import Any

from moorage.cli import cloud, host_approvals
from moorage.model.json_types import JsonObject

EMPTY, NOT_EMPTY, REFUSED = 0, 1, 2
LOOK_EVERY_S = 0.5
BAR_CHARACTERS = 30
PATIENCE_S = 24 * 3_600.0
RUNNING = {"waiting", "running"}


def parser() -> argparse.ArgumentParser:
    made = cloud.options("host", "Approve hosts, empty them, and show the progress.")
    verbs = made.add_subparsers(dest="verb", required=True)
    drain = verbs.add_parser("drain", help="move every server of a host elsewhere; the host is disabled first")
    drain.add_argument("host")
    drain.add_argument(
        "--plan", action="store_true", help="only show which server would go where, and which cannot move"
    )
    drain.add_argument(
        "--concurrency", type=int, default=2, help="how many servers are moved at once (default: %(default)s)"
    )
    drain.add_argument("--no-confirm", action="store_true", help="let the owners confirm cold moves")
    drain.add_argument("--cold", action="store_true", help="switch running servers off for the move")
    drain.add_argument("--partial", action="store_true", help="begin even if some servers have no other place")
    drain.add_argument(
        "--no-wait", action="store_true", help="do not wait for the end: exit code 0 means that it was accepted"
    )
    show = verbs.add_parser("show-drain", help="the progress of a drain; --wait waits for its end")
    show.add_argument("host", help="the host, or the drain's id")
    show.add_argument("--wait", action="store_true")
    stop = verbs.add_parser("cancel-drain", help="begin no further move")
    stop.add_argument("host", help="the host, or the drain's id")
    host_approvals.add_to(verbs)
    for each in (drain, show):
        each.add_argument("--json", action="store_true", help="print what the API answered")
        each.add_argument("--timeout", type=float, default=PATIENCE_S, metavar="S", help="how long to wait")
    made.epilog = (
        "0: nothing is left on the host, or would be; with --no-wait: it was accepted. 1: something is left, so far. "
        "2: it was refused."
    )
    return made


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    if arguments.verb in host_approvals.VERBS:
        return host_approvals.VERBS[arguments.verb](connection, arguments)
    if arguments.verb == "cancel-drain":
        drain = _newest(connection, arguments.host)
        reply = connection.compute.post(
            f"/ext/drains/{drain['id']}/action", json={"cancel": None}, microversion=cloud.LATEST
        )
        return _refused(reply) if reply.status_code >= 400 else EMPTY
    if arguments.verb == "show-drain":
        drain = _newest(connection, arguments.host)
        return _shown(connection, drain, arguments, wait=arguments.wait)
    wanted = {
        "host": arguments.host,
        "concurrency": arguments.concurrency,
        "confirm": not arguments.no_confirm,
        "partial": arguments.partial,
        "live": not arguments.cold,
        "dry_run": arguments.plan,
    }
    reply = connection.compute.post("/ext/drains", json={"drain": wanted}, microversion=cloud.LATEST)
    if reply.status_code >= 400:
        return _refused(reply)
    shown = _shown(connection, reply.json()["drain"], arguments, wait=not (arguments.plan or arguments.no_wait))
    return EMPTY if arguments.no_wait and not arguments.plan else shown


def _refused(reply: Any) -> int:
    print(f"moorage: {cloud.why_not(reply)} ({reply.status_code})", file=sys.stderr)
    return REFUSED


def _newest(connection: Any, wanted: str) -> JsonObject:
    """The newest drain of a host's name, or the drain with this id."""
    rows = cloud.get(connection, "/ext/drains", host=wanted)["drains"]
    drain: JsonObject = cloud.get(connection, f"/ext/drains/{rows[0]['id'] if rows else wanted}")["drain"]
    return drain


def _shown(connection: Any, drain: JsonObject, arguments: argparse.Namespace, *, wait: bool) -> int:
    until = time.monotonic() + arguments.timeout
    while wait and drain["status"] in RUNNING and time.monotonic() < until:
        if not arguments.json:
            _bar(drain)
        time.sleep(LOOK_EVERY_S)
        drain = cloud.get(connection, f"/ext/drains/{drain['id']}")["drain"]
    if wait and not arguments.json:
        _bar(drain, last=True)
    print(json.dumps(drain, indent=2) if arguments.json else "\n".join(lines(drain)))
    return EMPTY if _empty(drain) else NOT_EMPTY


def _empty(drain: JsonObject) -> bool:
    """Whether nothing is left on the host, or would be left."""
    return bool(drain["status"] == "done" or (drain["status"] == "planned" and not drain["counts"]["left"]))


def bar(drain: JsonObject) -> str:
    """`[#####.....] 5/10  2 moving, 1 confirming, 0 left`."""
    counts, total = drain["counts"], sum(drain["counts"].values())
    done = counts["done"]
    filled = BAR_CHARACTERS if not total else BAR_CHARACTERS * done // total
    others = ", ".join(f"{counts[name]} {name}" for name in ("moving", "confirming", "left") if counts[name])
    return f"[{'#' * filled}{'.' * (BAR_CHARACTERS - filled)}] {done}/{total}  {others or drain['status']}"


def _bar(drain: JsonObject, *, last: bool = False) -> None:
    """Show the bar, on a terminal only; it overwrites the last one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{bar(drain)}", end="\n" if last else "", file=sys.stderr, flush=True)


def lines(drain: JsonObject) -> list[str]:
    """Format a drain for people."""
    printed = [f"drain of {drain['host']}: {drain['status']} {drain['why']}".rstrip()]
    if drain["id"]:
        printed[0] += f" ({drain['id']})"
    rows = [
        [
            each["name"] or each["server"],
            each["way"],
            each["progress"],
            each["host"] or each["planned"] or "",
            each["why"],
        ]
        for each in drain["servers"]
    ]
    return [*printed, cloud.table(rows, ["server", "way", "progress", "host", "why"])] if rows else printed
