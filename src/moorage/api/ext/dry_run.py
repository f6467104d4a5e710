"""`/ext/dry-run/servers…`: the body of a real request, answered with what would be done, and nothing is (N12).

The handler is the real one, in the caller's microversion and with its rules: who may not do it may not try it either.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from moorage.api.call import AnyCall, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.routes import Handler, Route
from moorage.model.errors import Internal, TooManyRequests
from moorage.model.json_types import JsonObject
from moorage.model.verdict import FAULT_CHARACTERS_MAX, FAULT_START
from moorage.operations.dry_run.dry_run import ServerPlan
from moorage.operations.explain import describe_decision
from moorage.operations.preview import Previewed

PREFIX = "/ext/dry-run"
ACTIONS = frozenset({"migrate", "resize", "unshelve", "os-migrateLive", "evacuate"})
"""Actions that choose a host."""


def routes(real: Iterable[Route]) -> tuple[Route, ...]:
    """Of a boot, and of each move that there is."""
    chosen = (each for each in real if each.key == "POST /servers" or each.action in ACTIONS)
    return tuple(
        replace(each, path=PREFIX + each.path, handler=_tried(each.handler), alias_of=each.key) for each in chosen
    )


def _tried(real: Handler) -> Handler:
    async def tried(call: AnyCall) -> Response:
        call.require("moorage:dry_run:show")
        whole, beginning = call.allows("moorage:dry_run:details"), service_of(call)
        if not whole:
            _count(call)
        call.preview = True
        try:
            await real(call)
        except Previewed as previewed:
            plans = await beginning.predict(previewed.accepted)
            body = {"dry_run": {"servers": [_described(each, whole=whole) for each in plans]}}
            return Response(200, body, finished=True, fixed_status=True)
        raise Internal("a dry run came to the end of its handler")

    return tried


def _count(call: AnyCall) -> None:
    """Raises TooManyRequests when the caller's project asks too often."""
    if wait_s := call.context.dry_runs.take(call.principal.project or ""):
        raise TooManyRequests(
            f"This project asks for dry runs too often. Ask again in {math.ceil(wait_s)} s.", retry_after_s=wait_s
        )


def _causes(each: ServerPlan) -> list[str]:
    if not each.fault or each.verdict is None or each.chosen_by_servers:
        return []
    return sorted(each.verdict.ledger.counts)


def _fault(each: ServerPlan) -> str:
    """The fault without counts."""
    if not each.fault or each.verdict is None:
        return each.fault
    return (FAULT_START + "; ".join(_causes(each)))[:FAULT_CHARACTERS_MAX].strip()


def _described(each: ServerPlan, *, whole: bool) -> JsonObject:
    """Administrators see hosts and counts. Owners see yes or no, and the causes of a no: a dry run costs nothing, so counts would show
    how full the fleet is, and causes on hosts that their own servers or groups choose how full those are.
    """
    described: JsonObject = {
        "operation": each.operation,
        "server": each.server,
        "name": each.name,
        "would_succeed": not each.fault,
        "fault": (each.fault if whole else _fault(each)) or None,
        "steps": [msgspec.to_builtins(step) for step in each.steps],
    }
    if not whole:
        described["causes"] = _causes(each)
        return described
    if each.verdict is not None:
        described |= describe_decision(each.verdict.ledger, whole=True)
    described["hosts"] = [msgspec.to_builtins(host) for host in each.hosts]
    return described
