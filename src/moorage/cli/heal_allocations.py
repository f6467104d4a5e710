"""`moorage heal-allocations`: corrects claims so that they match servers and their ports, as `nova-manage placement heal_allocations` (S1.14).

The exit codes are Nova's, as far as they can occur: 5, 6 and 7 of Nova are 3 here, because nothing is left half done.
"""

import json
import sys

from moorage.cli import audit, cloud
from moorage.model.audit import OF_ALLOCATIONS, OF_PORTS_ALLOCATIONS
from moorage.model.json_types import JsonObject

HEALED, NOT_HEALED, NOTHING, INVALID, UNEXPECTED = 0, 3, 4, 127, 255
NO_PORTS = 5


def main(argv: list[str]) -> int:
    parser = cloud.options(
        "heal-allocations", "Make claims say what servers and their ports have: missing, wrong and left-over ones."
    )
    parser.add_argument(
        "--server",
        "--instance",
        action="append",
        default=[],
        metavar="ID",
        help="heal only this server; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what would be healed (exit code 4)")
    parser.add_argument(
        "--skip-port-allocations",
        action="store_true",
        help="leave what ports are guaranteed, and their addresses, alone",
    )
    parser.add_argument("--json", action="store_true", help="print what the API answered")
    parser.add_argument(
        "--timeout", type=float, default=audit.PATIENCE_S, metavar="S", help="how long to wait for the conductor"
    )
    parser.epilog = (
        "0: something was healed. 3: something could not be healed. 4: there was nothing to heal, or it was a dry run. "
        "5: the network service could not be asked. 127: invalid input. 255: nothing could be read."
    )
    arguments = parser.parse_args(argv)
    kinds = [kind for kind in OF_ALLOCATIONS if not arguments.skip_port_allocations or kind not in OF_PORTS_ALLOCATIONS]
    request = {"kinds": kinds, "servers": arguments.server, "repair": True, "dry_run": arguments.dry_run}
    connection = cloud.connect(arguments.os_cloud)
    try:
        report = audit.run(connection, request, arguments.timeout)
    except audit.Unaudited as why:
        print(f"moorage: {why}", file=sys.stderr)
        return INVALID if "(400)" in str(why) else UNEXPECTED
    print(json.dumps(report, indent=2) if arguments.json else "\n".join(describe(report)))
    return code(report, skip_ports=arguments.skip_port_allocations)


def code(report: JsonObject, *, skip_ports: bool = False) -> int:
    """Return the exit code: Nova's, if Nova has one for this."""
    if report["status"] != "done":
        return UNEXPECTED
    if "network" in report["not_looked_at"] and not skip_ports:
        return NO_PORTS
    if any(report["left"].values()):
        return NOT_HEALED
    return NOTHING if report["asked"]["dry_run"] or not report["found"] else HEALED


def describe(report: JsonObject) -> list[str]:
    """Return a line for each server and kind, and the sum."""
    before = "[dry-run] " if report["asked"]["dry_run"] else ""
    done = {(each["kind"], each["what"]): each["done"] for each in report["repairs"]}
    lines = []
    for each in report["findings"]:
        what = f"{each['kind']} of instance {each['server'] or each['what']}: {each['found']}, expected {each['expected'] or 'nothing'}"
        if not each["repairable"]:
            lines.append(f"{before}Cannot heal {what} ({each['repair']})")
        elif report["asked"]["dry_run"]:
            lines.append(f"{before}Would heal {what}")
        else:
            lines.append(f"Heal {what}: {done.get((each['kind'], each['what']), 'not done')}")
    if report["found"] > len(report["findings"]):
        lines.append(f"and {report['found'] - len(report['findings'])} more")
    lines += [f"Not checked: {name}: {why}" for name, why in report["not_looked_at"].items()]
    servers = report["looked_at"].get("servers", 0)
    healed = 0 if report["asked"]["dry_run"] else sum(report["repaired"].values())
    return [*lines, f"Processed {servers} instances: {report['found']} found, {healed} healed."]
