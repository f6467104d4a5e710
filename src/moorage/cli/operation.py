"""`moorage operation list | show ID | stuck`: what is being done, how far it is, and what it waits for."""

import json

from moorage.cli import cloud


def main(argv: list[str]) -> int:
    parser = cloud.options("operation", "What is being done, how far it is, and what it waits for.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="the newest operations")
    listing.add_argument("--server", help="of one server (id)")
    listing.add_argument("--status", help="open, cleaning, stuck, done or undone")
    listing.add_argument("--limit", type=int, default=50)
    showing = verbs.add_parser("show", help="one operation, with its journal")
    showing.add_argument("operation")
    verbs.add_parser("stuck", help="what somebody should look at")
    arguments = parser.parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    if arguments.verb == "show":
        print(json.dumps(cloud.get(connection, f"/ext/operations/{arguments.operation}")["operation"], indent=2))
        return 0
    params = {"status": "stuck"} if arguments.verb == "stuck" else {"limit": str(arguments.limit)}
    if arguments.verb == "list":
        params |= {name: getattr(arguments, name) for name in ("server", "status") if getattr(arguments, name)}
    rows = cloud.get(connection, "/ext/operations", **params)["operations"]
    heads = ["id", "what", "server", "status", "since", "waiting or fault"]
    print(cloud.table([_row(each) for each in rows], heads) if rows else "nothing")
    return 0


def _row(operation: dict[str, str]) -> list[str]:
    said = operation.get("waiting") or operation.get("fault") or ""
    return [
        operation["id"],
        operation["name"],
        operation["server"],
        operation["status"],
        operation["created_at"],
        said[:60],
    ]
