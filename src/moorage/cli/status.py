"""`moorage status`: shows which behaviour is on while a fleet is upgraded, and which hosts block further behaviour."""

import json
from collections.abc import Iterator

from moorage.cli import cloud
from moorage.model.json_types import JsonObject

BLOCKERS_SAID_MAX = 10
FINE, WARNED = 0, 1
NO_DEBTS: JsonObject = {"debts": [], "hosts": [], "count": 0, "oldest_age_s": 0}
"""What an earlier release says."""
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
    gates = cloud.get(connection, "/ext/gates")["gates"]
    left_alone = cloud.get(connection, "/ext/neighbours")["left_alone"]
    stores = cloud.get_or(connection, "/ext/databases", {"databases": []})["databases"]
    troubled = cloud.get_or(connection, "/ext/hosts", {"hosts": []})["hosts"]
    owed = cloud.get_or(connection, "/ext/debts", NO_DEBTS)
    ended = [each for each in cloud.get_or(connection, "/ext/audits", {"audits": []})["audits"] if each["ended_at"]]
    warned = [*without_bus(gates), *databases(stores), *hosts(troubled), *debts(owed), *audited(ended[:1])]
    if arguments.json:
        print(
            json.dumps(
                {**gates, "left_alone": left_alone, "databases": stores, "hosts": troubled, "debts": owed}, indent=2
            )
        )
    else:
        print("\n".join([*lines(gates), *out(left_alone), *warned]))
    return WARNED if gates["warnings"] or left_alone or warned else FINE


def without_bus(gates: JsonObject) -> list[str]:
    """Return a line for each conductor that does not reach the message bus."""
    cut_off = gates.get("without_bus", [])
    warnings = [
        f"WARNING: conductor {each['conductor']} on {each['host']} does not reach the message bus: "
        f"{'its operations wait' if each['has_lease'] else 'its operations go on at other conductors'}"
        for each in cut_off
    ]
    return ["", *warnings] if warnings else []


def debts(owed: JsonObject) -> list[str]:
    """Return a line for all that hosts owe, and one for each host with its oldest debt."""
    if not owed["count"]:
        return []
    first = owed["hosts"][:BLOCKERS_SAID_MAX]
    warnings = [
        f"WARNING: hosts owe {owed['count']} things to servers, the oldest for {owed['oldest_age_s']} s; they do them when they "
        "are home, and what they concern goes to no other server before"
    ]
    warnings += [f"  {each['host']} owes {each['debts']}, the oldest for {each['oldest_age_s']} s" for each in first]
    if len(owed["hosts"]) > len(first):
        warnings.append(f"  and {len(owed['hosts']) - len(first)} more hosts")
    return ["", *warnings]


def databases(stores: list[JsonObject]) -> list[str]:
    """Return a line for each cell whose database does not answer, or lacks servers that the region has in it."""
    warnings = []
    for each in stores:
        if not each["answers"]:
            warnings.append(f"WARNING: {each['cell']} is out: {each['why']}")
        elif each["missing"]:
            missing = ", ".join(each["missing_servers"][:BLOCKERS_SAID_MAX])
            more = " ..." if each["missing"] > BLOCKERS_SAID_MAX else ""
            warnings.append(
                f"WARNING: {each['missing']} servers are missing in the database of {each['cell']}; their guests, ports and claims "
                f"stay: {missing}{more}"
            )
        if each.get("doubtful"):
            doubtful = ", ".join(one["server"] for one in each["doubtful_servers"][:BLOCKERS_SAID_MAX])
            more = " ..." if each["doubtful"] > BLOCKERS_SAID_MAX else ""
            warnings.append(
                f"WARNING: {each['doubtful']} servers of {each['cell']} are doubtful, because a database went back; nothing is done to "
                f"them (`moorage audit --kind server_doubtful`): {doubtful}{more}"
            )
    return ["", *warnings] if warnings else []


def audited(last: list[JsonObject]) -> list[str]:
    """Return lines about findings of the last audit that were not repaired."""
    warnings = []
    for each in last:
        left = each["found"] - (0 if each["asked"]["dry_run"] else sum(each["repaired"].values()))
        if each["status"] != "done":
            warnings.append(f"WARNING: the last audit, at {each['ended_at']}, could not look: {each['why']}")
        elif left:
            warnings.append(
                f"WARNING: the last audit, at {each['ended_at']}, found {left} that are not repaired: `moorage audit --last`"
            )
    return ["", *warnings] if warnings else []


def hosts(troubled: list[JsonObject]) -> list[str]:
    """Return a line for each problem of a host that a person should look at."""
    warnings = []
    for each in troubled:
        where = f"WARNING: host {each['host']} in {each['cell']}"
        if each["refused_agent"]:
            warnings.append(
                f"{where}: another agent spoke for it and was refused, last at {each['refused_at']}: two machines have one name"
            )
        if each["set_aside"]:
            warnings.append(
                f"{where} put records of guests aside that it cannot read: {_first_names(each['set_aside'])}"
            )
        if each["missing_guests"]:
            warnings.append(
                f"{where} has guests whose records its cell has lost: {_first_names(each['missing_guests'])}"
            )
        if each["unknown_guests"]:
            warnings.append(
                f"{where} has guests that no database knows; they are left alone: {_first_names(each['unknown_guests'])}"
            )
        warnings += [f"{where} does not wire a port as it should: {what}" for what in each.get("not_wired", ())]
        if (more := each["left_alone"] - len(each["missing_guests"]) - len(each["unknown_guests"])) > 0:
            warnings.append(f"{where} has {more} more guests that are left alone")
    return ["", *warnings] if warnings else []


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:BLOCKERS_SAID_MAX]) + (" ..." if len(names) > BLOCKERS_SAID_MAX else "")


def out(left_alone: list[JsonObject]) -> list[str]:
    """Return a line for each service that is not called at present."""
    warnings = [""] if left_alone else []
    for each in left_alone:
        circuit = each["circuit"]
        calls = f" ({circuit['calls']})" if circuit["calls"] else ""
        warnings.append(
            f"WARNING: the {circuit['neighbour']} service{calls} is left alone by {each['process']}: {circuit['why']}, "
            f"{circuit['failures']} times in a row"
        )
    return warnings


def releases(rows: list[JsonObject]) -> Iterator[str]:
    """Return a line for each role."""
    title = "releases"
    for role in sorted({each["role"] for each in rows}):
        mine = (f"{each['count']} of {each['release'] or SILENT}" for each in rows if each["role"] == role)
        yield f"{title:12} {role}: {', '.join(mine)}"
        title = ""


def lines(gates: JsonObject) -> list[str]:
    """Return the report as lines for people."""
    printed = list(releases(gates.get("releases", [])))
    levels = ", ".join(f"{count} of level {level}" for level, count in gates["levels"].items()) or "none"
    printed += [f"hosts        {levels}", f"credentials  {gates['credentials']}"]
    printed += [
        f"             {each['conductor']}: {each['state']} {each['why']}".rstrip() for each in gates["conductors"]
    ]
    printed.append(f"pin          {gates['pin'] or 'none'}")
    for gate in gates["gates"]:
        printed += ["", f"{gate['name']}: {'open' if gate['open'] else 'shut'}", f"  {gate['behaviour']}"]
        printed += [f"  because {reason}" for reason in gate["reasons"]]
        old = gate["blocked_by"][:BLOCKERS_SAID_MAX]
        printed += [f"    {host['host']} in {host['cell']}: level {host['level']}" for host in old]
        if gate["hosts_blocking"] > len(old):
            printed.append(f"    and {gate['hosts_blocking'] - len(old)} more")
    printed += ["", *(f"WARNING: {each}" for each in gates["warnings"])] if gates["warnings"] else []
    return printed
