"""`/ext/audits`: what an audit found and repaired; the conductor that leads runs those that are asked for (N4)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Uuid
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import micros, now_us
from moorage.model.audit import FINDINGS_KEPT_MAX, KINDS, SERVERS_ASKED_MAX, Audit, AuditRequest, Repair
from moorage.model.errors import Invalid, NotFound
from moorage.model.ids import new_uuid
from moorage.model.json_types import JsonObject
from moorage.store.region import audits

LISTED_MAX = 100


class NewAudit(Body):
    kinds: Annotated[tuple[str, ...], Meta(max_length=1_000)] = ()
    servers: Annotated[tuple[Uuid, ...], Meta(max_length=SERVERS_ASKED_MAX)] = ()
    repair: bool = False
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=0, le=FINDINGS_KEPT_MAX)] = FINDINGS_KEPT_MAX


class CreateAuditBody(Body):
    audit: NewAudit


async def create(call: Call[CreateAuditBody]) -> Response:
    """Ask for an audit; a conductor runs it. Answers 202 and the audit's id.

    Raises Invalid for an unknown kind of findings.
    """
    call.require("moorage:audits:create")
    wanted = call.body.audit
    if wanted.repair:
        call.require("moorage:audits:repair")
    for each in wanted.kinds:
        if each not in KINDS:
            raise Invalid(f"'{each}' is not a kind of findings; GET /ext/audits/kinds lists them")
    id, now = new_uuid(), now_us(call.context.clock)
    request = AuditRequest(wanted.kinds, wanted.servers, wanted.repair, wanted.dry_run, wanted.limit)
    await call.context.region.write(lambda tx: audits.ask(tx, id, call.principal.user, request, now))
    return Response(202, {"audit": {"id": id, "status": "waiting"}}, finished=True)


async def index(call: AnyCall) -> Response:
    """The newest, without what they found."""
    call.require("moorage:audits:show")
    limit, _ = call.page()
    rows = await call.context.region.read(lambda tx: audits.listed(tx, min(limit, LISTED_MAX)))
    return Response(200, {"audits": [_row(each) for each in rows]}, finished=True)


async def show(call: AnyCall) -> Response:
    """Show one audit. Raises NotFound."""
    call.require("moorage:audits:show")
    wanted = call.path["id"]
    audit = await call.context.region.read(lambda tx: audits.get(tx, wanted))
    if audit is None:
        raise NotFound(f"Audit {wanted} could not be found.")
    repairs = await call.context.region.read(lambda tx: audits.repairs_of(tx, wanted))
    row = _row(audit)
    row["findings"] = msgspec.to_builtins(audit.report.findings)
    row["repairs"] = [_repair(each) for each in repairs]
    return Response(200, {"audit": row}, finished=True)


async def kinds(call: AnyCall) -> Response:
    call.require("moorage:audits:show")
    rows = [
        {"kind": kind, "says": known.description, "repairable": known.repairable, "repair": known.repair}
        for kind, known in KINDS.items()
    ]
    return Response(200, {"kinds": rows}, finished=True)


def _row(audit: Audit) -> JsonObject:
    report = audit.report
    return {
        "id": audit.id,
        "status": audit.status.value,
        "asked_by": audit.asked_by,
        "asked_at": micros(audit.asked_at),
        "began_at": micros(audit.began_at),
        "ended_at": micros(audit.ended_at),
        "why": audit.why,
        "asked": msgspec.to_builtins(audit.asked),
        "found": report.found,
        "counts": report.counts,
        "looked_at": report.looked_at,
        "not_looked_at": report.not_looked_at,
        "repaired": report.repaired,
        "left": report.left,
    }


def _repair(line: Repair) -> JsonObject:
    fields: JsonObject = msgspec.to_builtins(line)
    return {**fields, "at": micros(line.at)}


ROUTES = (
    Route("POST", "/ext/audits", create, takes=CreateAuditBody, params=Params({}, strict=(2, 1))),
    Route("GET", "/ext/audits", index, params=Params({"limit": Param(form=NUMBER)}, strict=(2, 1))),
    Route("GET", "/ext/audits/kinds", kinds, params=Params({}, strict=(2, 1))),
    Route("GET", "/ext/audits/{id}", show, params=Params({}, strict=(2, 1))),
)
