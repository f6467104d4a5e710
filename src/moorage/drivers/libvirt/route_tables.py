"""The kernel's tables of routes and the rules that lead to them, of IPv4 or IPv6: as they are, and what makes them as they should be."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.route_chains import MASK, mark_of
from moorage.drivers.libvirt.routes import FIRST_TABLE, MARKED_PRIORITY, RULE_PRIORITY, TABLES_MAX, FamilyPlan
from moorage.model.errors import HostFailed

KINDS = frozenset({"unreachable", "local"})
"""Of routes; all others lead to a device."""
EVERYWHERE = frozenset({"0.0.0.0/0", "::/0"})
EARLIER_MARK = 0x20000000
"""Earlier releases had a rule for it, which led to the main table."""


class _Rule(msgspec.Struct):
    priority: int = 0
    table: str = ""
    device: str = msgspec.field(default="", name="iif")
    mark: str = msgspec.field(default="", name="fwmark")


@dataclass(frozen=True)
class MadeRules:
    """What of them is ours: of another program's none is taken away."""

    bridges: Mapping[str, int]
    """Bridge → table."""
    tables: frozenset[int]
    earlier_mark: bool = False


def number_of(table: int) -> int:
    """Of the VRF with this table."""
    return table - FIRST_TABLE + 1


def numbered(vrfs: Iterable[str], made: Mapping[str, int], last: int) -> tuple[dict[str, int], int]:
    """VRF → its table, as it was `made` or one that is free, and the one that was taken last: the next after `last`, as connections of a VRF
    that is gone may be known still. Raises HostFailed (`vif_not_plugged`) when there is none."""
    taken, found = {*made.values()}, {}
    for vrf in sorted(vrfs):
        if vrf not in made:
            following = (FIRST_TABLE + (last + each - FIRST_TABLE) % TABLES_MAX for each in range(1, TABLES_MAX + 1))
            table = next((each for each in following if each not in taken), None)
            if table is None:
                raise HostFailed("the host has no table of routes left", private=vrf, code="vif_not_plugged")
            taken.add(table)
            last = table
        found[vrf] = made.get(vrf, last)
    return found, last


async def keep_tables(family: str, plan: FamilyPlan, tables: Mapping[str, int], made: MadeRules) -> None:
    """`family`: `-4` or `-6`. `tables`: VRF → its table. Raises HostFailed (`vif_not_plugged`)."""
    if not plan.tables and not made.bridges and not made.tables and not made.earlier_mark:
        return
    commands: list[str] = []
    every_route = await _every_route(family)
    for vrf, routes in plan.tables.items():
        table = str(tables[vrf])
        commands += [" ".join(("route", "replace", *each, "table", table)) for each in routes]
        kept = {_destination(each) for each in routes}
        commands += [f"route del {each} table {table}" for each in sorted(every_route.get(table, set()) - kept)]
    every = await _rules(family)
    wanted = {bridge: tables[router] for bridge, router in plan.rules.items()}
    commands += _of_bridges(every, wanted, made.bridges)
    used = {tables[vrf] for vrf in plan.tables}
    commands += _of_marks(every, used, made)
    for left in sorted({*made.bridges.values(), *made.tables} - used):
        commands += [f"route del {each} table {left}" for each in sorted(every_route.get(str(left), set()))]
    if commands:
        await run("ip", family, "-batch", "-", given="\n".join(commands) + "\n", code="vif_not_plugged")


def _of_bridges(every: Sequence[_Rule], wanted: Mapping[str, int], made: Mapping[str, int]) -> list[str]:
    """Bridge and table are of whoever routes as we do."""
    existing = {
        (each.device, int(each.table)) for each in every if each.priority == RULE_PRIORITY and each.table.isdigit()
    }
    added = [
        f"rule add iif {bridge} lookup {table} priority {RULE_PRIORITY}"
        for bridge, table in wanted.items()
        if (bridge, table) not in existing
    ]
    return added + [
        f"rule del iif {bridge} lookup {table} priority {RULE_PRIORITY}"
        for bridge, table in sorted(existing)
        if bridge in made and wanted.get(bridge) != table
    ]


def _of_marks(every: Sequence[_Rule], wanted: Iterable[int], made: MadeRules) -> list[str]:
    marked = [each for each in every if each.priority == MARKED_PRIORITY and each.mark]
    existing = {int(each.table) for each in marked if each.table.isdigit()}
    words = "rule {} fwmark {:#x}/{:#x} lookup {} priority {}"
    commands = [
        words.format("add", mark_of(number_of(each)), MASK, each, MARKED_PRIORITY)
        for each in wanted
        if each not in existing
    ]
    commands += [
        words.format("del", mark_of(number_of(each)), MASK, each, MARKED_PRIORITY)
        for each in sorted((existing & made.tables) - {*wanted})
    ]
    if made.earlier_mark and any(int(each.mark, 16) == EARLIER_MARK for each in marked):
        commands.append(words.format("del", EARLIER_MARK, EARLIER_MARK, "main", MARKED_PRIORITY))
    return commands


async def _rules(family: str) -> list[_Rule]:
    output = await run("ip", family, "-json", "rule", "show", code="vif_not_plugged")
    return msgspec.json.decode(output or "[]", type=list[_Rule])


async def routes_of(family: str, table: str, device: str = "") -> set[str]:
    """Destinations in a table, with their kinds."""
    words = ("dev", device) if device else ()
    try:
        output = await run("ip", family, "-json", "route", "show", "table", table, *words, code="vif_not_plugged")
    except HostFailed:  # nobody has a route in there
        return set()
    return {_named(each) for each in msgspec.json.decode(output or "[]")}


async def _every_route(family: str) -> dict[str, set[str]]:
    """Table → destinations: one program for all tables."""
    found: dict[str, set[str]] = {}
    output = await run("ip", family, "-json", "route", "show", "table", "all", code="vif_not_plugged")
    for each in msgspec.json.decode(output or "[]"):
        found.setdefault(str(each.get("table", "main")), set()).add(_named(each))
    return found


def _named(route: Mapping[str, object]) -> str:
    kind = str(route.get("type", ""))
    return f"{kind} {route['dst']}" if kind in KINDS else str(route["dst"])


def _destination(route: Sequence[str]) -> str:
    """As the kernel says it."""
    if route[0] in KINDS:
        return " ".join(route[:2])
    return "default" if route[0] in EVERYWHERE else route[0]
