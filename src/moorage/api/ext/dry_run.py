"""`/ext/dry-run/servers…`: the body of a real request, answered with what would be done, and nothing is (N12).

The handler is the real one, in the caller's microversion and with its rules: who may not do it may not try it either.
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from moorage.api.call import AnyCall, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.routes import Handler, Route
from moorage.model.errors import Internal
from moorage.model.json_types import JsonObject
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
        call.preview = True
        try:
            await real(call)
        except Previewed as previewed:
            plans = await beginning.predict(previewed.accepted)
            body = {"dry_run": {"servers": [_described(each, whole=whole) for each in plans]}}
            return Response(200, body, finished=True, fixed_status=True)
        raise Internal("a dry run came to the end of its handler")

    return tried


def _described(each: ServerPlan, *, whole: bool) -> JsonObject:
    """Owners see causes and counts, as in `explain`; administrators also see hosts."""
    described: JsonObject = {
        "operation": each.operation,
        "server": each.server,
        "name": each.name,
        "would_succeed": not each.fault,
        "fault": each.fault or None,
        "steps": [msgspec.to_builtins(step) for step in each.steps],
    }
    if each.verdict is not None:
        described |= describe_decision(each.verdict.ledger, whole=whole)
    if whole:
        described["hosts"] = [msgspec.to_builtins(host) for host in each.hosts]
    return described
