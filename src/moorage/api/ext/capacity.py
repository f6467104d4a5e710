"""`/ext/capacity` and `/ext/failovers`: how many more fit, what runs out first, and who has no other place when something fails (N8)."""

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.schema import Body
from moorage.model.errors import Invalid
from moorage.model.json_types import JsonObject
from moorage.operations.capacity.questions import (
    HOSTS_LISTED,
    HOSTS_LISTED_MAX,
    NETWORKS_MAX,
    CapacityQuestion,
    FailoverQuestion,
    WantedNic,
)
from moorage.scheduler.capacity import CapacityAnswer

RULE = "moorage:capacity:show"
UUID = "^[0-9A-Za-z_.-]{1,255}$"


class CapacityBody(Body):
    capacity: CapacityQuestion


class FailoverBody(Body):
    failover: FailoverQuestion


async def show(call: AnyCall) -> Response:
    """Answer how many servers of a flavor on these networks fit, as the query asks.

    Raises Invalid without a flavor, and for too many networks or hosts.
    """
    call.require(RULE)
    flavor = call.first("flavor")
    if not flavor:
        raise Invalid("Say which flavor, as in ?flavor=m1.small-id&network=NETWORK-ID.")
    networks = call.query.get("network", [])
    if len(networks) > NETWORKS_MAX:
        raise Invalid(f"At most {NETWORKS_MAX} networks may be named.")
    hosts = int(call.first("hosts") or HOSTS_LISTED)
    if hosts > HOSTS_LISTED_MAX:
        raise Invalid(f"At most {HOSTS_LISTED_MAX} hosts are listed.")
    question = CapacityQuestion(
        flavor=flavor,
        networks=tuple(WantedNic(each) for each in networks),
        group=call.first("group"),
        availability_zone=call.first("availability_zone"),
        hosts=hosts,
    )
    return await _answered(call, question)


async def ask(call: Call[CapacityBody]) -> Response:
    """The same, with guarantees, and with parts taken away or added."""
    call.require(RULE)
    return await _answered(call, call.body.capacity)


async def _answered(call: AnyCall, question: CapacityQuestion) -> Response:
    answer = await service_of(call).capacity(call.principal, question)
    return Response(200, {"capacity": _as_json(answer, question.hosts)}, finished=True)


def _as_json(answer: CapacityAnswer, hosts: int) -> JsonObject:
    result: JsonObject = msgspec.to_builtins(answer)
    rows = sorted(result["hosts"], key=lambda each: (-each["fits"], each["host"]))
    return result | {"hosts": rows[:hosts], "hosts_left_out": max(0, len(rows) - hosts)}


async def snapshot(call: AnyCall) -> Response:
    """Return the world with its servers, for a file that `moorage capacity --world` reads."""
    call.require(RULE)
    return Response(200, msgspec.json.encode(await service_of(call).capacity_snapshot()), finished=True)


async def failover(call: Call[FailoverBody]) -> Response:
    """Return for each possible failure whether every server finds another place."""
    call.require(RULE)
    failovers = await service_of(call).failover(call.body.failover)
    rows = [msgspec.to_builtins(each) | {"survives": each.survives} for each in failovers]
    return Response(200, {"failovers": rows}, finished=True)


NAME = Param(form="^.{1,255}$", many=False)
QUERY = Params(
    {
        "flavor": NAME,
        "network": Param(form=UUID),
        "group": NAME,
        "availability_zone": NAME,
        "hosts": Param(form=NUMBER, many=False),
    },
    strict=(2, 1),
)
NONE = Params({}, strict=(2, 1))

ROUTES = (
    Route("GET", "/ext/capacity", show, params=QUERY),
    Route("POST", "/ext/capacity", ask, takes=CapacityBody, params=NONE),
    Route("GET", "/ext/capacity/snapshot", snapshot, params=NONE),
    Route("POST", "/ext/failovers", failover, takes=FailoverBody, params=NONE),
)
