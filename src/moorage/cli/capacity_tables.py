"""Formats answers about capacity for people."""

from moorage.cli import cloud
from moorage.model.json_types import JsonObject

UNPLACED_LISTED = 20


def capacity_lines(result: JsonObject, hosts: int) -> list[str]:
    """Return lines that say how many servers fit and what runs out first, and the tables."""
    lines = [f"{result['fits']} more fit" + ("" if result["whole"] else " at least; it was not tried on")]
    if result["order_matters"]:
        lines.append(f"another order of placing may give another number, and none gives more than {result['at_most']}")
    if result["binds"]:
        lines.append("runs out first: " + _binds(result["binds"]))
    lines += [f"  {count} × {cause}" for cause, count in result["refused"].items()]
    for title, name in (("cell", "cells"), ("zone", "zones")):
        if result[name]:
            rows = [
                [each["name"], str(each["hosts"]), str(each["fits"]), _binds(each["binds"])] for each in result[name]
            ]
            lines += ["", cloud.table(rows, [title, "hosts", "fit", "runs out first"])]
    if result["segments"]:
        rows = [
            [
                ", ".join(each["segments"]), f"{each['free']} of {each['total']}", str(each["hosts"]),
                str(each["fits"]), _binds(each["binds"]),
            ]
            for each in result["segments"]
        ]  # fmt: skip
        lines += ["", cloud.table(rows, ["segment", "addresses free", "hosts", "fit", "runs out first"])]
    if result["hosts"] and hosts:
        rows = [
            [each["host"], each["cell"], each["zone"], str(each["fits"]), ", ".join(each["binds"])]
            for each in result["hosts"]
        ]
        lines += ["", cloud.table(rows, ["host", "cell", "zone", "fit", "runs out first"])]
        if result["hosts_left_out"]:
            lines.append(f"and {result['hosts_left_out']} more hosts (--hosts N lists more)")
    return lines


def _binds(binds: dict[str, int]) -> str:
    return ", ".join(f"{name} ({hosts})" for name, hosts in binds.items())


def failover_lines(rows: list[JsonObject]) -> list[str]:
    """Return a row for each failure, followed by the servers without a place."""
    table = [
        [each["kind"], each["name"], str(each["servers"]), str(each["placed"]), "yes" if each["survives"] else "NO"]
        for each in rows
    ]
    lines = [cloud.table(table, ["kind", "what fails", "servers", "find a place", "all of them"])]
    for each in rows:
        if each["survives"]:
            continue
        lines += ["", f"{each['kind']} {each['name']}: without another place"]
        lines += [f"  {count} × {cause}" for cause, count in each["causes"].items()]
        lines += [
            f"    {one['server']} on {one['host']}: {one['why']}" + (" (even alone)" if one["alone"] else "")
            for one in each["unplaced"][:UNPLACED_LISTED]
        ]
        if len(each["unplaced"]) > UNPLACED_LISTED:
            lines.append(f"    and {len(each['unplaced']) - UNPLACED_LISTED} more (--json lists them)")
    return lines
