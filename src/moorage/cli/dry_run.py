"""`moorage dry-run boot | resize | migrate | evacuate | unshelve`: shows which host a server would get, and which calls would be made (N12)."""

import argparse
import json
import sys
from typing import Any

from moorage.cli import cloud
from moorage.model.json_types import JsonObject

WOULD, WOULD_NOT, REFUSED = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    made = cloud.options(
        "dry-run", "Show which host a server would get, why other hosts are rejected, and which calls would be made."
    )
    made.epilog = "0: it would succeed. 1: it would fail. 2: it would be refused at once."
    verbs = made.add_subparsers(dest="verb", required=True)
    boot = verbs.add_parser("boot", help="a new server")
    boot.add_argument("--flavor", required=True)
    boot.add_argument("--image", help="name or id; without it: boot from a volume, which a real request would name")
    boot.add_argument("--network", action="append", default=[], help="name or id; may be repeated")
    boot.add_argument("--port", action="append", default=[], help="name or id; may be repeated")
    boot.add_argument("--availability-zone", help="ZONE, or ZONE:HOST")
    boot.add_argument("--host")
    boot.add_argument("--hint", action="append", default=[], metavar="KEY=VALUE")
    boot.add_argument("--count", type=int, default=1, help="number of servers")
    resize = verbs.add_parser("resize", help="to another flavor")
    resize.add_argument("server")
    resize.add_argument("--flavor", required=True)
    for verb, description in (
        ("migrate", "to another host, off"),
        ("evacuate", "away from a dead host"),
        ("unshelve", "back from its image"),
    ):
        one = verbs.add_parser(verb, help=description)
        one.add_argument("server")
        one.add_argument("--host")
        if verb == "migrate":
            one.add_argument("--live", action="store_true", help="while it runs")
    for each in verbs.choices.values():
        each.add_argument("--calls", action="store_true", help="show each step's calls too")
        each.add_argument("--json", action="store_true", help="print what the API answered")
    return made


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    path, body = _boot(connection, arguments) if arguments.verb == "boot" else _move(connection, arguments)
    reply = connection.compute.post(f"/ext/dry-run{path}", json=body, microversion=cloud.LATEST)
    if reply.status_code >= 400:
        print(f"moorage: {_sentence(reply)} ({reply.status_code})", file=sys.stderr)
        return REFUSED
    result = reply.json()["dry_run"]
    print(
        json.dumps(result, indent=2)
        if arguments.json
        else "\n".join(describe(result, arguments.verb, calls=arguments.calls))
    )
    return WOULD if all(each["would_succeed"] for each in result["servers"]) else WOULD_NOT


def _boot(connection: Any, arguments: argparse.Namespace) -> tuple[str, JsonObject]:
    networks = [{"uuid": connection.network.find_network(each, ignore_missing=False).id} for each in arguments.network]
    networks += [{"port": connection.network.find_port(each, ignore_missing=False).id} for each in arguments.port]
    server: JsonObject = {
        "name": "dry-run",
        "flavorRef": connection.compute.find_flavor(arguments.flavor, ignore_missing=False).id,
        "networks": networks or "none",
        "min_count": arguments.count,
        "max_count": arguments.count,
    }
    if arguments.image:
        server["imageRef"] = connection.image.find_image(arguments.image, ignore_missing=False).id
    for name in ("availability_zone", "host"):
        if getattr(arguments, name):
            server[name] = getattr(arguments, name)
    hints = dict(each.partition("=")[::2] for each in arguments.hint)
    return "/servers", {"server": server, **({"os:scheduler_hints": hints} if hints else {})}


def _move(connection: Any, arguments: argparse.Namespace) -> tuple[str, JsonObject]:
    existing = connection.compute.find_server(arguments.server, ignore_missing=True, all_projects=True)
    server = arguments.server if existing is None else existing.id
    if arguments.verb == "resize":
        wanted: Any = {"flavorRef": connection.compute.find_flavor(arguments.flavor, ignore_missing=False).id}
    else:
        wanted = {"host": arguments.host} if arguments.host else {} if arguments.verb == "evacuate" else None
    if arguments.verb == "migrate" and arguments.live:
        return f"/servers/{server}/action", {"os-migrateLive": {"host": arguments.host, "block_migration": "auto"}}
    return f"/servers/{server}/action", {arguments.verb: wanted}


def _sentence(reply: Any) -> str:
    try:
        return str(next(iter(reply.json().values()))["message"])
    except (ValueError, StopIteration, KeyError, TypeError):
        return str(reply.reason)


def describe(result: JsonObject, verb: str, *, calls: bool) -> list[str]:
    """Format the answer for people, with the verb of the command: `migrate` is done by the operation `resize`."""
    lines: list[str] = []
    for each in result["servers"]:
        verdict = "would be done" if each["would_succeed"] else f"would fail: {each['fault']}"
        lines.append(f"{verb} of {each['name'] or each['server']} {verdict}")
        if "considered" in each:
            lines.append(f"  {each['willing']} of {each['considered']} hosts would do")
        lines += [_host(place, host) for place, host in enumerate(each.get("hosts", ()), start=1)]
        lines += [f"  {count} × {cause}" for cause, count in each.get("refused", {}).items()]
        lines += [f"  {cause}" for cause in each.get("causes", ())]
        lines += [f"    {miss['host']}: {miss['reason']}" for miss in each.get("refused_hosts", ())]
        if calls:
            lines.append("  steps")
            lines += [_step(step) for step in each["steps"]]
    return lines


def _host(place: int, host: JsonObject) -> str:
    segments = f", addresses from {', '.join(host['segments'])}" if host["segments"] else ""
    weights = ", ".join(f"{name} {points:g}" for name, points in host["weights"].items())
    return f"  {place:3}. {host['host']} ({host['cell']}){segments}" + (f"; weighs {weights}" if weights else "")


def _step(step: JsonObject) -> str:
    calls = "; ".join(
        f"{call['service']}: {call['call']}" + (f" × {call['times']}" if call["times"] > 1 else "")
        for call in step["calls"]
    )
    return f"    {step['name']:20} {calls or 'nothing'}"
