"""`moorage host approve | list | revoke | turn`: manages the hosts that may join the region, and what they obey."""

import argparse
import json
import sys
import time
from typing import Any
from urllib.parse import quote

from moorage.cli import cloud
from moorage.model.json_types import JsonObject

DONE, REFUSED = 0, 2
LOOK_EVERY_S, RESET_PATIENCE_S = 1.0, 60.0
HEADS = ["host", "cell", "status", "since", "by", "key", "refused"]


def add_to(verbs: Any) -> None:
    """Add the commands of this module."""
    approve = verbs.add_parser("approve", help="let a host join the region, bound to its cell and key")
    approve.add_argument("host")
    approve.add_argument("--cell", default="", help="default: the cell that the host itself names")
    approve.add_argument("--key", help="the public half of its key on the bus, as `moorage bus key` prints it")
    listed = verbs.add_parser("list", help="approved hosts, waiting hosts, and refused messages")
    listed.add_argument("--waiting", action="store_true", help="only hosts that wait for approval")
    revoke = verbs.add_parser("revoke", help="ignore a host's messages; if it sends more, it waits for approval")
    revoke.add_argument("host")
    turn = verbs.add_parser("turn", help="compare a host's turn of a server with the region's; --reset takes it back")
    turn.add_argument("host")
    turn.add_argument("server", help="the server's id")
    turn.add_argument("--reset", action="store_true", help="if no conductor can have given the host's turn")
    for each in (approve, listed, turn):
        each.add_argument("--json", action="store_true", help="print what the API answered")


def approve(connection: Any, arguments: argparse.Namespace) -> int:
    wanted = {"cell": arguments.cell} | ({} if arguments.key is None else {"key": arguments.key})
    reply = connection.compute.put(_path(arguments.host), json={"approval": wanted}, microversion=cloud.LATEST)
    if reply.status_code >= 400:
        return _refused(reply)
    approval = reply.json()["host_approval"]
    print(json.dumps(approval, indent=2) if arguments.json else "\n".join(lines([approval])))
    return DONE


def listed(connection: Any, arguments: argparse.Namespace) -> int:
    approvals = cloud.get(connection, "/ext/host-approvals")["host_approvals"]
    if arguments.waiting:
        approvals = [each for each in approvals if each["status"] == "waiting"]
    print(json.dumps(approvals, indent=2) if arguments.json else "\n".join(lines(approvals)))
    return DONE


def revoke(connection: Any, arguments: argparse.Namespace) -> int:
    reply = connection.compute.delete(_path(arguments.host), microversion=cloud.LATEST)
    if reply.status_code >= 400:
        return _refused(reply)
    print(f"{arguments.host} is no longer accepted; write the broker's configuration again, so that its key is refused")
    return DONE


def turn(connection: Any, arguments: argparse.Namespace) -> int:
    path = f"/ext/host-turns/{quote(arguments.host, safe='')}/{quote(arguments.server, safe='')}"
    if arguments.reset:
        reply = connection.compute.delete(path, microversion=cloud.LATEST)
        if reply.status_code >= 400:
            return _refused(reply)
    found = cloud.get(connection, path)["host_turn"]
    until = time.monotonic() + RESET_PATIENCE_S
    while arguments.reset and found["ahead"] and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        found = cloud.get(connection, path)["host_turn"]
    last, held = found["last_operation"], found["host_operation"]
    state = "is ahead: the host refuses orders for this server" if found["ahead"] else "is one that a conductor gave"
    text = f"{arguments.host} has the turn of operation {held} of {last}, which {state}"
    print(json.dumps(found, indent=2) if arguments.json else text)
    return REFUSED if arguments.reset and found["ahead"] else DONE


def lines(approvals: list[JsonObject]) -> list[str]:
    """Format hosts for people."""
    rows = [
        [
            each["host"],
            each["cell"],
            each["status"],
            (each["approved_at"] or each["heard_at"] or "")[:19],
            each["approved_by"] or "",
            each["key"] or "",
            " ".join(filter(None, ((each["refused_at"] or "")[:19], each["refused_why"]))),
        ]
        for each in approvals
    ]
    return [cloud.table(rows, HEADS)]


def _path(host: str) -> str:
    return f"/ext/host-approvals/{quote(host, safe='')}"


def _refused(reply: Any) -> int:
    print(f"moorage: {cloud.why_not(reply)} ({reply.status_code})", file=sys.stderr)
    return REFUSED


VERBS = {"approve": approve, "list": listed, "revoke": revoke, "turn": turn}
