"""`moorage cell drain NAME`: every server of a cell is moved to other cells, with its progress shown (N7)."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from moorage.cli import cloud
from moorage.model.json_types import JsonObject

EMPTY, NOT_EMPTY, REFUSED = 0, 1, 2
LOOK_EVERY_S = 1.0
BAR_CHARACTERS = 30
PATIENCE_S = 7 * 24 * 3_600.0
RUNNING = {"waiting", "running"}


def drain(connection: Any, arguments: argparse.Namespace) -> int:
    wanted = {
        "cell": arguments.cell,
        "hosts": arguments.concurrency,
        "concurrency": arguments.servers,
        "confirm": not arguments.no_confirm,
        "partial": arguments.partial,
        "live": not arguments.cold,
        "dry_run": arguments.plan,
    }
    reply = connection.compute.post("/ext/cell-drains", json={"cell_drain": wanted}, microversion=cloud.LATEST)
    if reply.status_code >= 400:
        return _refused(reply)
    shown = _shown(connection, reply.json()["cell_drain"], arguments, wait=not (arguments.plan or arguments.no_wait))
    return EMPTY if arguments.no_wait and not arguments.plan else shown


def show(connection: Any, arguments: argparse.Namespace) -> int:
    return _shown(connection, _newest(connection, arguments.cell), arguments, wait=arguments.wait)


def cancel(connection: Any, arguments: argparse.Namespace) -> int:
    path = f"/ext/cell-drains/{_newest(connection, arguments.cell)['id']}/action"
    reply = connection.compute.post(path, json={"cancel": None}, microversion=cloud.LATEST)
    return _refused(reply) if reply.status_code >= 400 else EMPTY


DRAINS: Mapping[str, Callable[[Any, argparse.Namespace], int]] = {
    "drain": drain,
    "show-drain": show,
    "cancel-drain": cancel,
}


def _refused(reply: Any) -> int:
    print(f"moorage: {cloud.why_not(reply)} ({reply.status_code})", file=sys.stderr)
    return REFUSED


def _newest(connection: Any, wanted: str) -> JsonObject:
    """The newest drain of a cell's name, or the drain with this id."""
    rows = cloud.get(connection, "/ext/cell-drains", cell=wanted)["cell_drains"]
    path = f"/ext/cell-drains/{rows[0]['id'] if rows else wanted}"
    drain: JsonObject = cloud.get(connection, path)["cell_drain"]
    return drain


def _shown(connection: Any, drain: JsonObject, arguments: argparse.Namespace, *, wait: bool) -> int:
    until = time.monotonic() + arguments.timeout
    while wait and drain["status"] in RUNNING and time.monotonic() < until:
        if not arguments.json:
            _bar(drain)
        time.sleep(LOOK_EVERY_S)
        drain = cloud.get(connection, f"/ext/cell-drains/{drain['id']}")["cell_drain"]
    if wait and not arguments.json:
        _bar(drain, last=True)
    print(json.dumps(drain, indent=2) if arguments.json else "\n".join(lines(drain)))
    return EMPTY if _empty(drain) else NOT_EMPTY


def _empty(drain: JsonObject) -> bool:
    """Whether nothing is left in the cell, or would be left."""
    return bool(drain["status"] == "done" or (drain["status"] == "planned" and not drain["counts"]["left"]))


def bar(drain: JsonObject) -> str:
    """`[#####.....] 2/4 hosts  31 done, 2 moving, 1 left`."""
    hosts = drain["hosts"]
    done = sum(each["progress"] not in {"waiting", "moving"} for each in hosts)
    filled = BAR_CHARACTERS if not hosts else BAR_CHARACTERS * done // len(hosts)
    counts = ", ".join(f"{n} {name}" for name, n in drain["counts"].items() if n)
    return f"[{'#' * filled}{'.' * (BAR_CHARACTERS - filled)}] {done}/{len(hosts)} hosts  {counts or drain['status']}"


def _bar(drain: JsonObject, *, last: bool = False) -> None:
    """Show the bar, on a terminal only; it overwrites the last one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{bar(drain)}", end="\n" if last else "", file=sys.stderr, flush=True)


def lines(drain: JsonObject) -> list[str]:
    """Format a drain for people: hosts, or their servers if there is a plan, and offloaded servers."""
    printed = [f"drain of {drain['cell']}: {drain['status']} {drain['why']}".rstrip()]
    if drain["id"]:
        printed[0] += f" ({drain['id']})"
    hosts = [
        [
            each["host"],
            each["progress"],
            ", ".join(f"{n} {name}" for name, n in each["counts"].items() if n),
            each["why"],
        ]
        for each in drain["hosts"]
    ]
    if hosts:
        printed += [cloud.table(hosts, ["host", "progress", "servers", "why"])]
    planned = [
        [row["name"] or row["server"], each["host"], row["way"], row["planned"] or "", row["why"]]
        for each in drain["hosts"]
        for row in each.get("servers", ())
    ]
    if planned:
        printed += ["", cloud.table(planned, ["server", "from", "way", "to", "why"])]
    records = [
        [row["name"] or row["server"], row["progress"], row["cell"] or "", row["why"]] for row in drain["offloaded"]
    ]
    return [*printed, "", cloud.table(records, ["offloaded", "progress", "cell", "why"])] if records else printed
