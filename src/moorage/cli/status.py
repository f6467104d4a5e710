"""`moorage status`: which behaviour is on while a fleet is upgraded, and which hosts block the next."""

import json
from typing import Any

from moorage.cli import cloud

BLOCKERS_SAID_MAX = 10
FINE, WARNED = 0, 1


def main(argv: list[str]) -> int:
    parser = cloud.options("status", "Which behaviour is on while a fleet is upgraded, and which hosts block the next.")
    parser.add_argument("--json", action="store_true", help="print what the API answered")
    parser.epilog = (
        "`moorage status --local --config FILE` looks without a running API, from the databases and with the credentials of "
        "this machine: the check before a conductor of the next release is started. 0: fine, 1: there is a warning, 2: refused."
    )
    arguments = parser.parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    told = cloud.get(connection, "/ext/gates")["gates"]
    left_alone = cloud.get(connection, "/ext/neighbours")["left_alone"]
    if arguments.json:
        print(json.dumps({**told, "left_alone": left_alone}, indent=2))
    else:
        print("\n".join([*lines(told), *out(left_alone)]))
    return WARNED if told["warnings"] or left_alone else FINE


def out(left_alone: list[dict[str, Any]]) -> list[str]:
    """Whom nobody asks for now."""
    said = [""] if left_alone else []
    for each in left_alone:
        circuit = each["circuit"]
        calls = f" ({circuit['calls']})" if circuit["calls"] else ""
        said.append(
            f"WARNING: the {circuit['neighbour']} service{calls} is left alone by {each['process']}: {circuit['why']}, "
            f"{circuit['failures']} times in a row"
        )
    return said


def lines(told: dict[str, Any]) -> list[str]:
    """The report as people read it."""
    levels = ", ".join(f"{count} of level {level}" for level, count in told["levels"].items()) or "none"
    said = [f"hosts        {levels}", f"credentials  {told['credentials']}"]
    said += [f"             {each['conductor']}: {each['state']} {each['why']}".rstrip() for each in told["conductors"]]
    said.append(f"pin          {told['pin'] or 'none'}")
    for gate in told["gates"]:
        said += ["", f"{gate['name']}: {'open' if gate['open'] else 'shut'}", f"  {gate['behaviour']}"]
        said += [f"  because {reason}" for reason in gate["reasons"]]
        old = gate["blocked_by"][:BLOCKERS_SAID_MAX]
        said += [f"    {host['host']} in {host['cell']}: level {host['level']}" for host in old]
        if gate["hosts_blocking"] > len(old):
            said.append(f"    and {gate['hosts_blocking'] - len(old)} more")
    said += ["", *(f"WARNING: {each}" for each in told["warnings"])] if told["warnings"] else []
    return said
