"""`moorage status`: shows which behaviour is on while a fleet is upgraded, and which hosts block further behaviour."""

import json
from collections.abc import Iterator

from moorage.cli import cloud
from moorage.model.json_types import JsonObject

BLOCKERS_SAID_MAX = 10
FINE, WARNED = 0, 1
SILENT = "a release before 0.2.0"
"""Processes of these releases do not report their release; their APIs are not known at all."""


def main(argv: list[str]) -> int:
    parser = cloud.options(
        "status", "Show which behaviour is on while a fleet is upgraded, and which hosts block further behaviour."
    )
    parser.add_argument("--json", action="store_true", help="print what the API answered")
    parser.epilog = (
        "`moorage status --local --config FILE` looks without a running API, from the databases and with the credentials of "
        "this machine: the check before a conductor of the next release is started. 0: fine, 1: there is a warning, 2: refused."
    )
    arguments = parser.parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    told = cloud.get(connection, "/ext/gates")["gates"]
    left_alone = cloud.get(connection, "/ext/neighbours")["left_alone"]
    stores = cloud.get_or(connection, "/ext/databases", {"databases": []})["databases"]
    troubled = cloud.get_or(connection, "/ext/hosts", {"hosts": []})["hosts"]
    ended = [each for each in cloud.get_or(connection, "/ext/audits", {"audits": []})["audits"] if each["ended_at"]]
    warned = [*databases(stores), *hosts(troubled), *audited(ended[:1])]
    if arguments.json:
        print(json.dumps({**told, "left_alone": left_alone, "databases": stores, "hosts": troubled}, indent=2))
    else:
        print("\n".join([*lines(told), *out(left_alone), *warned]))
    return WARNED if told["warnings"] or left_alone or warned else FINE


def databases(stores: list[JsonObject]) -> list[str]:
    """Return a line for each cell whose database does not answer, or lacks servers that the region has in it."""
    said = []
    for each in stores:
        if not each["answers"]:
            said.append(f"WARNING: {each['cell']} is out: {each['why']}")
        elif each["missing"]:
            some = ", ".join(each["missing_servers"][:BLOCKERS_SAID_MAX])
            more = " ..." if each["missing"] > BLOCKERS_SAID_MAX else ""
            said.append(
                f"WARNING: {each['missing']} servers are missing in the database of {each['cell']}; their guests, ports and claims "
                f"stay: {some}{more}"
            )
    return ["", *said] if said else []


def audited(last: list[JsonObject]) -> list[str]:
    """Return lines about findings of the last audit that were not repaired."""
    said = []
    for each in last:
        left = each["found"] - (0 if each["asked"]["dry_run"] else sum(each["repaired"].values()))
        if each["status"] != "done":
            said.append(f"WARNING: the last audit, at {each['ended_at']}, could not look: {each['why']}")
        elif left:
            said.append(
                f"WARNING: the last audit, at {each['ended_at']}, found {left} that are not mended: `moorage audit --last`"
            )
    return ["", *said] if said else []


def hosts(troubled: list[JsonObject]) -> list[str]:
    """Return a line for each problem of a host that a person should look at."""
    said = []
    for each in troubled:
        where = f"WARNING: host {each['host']} in {each['cell']}"
        if each["refused_agent"]:
            said.append(
                f"{where}: another agent spoke for it and was refused, last at {each['refused_at']}: two machines have one name"
            )
        if each["set_aside"]:
            said.append(f"{where} put records of guests aside that it cannot read: {_some(each['set_aside'])}")
        if each["missing_guests"]:
            said.append(f"{where} has guests whose records its cell has lost: {_some(each['missing_guests'])}")
        if each["unknown_guests"]:
            said.append(
                f"{where} has guests that no database knows; they are left alone: {_some(each['unknown_guests'])}"
            )
        said += [f"{where} does not wire a port as it should: {what}" for what in each.get("not_wired", ())]
        if (more := each["left_alone"] - len(each["missing_guests"]) - len(each["unknown_guests"])) > 0:
            said.append(f"{where} has {more} more guests that are left alone")
    return ["", *said] if said else []


def _some(names: list[str]) -> str:
    return ", ".join(names[:BLOCKERS_SAID_MAX]) + (" ..." if len(names) > BLOCKERS_SAID_MAX else "")


def out(left_alone: list[JsonObject]) -> list[str]:
    """Return a line for each service that is not called at present."""
    said = [""] if left_alone else []
    for each in left_alone:
        circuit = each["circuit"]
        calls = f" ({circuit['calls']})" if circuit["calls"] else ""
        said.append(
            f"WARNING: the {circuit['neighbour']} service{calls} is left alone by {each['process']}: {circuit['why']}, "
            f"{circuit['failures']} times in a row"
        )
    return said


def releases(told: list[JsonObject]) -> Iterator[str]:
    """Return a line for each role."""
    title = "releases"
    for role in sorted({each["role"] for each in told}):
        mine = (f"{each['count']} of {each['release'] or SILENT}" for each in told if each["role"] == role)
        yield f"{title:12} {role}: {', '.join(mine)}"
        title = ""


def lines(told: JsonObject) -> list[str]:
    """Return the report as lines for people."""
    said = list(releases(told.get("releases", [])))
    levels = ", ".join(f"{count} of level {level}" for level, count in told["levels"].items()) or "none"
    said += [f"hosts        {levels}", f"credentials  {told['credentials']}"]
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
