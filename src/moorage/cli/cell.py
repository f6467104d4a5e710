"""`moorage cell …`: manages the cells of the region, as `nova-manage cell_v2` does for Nova's (N7)."""

import argparse
import json
import sys
from typing import Any

from moorage.cli import cloud
from moorage.cli.cell_drain import DRAINS, PATIENCE_S
from moorage.model.json_types import JsonObject

DONE, REFUSED = 0, 2
MOVES = 20
GIB = 1 << 30


def parser() -> argparse.ArgumentParser:
    made = cloud.options("cell", "The cells of the region.")
    verbs = made.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="every cell, its state, and its contents")
    disable = verbs.add_parser(
        "disable", help="let no server come into the cell from elsewhere; its own servers stay and can move within it"
    )
    disable.add_argument("--reason", default="", help="the reason that is shown")
    enable = verbs.add_parser("enable", help="let the cell take servers again")
    delete = verbs.add_parser("delete", help="remove a cell without hosts and servers from the region")
    delete.add_argument(
        "--force",
        action="store_true",
        help="even if it has records of deleted servers, which will never be shown again",
    )
    balance = verbs.add_parser(
        "balance", help="plan moves that balance free addresses and memory, with the cost of each"
    )
    balance.add_argument("--dry-run", action="store_true", required=True, help="only a plan is made; nothing is begun")
    balance.add_argument("--moves", type=int, default=MOVES, help="the most moves (default: %(default)s)")
    drain = verbs.add_parser("drain", help="move every server of a cell to other cells; the cell is disabled first")
    drain.add_argument(
        "--plan", action="store_true", help="only show which server would go where, and which cannot move"
    )
    drain.add_argument(
        "--concurrency", type=int, default=2, help="how many hosts are emptied at once (default: %(default)s)"
    )
    drain.add_argument(
        "--servers", type=int, default=2, help="servers on their way at once on each (default: %(default)s)"
    )
    drain.add_argument("--no-confirm", action="store_true", help="let the owners confirm cold moves")
    drain.add_argument(
        "--cold", action="store_true", help="switch running servers off for the move, even between linked cells"
    )
    drain.add_argument("--partial", action="store_true", help="begin even if some servers have no place elsewhere")
    drain.add_argument(
        "--no-wait", action="store_true", help="do not wait for the end: exit code 0 means that it was accepted"
    )
    show = verbs.add_parser("show-drain", help="the progress of a drain; --wait waits for its end")
    show.add_argument("--wait", action="store_true")
    stop = verbs.add_parser("cancel-drain", help="begin no further move")
    for each in (listing, balance, drain, show):
        each.add_argument("--json", action="store_true", help="print what the API answered")
    for each in (drain, show):
        each.add_argument("--timeout", type=float, default=PATIENCE_S, metavar="S", help="how long to wait")
    for each in (disable, enable, delete, drain):
        each.add_argument("cell")
    for each in (show, stop):
        each.add_argument("cell", help="the cell, or the drain's id")
    made.epilog = (
        "0: done; of a drain: nothing is left in the cell, or would be (with --no-wait: it was accepted). 1: something is left, so "
        "far. 2: it was refused."
    )
    return made


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    if arguments.verb == "list":
        cells = cloud.get(connection, "/ext/cells")["cells"]
        print(json.dumps(cells, indent=2) if arguments.json else "\n".join(lines(cells)))
        return DONE
    if arguments.verb == "balance":
        wanted = {"balance": {"dry_run": True, "moves": arguments.moves}}
        reply = connection.compute.post("/ext/balances", json=wanted, microversion=cloud.LATEST)
        if reply.status_code >= 400:
            return _refused(reply)
        plan = reply.json()["balance"]
        print(json.dumps(plan, indent=2) if arguments.json else "\n".join(plan_lines(plan)))
        return DONE
    if arguments.verb in DRAINS:
        return DRAINS[arguments.verb](connection, arguments)
    path = f"/ext/cells/{arguments.cell}"
    if arguments.verb == "delete":
        query = {"force": "true"} if arguments.force else {}
        reply = connection.compute.delete(path, params=query, microversion=cloud.LATEST)
        printed = f"the region has forgotten {arguments.cell}: take it out of the configuration of every process now"
    else:
        disabled = arguments.verb == "disable"
        status = {"disabled": disabled} | ({"disabled_reason": arguments.reason} if disabled else {})
        reply = connection.compute.put(path, json={"cell": status}, microversion=cloud.LATEST)
        printed = f"{arguments.cell} is {arguments.verb}d"
    if reply.status_code >= 400:
        return _refused(reply)
    print(printed)
    return DONE


def _refused(reply: Any) -> int:
    print(f"moorage: {cloud.why_not(reply)} ({reply.status_code})", file=sys.stderr)
    return REFUSED


def lines(cells: list[JsonObject]) -> list[str]:
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
        for each in cells
    ]
    return [cloud.table(rows, heads)]


def plan_lines(plan: JsonObject) -> list[str]:
    """Format a plan for people: the cells before and after, the moves, and why other servers stay."""
    levels = [
        [
            before["cell"],
            *(
                f"{_part(each[used], each[whole])}"
                for used, whole in (("memory_used_mib", "memory_mib"), ("addresses_used", "addresses"))
                for each in (before, after)
            ),
        ]
        for before, after in zip(plan["before"], plan["after"], strict=True)
    ]
    printed = [cloud.table(levels, ["cell", "memory used", "after", "addresses used", "after"])]
    rows = [
        [
            each["name"] or each["server"],
            f"{each['from_cell']}/{each['from_host']}",
            f"{each['cell']}/{each['host']}",
            "off meanwhile" if each["guest_off"] else "is off",
            f"{each['send_bytes'] / GIB:.1f} GiB",
        ]
        for each in plan["moves"]
    ]
    printed += ["", cloud.table(rows, ["server", "from", "to", "guest", "to send"])] if rows else ["", "no move helps"]
    printed += ["", *(f"{count} stay: {why}" for why, count in plan["stay"].items())] if plan["stay"] else []
    printed += [f"{cell} is out, and left as it is" for cell in plan["cells_out"]]
    return printed if plan["whole"] else [*printed, "there are more servers than were read"]


def _part(used: int, whole: int) -> str:
    return f"{100 * used / whole:.0f} %" if whole else "-"
