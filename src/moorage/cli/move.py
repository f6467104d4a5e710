"""`moorage move show | cancel SERVER`: shows what a server's newest move holds on its source and destination hosts, or cancels the move."""

import json
import sys

from moorage.cli import cloud
from moorage.model.json_types import JsonObject


def main(argv: list[str]) -> int:
    parser = cloud.options("move", "Show what a server's move holds on its source and destination hosts, or cancel it.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser(
        "show", help="the newest move: its operation, what it waits for, and what it holds on each host"
    )
    show.add_argument("--json", action="store_true", help="print what the API answered, of all moves")
    cancel = verbs.add_parser("cancel", help="cancel the move that is under way, and undo it")
    for each in (show, cancel):
        each.add_argument("server", help="name or id")
    arguments = parser.parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    existing = connection.compute.find_server(arguments.server, ignore_missing=True, all_projects=True)
    path = f"/ext/servers/{arguments.server if existing is None else existing.id}/moves"
    moves = cloud.get(connection, path)["moves"]
    if arguments.verb == "cancel":
        if not moves:
            print("moorage: the server was never moved", file=sys.stderr)
            return 1
        reply = connection.compute.post(
            f"{path}/{moves[0]['id']}/action", json={"cancel": None}, microversion=cloud.LATEST
        )
        if reply.status_code >= 400:
            print(f"moorage: {cloud.why_not(reply)} ({reply.status_code})", file=sys.stderr)
            return 1
        return 0
    if arguments.json:
        print(json.dumps(moves, indent=2))
    else:
        print("\n".join(describe(moves[0])) if moves else "the server was never moved")
    return 0


def describe(move: JsonObject) -> list[str]:
    lines = [f"{move['type']} {move['id']}: {move['status']}, since {move['since']}"]
    doing = move["operation"]
    if doing is not None:
        way = "taken back, at" if doing["back"] else "at"
        lines.append(f"  {doing['name']} {doing['id']}: {doing['status']}, {way} {doing['step'] or 'its end'}")
    if move["waiting"]:
        lines.append(f"  waits for {move['waiting'].removeprefix('waiting for ')}")
    for name in ("source", "destination"):
        lines += _end(name, move[name])
    if move["services_out"]:
        lines.append(f"  not known, for these do not answer: {', '.join(move['services_out'])}")
    return lines


def _end(name: str, end: JsonObject) -> list[str]:
    lines = [f"  {name}: {end['host'] or 'not chosen yet'}" + (f" ({end['cell']})" if end["cell"] else "")]
    for each in end["claimed"]:
        amounts = ", ".join(f"{amount} {resource}" for resource, amount in each["resources"].items())
        lines.append(f"    claimed: {amounts} of {each['name'] or each['provider']}")
    lines += [
        f"    port {each['port']}: {each['status']} ({each['vif_type']}), {', '.join(each['addresses']) or 'no address'}"
        for each in end["bindings"]
    ]
    lines += [f"    volume {each['volume']}: {each['status']}" for each in end["attachments"]]
    return lines
