"""`moorage waiting list`: which servers wait for a host, for what, and since when."""

import json

from moorage.cli import cloud
from moorage.model.json_types import JsonObject


def main(argv: list[str]) -> int:
    parser = cloud.options("waiting", "Servers that wait for a host, in the order in which they came.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="who waits, for what and since when")
    listing.add_argument("--project", help="of one project (id); administrators only, if it is not your own")
    listing.add_argument("--all-projects", action="store_true", help="of all projects; administrators only")
    listing.add_argument("--cause", help="only those that wait for this: addresses, memory, bandwidth …")
    listing.add_argument("--limit", type=int, default=100, help="so many rows at most (100)")
    listing.add_argument("--json", action="store_true", help="print what the API answered")
    arguments = parser.parse_args(argv)
    params = {"limit": str(arguments.limit)}
    params |= {"project_id": arguments.project} if arguments.project else {}
    params |= {"cause": arguments.cause} if arguments.cause else {}
    params |= {"all_projects": "1"} if arguments.all_projects else {}
    answer = cloud.get(cloud.connect(arguments.os_cloud), "/ext/waiting", **params)
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join(described(answer)))
    return 0


def described(answer: JsonObject) -> list[str]:
    """How many wait for what, and a line for each server of the page."""
    if not answer["servers"]:
        return ["no server waits"]
    count = answer["servers"]
    lines = [f"{count} server{'' if count == 1 else 's'} wait{'s' if count == 1 else ''}"]
    lines += [
        f"  {waiting['servers']} for {cause}, the first since {waiting['oldest_since']}"
        for cause, waiting in answer["causes"].items()
    ]
    heads = ["server", "project", "state", "waits for", "since", "until"]
    rows = [
        [each["server"], each["project_id"], each["state"], ", ".join(each["causes"]), each["since"], each["until"]]
        for each in answer["waiting"]
    ]
    return [*lines, *([cloud.table(rows, heads)] if rows else [])]
