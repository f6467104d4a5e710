"""`moorage cell …`: the cells of the region, as `nova-manage cell_v2` does it for Nova's (N7)."""

import argparse
import json
import sys
from typing import Any

from moorage.cli import cloud

DONE, REFUSED = 0, 2


def parser() -> argparse.ArgumentParser:
    made = cloud.options("cell", "The cells of the region.")
    verbs = made.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="every cell, what is said of it, and what is in it")
    listing.add_argument("--json", action="store_true", help="print what the API answered")
    disable = verbs.add_parser(
        "disable", help="no server comes into the cell from elsewhere; its own stay, and move about in it"
    )
    disable.add_argument("--reason", default="", help="what people are told")
    enable = verbs.add_parser("enable", help="the cell takes servers again")
    delete = verbs.add_parser("delete", help="the region forgets a cell that has no hosts and no servers")
    delete.add_argument(
        "--force",
        action="store_true",
        help="although records of deleted servers are in it, which nobody will see again",
    )
    for each in (disable, enable, delete):
        each.add_argument("cell")
    made.epilog = "0: done. 2: it was refused."
    return made


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    if arguments.verb == "list":
        found = cloud.get(connection, "/ext/cells")["cells"]
        print(json.dumps(found, indent=2) if arguments.json else "\n".join(lines(found)))
        return DONE
    path = f"/ext/cells/{arguments.cell}"
    if arguments.verb == "delete":
        query = {"force": "true"} if arguments.force else {}
        reply = connection.compute.delete(path, params=query, microversion=cloud.LATEST)
        said = f"the region has forgotten {arguments.cell}: take it out of the configuration of every process now"
    else:
        disabled = arguments.verb == "disable"
        wanted = {"disabled": disabled} | ({"disabled_reason": arguments.reason} if disabled else {})
        reply = connection.compute.put(path, json={"cell": wanted}, microversion=cloud.LATEST)
        said = f"{arguments.cell} is {arguments.verb}d"
    if reply.status_code >= 400:
        print(f"moorage: {cloud.why_not(reply)} ({reply.status_code})", file=sys.stderr)
        return REFUSED
    print(said)
    return DONE


def lines(found: list[dict[str, Any]]) -> list[str]:
    """As people read it."""
    heads = ["cell", "database", "state", "hosts", "servers", "deleted", "uuid", "why"]
    rows = [
        [
            each["name"],
            "answers" if each["answers"] else "out" if each["configured"] else "not configured",
            "disabled" if each["disabled"] else "enabled",
            *(str(each[name]) for name in ("hosts", "servers", "deleted_servers")),
            each["uuid"] or "",
            "; ".join(why for why in (each["disabled_reason"], each["why"] if each["configured"] else "") if why),
        ]
        for each in found
    ]
    return [cloud.table(rows, heads)]
