"""`moorage explain SERVER`: explains why a server is on its host, or on none."""

import json
from urllib.parse import urlencode

from moorage.cli import cloud
from moorage.model.json_types import JsonObject


def main(argv: list[str]) -> int:
    parser = cloud.options(
        "explain", "Explain why a server is on its host, or on none: every rejected host and failed attempt."
    )
    parser.add_argument("server", help="name or id")
    parser.add_argument("--host", help="say why this host was rejected")
    parser.add_argument("--json", action="store_true", help="print what the API answered")
    arguments = parser.parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    existing = connection.compute.find_server(arguments.server, ignore_missing=True)
    server = arguments.server if existing is None else existing.id
    answer = cloud.get(connection, f"/ext/servers/{server}/explain{_query(arguments.host)}")["explain"]
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join(_describe(answer)))
    return 0


def _query(host: str | None) -> str:
    return "" if host is None else "?" + urlencode({"host": host})


def _describe(answer: JsonObject) -> list[str]:
    lines = [answer["summary"] or "no boot of this server is remembered"]
    if waits := answer.get("waits"):
        lines.append(
            f"waits for {', '.join(waits['causes'])} since {waits['since']}, until {waits['until']} at the latest"
        )
        lines += [f"  {count} × {cause}" for cause, count in waits["refused"].items()]
        if waits["woken_in_vain"]:
            lines.append(f"  woken {waits['woken_in_vain']} times in a row without finding a host")
    for operation in answer["operations"]:
        if operation["attempts"] or operation["fault"] or operation.get("ended") or operation["waiting"]:
            lines += ["", f"{operation['name']} {operation['id']}: {operation['status']}"]
            if operation["waiting"]:
                lines.append(f"  waiting: {operation['waiting']}")
            for attempt in operation["attempts"]:
                lines += _attempt(attempt)
            if operation.get("ended"):
                lines += _ending(operation["ended"])
    return lines


def _attempt(attempt: JsonObject) -> list[str]:
    where = f" on {attempt['host']} ({attempt['cell']})" if "host" in attempt else ""
    lines = [f"  attempt {attempt['attempt']}{where}"]
    if "considered" in attempt:
        lines.append(f"    {attempt['willing']} of {attempt['considered']} hosts would do")
        lines += _decision(attempt)
        lines += _refused(attempt)
        lines += [_weights(host, weights) for host, weights in attempt.get("weights", {}).items() if weights]
    lines += [f"    {_provider(each)}" for each in attempt.get("providers", ())]
    lines += [f"    {_readdressed(each)}" for each in attempt.get("readdressed", ())]
    if "failed" in attempt:
        lines.append(f"    failed at {attempt['failed']['step']}: {attempt['failed']['message']}")
        if attempt["failed"].get("details"):
            lines.append(f"      {attempt['failed']['details'].splitlines()[-1]}")
    return lines


def _weights(host: str, weights: dict[str, float]) -> str:
    return f"    {host} weighs " + ", ".join(f"{name} {points:g}" for name, points in weights.items())


def _decision(ledger: JsonObject) -> list[str]:
    """By what it is replayed."""
    return [f"    decision {ledger['decision']}"] if ledger.get("decision") else []


def _provider(given: JsonObject) -> str:
    amounts = ", ".join(f"{amount} {name}" for name, amount in given["resources"].items()) or "its traits"
    requester = f"port {given['port']}" if given["port"] else f"flavor group {given['group']}"
    return f"{requester}: {amounts} of {given['name'] or given['provider']}"


def _readdressed(change: JsonObject) -> str:
    old, new = (", ".join(change[key]) or "none" for key in ("old", "new"))
    across = f", segment {change['old_segment']} → {change['new_segment']}" if change.get("new_segment") else ""
    return f"port {change['port']}: {old} → {new}{across}"


def _refused(ledger: JsonObject) -> list[str]:
    lines = [f"    {count} × {cause}" for cause, count in ledger.get("refused", {}).items()]
    misses = ledger.get("refused_hosts", [])
    lines += [f"      {miss['host']}: {'; '.join([miss['reason'], *miss.get('also', ())])}" for miss in misses]
    if about := ledger.get("asked_about"):
        lines.append(f"    {about['host']}: {about['reason'] or 'not remembered, or the hosts are others by now'}")
    return lines


def _ending(ended: JsonObject) -> list[str]:
    lines = [f"  ended ({ended['reason']}) at {ended['step']}: {ended['message']}", *_refused(ended), *_decision(ended)]
    return lines + ([f"    {ended['details'].splitlines()[0]}"] if ended.get("details") else [])
