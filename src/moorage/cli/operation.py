"""`moorage operation list | show ID | stuck`: shows operations, their progress, and what they wait for."""

import json

from moorage.cli import cloud
from moorage.model.json_types import JsonObject


def main(argv: list[str]) -> int:
    parser = cloud.options("operation", "Show operations, their progress, and what they wait for.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="the newest operations")
    listing.add_argument("--server", help="of one server (id)")
    listing.add_argument("--status", help="open, cleaning, stuck, done or undone")
    listing.add_argument("--limit", type=int, default=50)
    showing = verbs.add_parser("show", help="one operation, with its journal")
    showing.add_argument("operation")
    showing.add_argument("--json", action="store_true", help="print what the API answered, results and all")
    verbs.add_parser("stuck", help="operations that an operator should check")
    arguments = parser.parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    if arguments.verb == "show":
        operation = cloud.get(connection, f"/ext/operations/{arguments.operation}")["operation"]
        print(json.dumps(operation, indent=2) if arguments.json else "\n".join(_describe(operation)))
        return 0
    params = {"status": "stuck"} if arguments.verb == "stuck" else {"limit": str(arguments.limit)}
    if arguments.verb == "list":
        params |= {name: getattr(arguments, name) for name in ("server", "status") if getattr(arguments, name)}
    rows = cloud.get(connection, "/ext/operations", **params)["operations"]
    heads = ["id", "what", "server", "status", "since", "waiting or fault"]
    print(cloud.table([_row(each) for each in rows], heads) if rows else "nothing")
    return 0


def _row(operation: dict[str, str]) -> list[str]:
    reason = operation.get("waiting") or operation.get("fault") or ""
    return [
        operation["id"],
        operation["name"],
        operation["server"],
        operation["status"],
        operation["created_at"],
        reason[:60],
    ]


def _describe(operation: JsonObject) -> list[str]:
    """The operation's row, then a line for each record of its journal."""
    printed = [f"{operation['name']} {operation['id']} of server {operation['server']}: {operation['status']}"]
    names = ("created_at", "updated_at", "ended_at", "owner", "epoch", "waiting", "fault", "cancel", "after")
    printed += [
        f"  {name.removesuffix('_at'):8} {operation[name]}" for name in names if operation.get(name) is not None
    ]
    if "lines" in operation:
        printed += ["", "journal", *(f"  {_line(each)}" for each in operation["lines"])]
    return printed


def _line(line: JsonObject) -> str:
    cause = line.get("cause", {})
    step = line.get("step") or cause.get("step") or ", ".join(line.get("steps", ()))
    attempt = line.get("attempt") or cause.get("attempt")
    words = [f"{line['type']:8}", step, f"(attempt {attempt})" if attempt else ""]
    words.append(line.get("public") or cause.get("public") or line.get("status") or "")
    if line.get("open"):
        words.append("; to be taken back: " + ", ".join(each["step"] for each in line["open"]))
    return " ".join(word for word in words if word).rstrip()
