"""`moorage audit`: finds orphans and inconsistent records in all services of a cloud, and repairs them (N4)."""

import argparse
import json
import sys
import time
from typing import Any

from moorage.cli import cloud
from moorage.model.json_types import JsonObject

CLEAN, FOUND, NOT_LOOKED = 0, 1, 2
LOOK_EVERY_S = 0.3
PATIENCE_S = 3_600.0
SHOWN_MAX = 200


def parser() -> argparse.ArgumentParser:
    made = cloud.options(
        "audit", "Find orphans and inconsistent records in a cloud: claims, ports, volumes, images, guests, mappings."
    )
    made.add_argument("--kind", action="append", default=[], metavar="K", help="find only this kind; may be repeated")
    made.add_argument(
        "--server", action="append", default=[], metavar="ID", help="check only this server; may be repeated"
    )
    made.add_argument("--repair", action="store_true", help="repair what can be repaired, and keep a journal of it")
    made.add_argument("--dry-run", action="store_true", help="with --repair: only list what would be repaired")
    made.add_argument(
        "--limit", type=int, default=SHOWN_MAX, help="findings that are shown; all are counted (default: %(default)s)"
    )
    made.add_argument("--json", action="store_true", help="print what the API answered")
    made.add_argument("--kinds", action="store_true", help="list the kinds of findings, and what a repair of each does")
    made.add_argument("--last", action="store_true", help="show the last audit instead of running one")
    made.add_argument(
        "--timeout",
        type=float,
        default=PATIENCE_S,
        metavar="S",
        help="how long to wait for the conductor (default: %(default)s)",
    )
    made.epilog = "0: nothing was found. 1: something was found, repaired or not. 2: nothing could be checked."
    return made


def main(argv: list[str]) -> int:
    reader = parser()
    arguments = reader.parse_args(argv)
    if arguments.dry_run and not arguments.repair:
        reader.error("--dry-run belongs to --repair")
    connection = cloud.connect(arguments.os_cloud)
    if arguments.kinds:
        return _kinds(connection, arguments.json)
    try:
        report = last(connection) if arguments.last else run(connection, wanted(arguments), arguments.timeout)
    except Unaudited as why:
        print(f"moorage: {why}", file=sys.stderr)
        return NOT_LOOKED
    print(json.dumps(report, indent=2) if arguments.json else "\n".join(lines(report)))
    if report["status"] != "done":
        return NOT_LOOKED
    return FOUND if report["found"] else CLEAN


class Unaudited(Exception):
    """Raised when there is no report."""


def wanted(arguments: argparse.Namespace) -> JsonObject:
    return {
        "kinds": arguments.kind,
        "servers": arguments.server,
        "repair": arguments.repair,
        "dry_run": arguments.dry_run,
        "limit": max(0, arguments.limit),
    }


def run(connection: Any, request: JsonObject, timeout_s: float) -> JsonObject:
    """Ask for an audit and wait for its report. Raises Unaudited."""
    reply = connection.compute.post("/ext/audits", json={"audit": request}, microversion=cloud.LATEST)
    if reply.status_code >= 400:
        raise Unaudited(f"{cloud.why_not(reply)} ({reply.status_code})")
    id, until = reply.json()["audit"]["id"], time.monotonic() + timeout_s
    while True:
        reply = connection.compute.get(f"/ext/audits/{id}", microversion=cloud.LATEST)
        if reply.status_code >= 400:
            raise Unaudited(f"{cloud.why_not(reply)} ({reply.status_code})")
        report: JsonObject = reply.json()["audit"]
        if report["ended_at"] is not None:
            return report
        if time.monotonic() >= until:
            raise Unaudited(f"audit {id} is {report['status']} after {timeout_s:.0f} s: is a conductor running?")
        time.sleep(LOOK_EVERY_S)


def last(connection: Any) -> JsonObject:
    """Return the newest report. Raises Unaudited when there is none."""
    rows = cloud.get(connection, "/ext/audits")["audits"]
    ended = [each for each in rows if each["ended_at"] is not None]
    if not ended:
        raise Unaudited("no audit was run yet")
    audit: JsonObject = cloud.get(connection, f"/ext/audits/{ended[0]['id']}")["audit"]
    return audit


def lines(report: JsonObject) -> list[str]:
    """Return the report as lines for people."""
    printed = [
        f"audit {report['id']} of {report['ended_at'] or report['asked_at']}: {report['status']} {report['why']}".rstrip()
    ]
    looked = ", ".join(f"{count} {name}" for name, count in report["looked_at"].items())
    printed.append(f"checked        {looked or 'nothing'}")
    printed += [f"not checked    {name}: {why}" for name, why in report["not_looked_at"].items()]
    if report["findings"]:
        rows = [
            [each[name] for name in ("kind", "what", "where", "server")] + [_differs(each)]
            for each in report["findings"]
        ]
        printed += ["", cloud.table(rows, ["kind", "what", "where", "server", "what is wrong"])]
    if report["found"] > len(report["findings"]):
        printed.append(f"and {report['found'] - len(report['findings'])} more")
    printed += ["", *_counts(report)] if report["found"] else ["", "nothing found"]
    if report["repairs"]:
        printed += ["", "journal of repairs"]
        printed += [
            f"  {each['at']} {each['kind']} {each['what']} by {each['by']}: {each['done']}"
            for each in report["repairs"]
        ]
    return printed


def _differs(finding: JsonObject) -> str:
    text = f"{finding['found'] or 'nothing'}; expected: {finding['expected'] or 'nothing'}"
    return text if finding["repairable"] else f"{text} [not repaired: {finding['repair']}]"


def _counts(report: JsonObject) -> list[str]:
    request = report["asked"]
    mended = "would be repaired" if request["dry_run"] else "repaired"
    rows = [
        [kind, str(count), str(report["repaired"].get(kind, 0)), str(report["left"].get(kind, 0))]
        for kind, count in sorted(report["counts"].items())
    ]
    if request["repair"]:
        return [cloud.table(rows, ["kind", "found", mended, "left"])]
    return [
        cloud.table([row[:2] for row in rows], ["kind", "found"]),
        "",
        "`moorage audit --repair --dry-run` shows what would be repaired",
    ]


def _kinds(connection: Any, as_json: bool) -> int:
    rows = cloud.get(connection, "/ext/audits/kinds")["kinds"]
    table = [
        [each["kind"], each["says"], each["repair"] if each["repairable"] else f"not repaired: {each['repair']}"]
        for each in rows
    ]
    print(json.dumps(rows, indent=2) if as_json else cloud.table(table, ["kind", "says", "repair"]))
    return CLEAN
