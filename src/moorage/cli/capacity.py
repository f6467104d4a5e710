"""`moorage capacity`: how many more servers fit, what runs out first, and whether all servers find a place after a failure (N8).

It asks the API of a running cloud, or reads a file: an invented fleet, or a saved world.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from moorage.cli import capacity_local, cloud
from moorage.cli.capacity_tables import capacity_lines, failover_lines
from moorage.cli.progress import Progress
from moorage.model.errors import Problem
from moorage.model.json_types import JsonObject

FITS, DOES_NOT, REFUSED = 0, 1, 2
KINDS = ("host", "aggregate", "segment", "cell")
FAILURES_AT_ONCE = 5
"""Failures in one request, so that the progress can be shown."""


def parser() -> argparse.ArgumentParser:
    made = cloud.options("capacity", "How many more servers fit, what runs out first, and what if something fails.")
    made.epilog = (
        "0: it fits, or all servers find a place. 1: it does not fit, or some find none. 2: the question is refused."
    )
    what = made.add_argument_group("what is to fit")
    what.add_argument("--flavor", help="name or id")
    what.add_argument(
        "--network", action="append", default=[], metavar="NETWORK[,egress=KBPS][,ingress=KBPS][,vnic=TYPE]",
        help="name or id, and what its port is guaranteed beside what the network's policy says; may be repeated",
    )  # fmt: skip
    what.add_argument("--group", help="a server group's id, or its name in a fleet file")
    what.add_argument("--availability-zone")
    fails = made.add_argument_group("what if it fails")
    fails.add_argument(
        "--fails", action="append", default=[], metavar="KIND=NAME", help="host, aggregate, segment or cell"
    )
    fails.add_argument("--each", choices=KINDS, help="each of this kind, one by one")
    change = made.add_argument_group("what if it were otherwise")
    for kind in (*KINDS, "uplink"):
        change.add_argument(f"--without-{kind}", action="append", default=[], metavar="NAME")
    for kind in ("host", "cell", "uplink"):
        change.add_argument(f"--add-{kind}", action="append", default=[], metavar="LIKE[=COUNT]")
    change.add_argument("--add-segment", action="append", default=[], metavar="LIKE=ADDRESSES")
    files = made.add_argument_group("files")
    files.add_argument("--world", type=Path, help="a fleet or a saved world, instead of a running cloud")
    files.add_argument(
        "--ask", type=Path, help="with a saved world: the request, as `moorage schedule --export` writes it"
    )
    files.add_argument("--save", type=Path, metavar="FILE", help="write the running cloud's world, with its servers")
    made.add_argument("--hosts", type=int, default=20, help="hosts that are listed (default: %(default)s)")
    made.add_argument("--json", action="store_true")
    return made


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    try:
        if arguments.save is not None:
            return _save(arguments)
        if arguments.fails or arguments.each:
            return _failovers(arguments)
        return _capacity(arguments)
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return REFUSED


def _capacity(arguments: argparse.Namespace) -> int:
    if arguments.world is not None:
        result = capacity_local.capacity(arguments, changes_of(arguments))
    else:
        if not arguments.flavor:
            print("moorage: say which --flavor, or --fails KIND=NAME", file=sys.stderr)
            return REFUSED
        connection = cloud.connect(arguments.os_cloud)
        result = _post(connection, "/ext/capacity", {"capacity": _question(connection, arguments)})["capacity"]
    print(json.dumps(result, indent=2) if arguments.json else "\n".join(capacity_lines(result, arguments.hosts)))
    return FITS if result["fits"] else DOES_NOT


def _question(connection: Any, arguments: argparse.Namespace) -> JsonObject:
    networks = []
    for each in arguments.network:
        name, wanted = capacity_local.parse_network(each)
        networks.append({"uuid": connection.network.find_network(name, ignore_missing=False).id, **wanted})
    question: JsonObject = {
        "flavor": connection.compute.find_flavor(arguments.flavor, ignore_missing=False).id,
        "networks": networks,
        "hosts": arguments.hosts,
        **changes_of(arguments),
    }
    for name in ("group", "availability_zone"):
        if getattr(arguments, name):
            question[name] = getattr(arguments, name)
    return question


def changes_of(arguments: argparse.Namespace) -> JsonObject:
    """Return `without` and `added` in the API's form."""
    without = {f"{kind}s": getattr(arguments, f"without_{kind}") for kind in (*KINDS, "uplink")}
    added: JsonObject = {
        f"{kind}s": [_like(each) for each in getattr(arguments, f"add_{kind}")] for kind in ("host", "cell", "uplink")
    }
    added["segments"] = [
        {"like": like, "addresses": capacity_local.number(n, "--add-segment LIKE=ADDRESSES")}
        for like, _, n in (each.rpartition("=") for each in arguments.add_segment)
    ]
    return {
        "without": {name: names for name, names in without.items() if names},
        "added": {name: likes for name, likes in added.items() if likes},
    }


def _like(word: str) -> JsonObject:
    like, equals, n = word.rpartition("=")
    return {"like": like, "count": capacity_local.number(n, "LIKE=COUNT")} if equals else {"like": word}


def _failovers(arguments: argparse.Namespace) -> int:
    bar = Progress("failures")
    if arguments.world is not None:
        rows = capacity_local.failovers(arguments, changes_of(arguments), bar)
    else:
        connection = cloud.connect(arguments.os_cloud)
        wanted = capacity_local.failures(arguments)
        if arguments.each:
            wanted += [(arguments.each, name) for name in _named(connection, arguments.each)]
        rows, done = [], 0
        for kind in KINDS:
            names = [name for each, name in wanted if each == kind]
            for start in range(0, len(names), FAILURES_AT_ONCE):
                batch = names[start : start + FAILURES_AT_ONCE]
                question = {"kind": kind, "names": batch, **changes_of(arguments)}
                rows += _post(connection, "/ext/failovers", {"failover": question})["failovers"]
                done += len(batch)
                bar.update(done, len(wanted))
    bar.close()
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(failover_lines(rows)))
    return FITS if all(each["survives"] for each in rows) else DOES_NOT


def _named(connection: Any, kind: str) -> list[str]:
    """The names of all things of a kind in the cloud."""
    match kind:
        case "aggregate":
            return [each.name for each in connection.compute.aggregates()]
        case "cell":
            return [each["name"] for each in cloud.get(connection, "/ext/cells")["cells"]]
        case "segment":
            return [each.id for each in connection.network.segments()]
        case _:
            return [each.name for each in connection.compute.hypervisors()]


def _post(connection: Any, path: str, body: Any) -> Any:
    reply = connection.compute.post(path, json=body, microversion=cloud.LATEST)
    if reply.status_code >= 400:
        print(f"moorage: {cloud.why_not(reply)} ({reply.status_code})", file=sys.stderr)
        raise SystemExit(REFUSED)
    return reply.json()


def _save(arguments: argparse.Namespace) -> int:
    snapshot = cloud.get(cloud.connect(arguments.os_cloud), "/ext/capacity/snapshot")
    arguments.save.write_bytes(msgspec.json.format(msgspec.json.encode(snapshot), indent=2) + b"\n")
    print(f"{arguments.save}: {len(snapshot['hosts'])} hosts, {len(snapshot.get('residents', ()))} servers")
    return FITS
