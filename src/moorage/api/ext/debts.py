"""`/ext/debts`: what hosts owe to servers (RULES §25), the hosts with the oldest debts first."""

import time

from moorage.api.call import AnyCall, Response
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.timestamps import seconds
from moorage.model.debt import Debt
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.sql import Tx
from moorage.store.region import debts
from moorage.store.region.debts import DebtCount

LISTING = Params({"limit": Param(form=NUMBER), "marker": Param(), "host": Param()}, strict=(2, 1))
US = 1_000_000
SEPARATOR = "/"
"""Between the parts of a marker: server, kind, thing."""


def marker_of(debt: Debt) -> str:
    """The marker of a row: behind it begins the next page."""
    return SEPARATOR.join((debt.server, debt.kind.value, debt.thing))


def described(debt: Debt) -> JsonObject:
    """One row."""
    return {
        "server": debt.server,
        "host": debt.host,
        "cell": debt.cell,
        "kind": debt.kind.value,
        "thing": debt.thing,
        "operation": debt.operation,
        "turn": [debt.turn.operation_seq, debt.turn.attempt, debt.turn.phase],
        "reason": debt.reason,
        "since": seconds(debt.since),
        "tries": debt.tries,
        "problem": debt.problem,
        "marker": marker_of(debt),
    }


def _count(of: DebtCount, now_us: int) -> JsonObject:
    age_s = (now_us - of.oldest_at) // US if of.debts else 0
    return {"host": of.host, "debts": of.debts, "oldest_since": seconds(of.oldest_at), "oldest_age_s": max(0, age_s)}


async def index(call: AnyCall) -> Response:
    """Raises Invalid for a marker that is none."""
    call.require("moorage:debts:list")
    limit, marker = call.page()
    after = ("", "", "")
    if marker:
        parts = marker.split(SEPARATOR, 2)
        if len(parts) != len(after):
            raise Invalid(f"'{marker[:100]}' is no marker of a debt.")
        after = (parts[0], parts[1], parts[2])
    host = call.first("host") or None

    def read(tx: Tx) -> tuple[list[Debt], list[DebtCount], DebtCount]:
        rows = debts.page(tx, after=after, host=host, limit=limit)
        return list(rows), list(debts.by_host(tx)), debts.counted(tx)

    rows, hosts, every = await call.context.region.read(read)
    now_us = time.time_ns() // 1000
    total = _count(every, now_us)
    shown = {
        "debts": [described(each) for each in rows],
        "hosts": [_count(each, now_us) for each in hosts],
        "count": total["debts"],
        "oldest_age_s": total["oldest_age_s"],
    }
    return Response(200, shown, finished=True)


ROUTES = (Route("GET", "/ext/debts", index, params=LISTING),)
