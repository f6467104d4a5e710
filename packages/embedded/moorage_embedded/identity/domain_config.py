"""`/v3/domains/{id}/config`: options that a domain has of its own.  Kept, sealed where they are secrets, and shown; nothing here acts on them."""

import json
from typing import Any, cast

from starlette.responses import Response

from moorage.model.errors import Invalid, NotFound
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import store
from moorage_embedded.identity.bootstrap import DEFAULT_DOMAIN
from moorage_embedded.identity.domain_options import (
    COMPLIANCE,
    SECURITY_COMPLIANCE,
    SENSITIVE,
    SHOWN,
    invalid,
    need_known,
)
from moorage_embedded.identity.request import IdentityCall, Routes
from moorage_embedded.identity.resources import need_domain
from moorage_embedded.identity.store import Record

VALUE_CHARS_MAX = 16_384
"""Of one option, as JSON."""
TABLE = "domain_options"


def _where(call: IdentityCall) -> tuple[str | None, str | None]:
    """The group and option of the path, if it names them."""
    params = call.request.path_params
    return params.get("group"), params.get("option")


def _key(domain: str, group: str | None, option: str | None) -> Record:
    named = {"domain_id": domain, "option_group": group, "option": option}
    return {name: value for name, value in named.items() if value is not None}


def _missing(domain: str, group: str | None, option: str | None) -> NotFound:
    what = f"option {option} in group {group}" if option else f"group {group}" if group else "any options"
    return NotFound(f"Could not find {what} in domain configuration for domain {domain[:64]}.")


def _sensitive(row: Record) -> bool:
    return row["option"] in SENSITIVE[row["option_group"]]


def _config(rows: list[Record]) -> Record:
    """Group → option → value, without what is never shown."""
    found: Record = {}
    for row in rows:
        if not _sensitive(row):
            found.setdefault(row["option_group"], {})[row["option"]] = json.loads(row["value"])
    return found


def _rows(call: IdentityCall, domain: str, config: Any) -> list[Record]:
    """The rows of a body. Raises Forbidden for options that no domain may have, Invalid for what is no configuration."""
    if not config:
        raise invalid("No options specified")
    if not isinstance(config, dict):
        raise Invalid("Invalid input for field 'config': it must be an object.")
    rows: list[Record] = []
    for group, options in cast("Record", config).items():
        if not options or not isinstance(options, dict):
            raise invalid(f"The value of group {group[:255]} specified in the config should be a dictionary of options")
        for option, value in cast("Record", options).items():
            need_known(group, option)
            said = json.dumps(value)
            if len(said) > VALUE_CHARS_MAX:
                raise Invalid(f"Invalid input for field '{option}': it has at most {VALUE_CHARS_MAX} characters.")
            rows.append({**_key(domain, group, option), "value": said})
    for row in rows:
        if _sensitive(row):
            row["value"] = call.context.seal.hide(row["value"])
    return rows


async def show(call: IdentityCall) -> Response:
    group, option = _where(call)
    if group == SECURITY_COMPLIANCE:
        return json_response({"config": _compliance(call.path("id"), option)})
    call.require(call.may_read())
    need_known(group, option)
    domain = call.path("id")
    found = _config(await call.context.read(lambda tx: store.find(tx, TABLE, _key(domain, group, option))))
    if not found:
        raise _missing(domain, group, option)
    return json_response({"config": found if group is None or option is None else found[group]})


def _compliance(domain: str, option: str | None) -> Record:
    """For everybody with a token, so that a form can say what a password must be like."""
    if domain != DEFAULT_DOMAIN:
        raise invalid(
            "Reading security compliance information for any domain other than the default domain is not allowed or supported."
        )
    if option is None:
        return {SECURITY_COMPLIANCE: dict(COMPLIANCE)}
    if option not in COMPLIANCE:
        raise invalid(
            "Reading security compliance values other than password_regex and password_regex_description is not allowed."
        )
    return {option: COMPLIANCE[option]}


async def replace(call: IdentityCall) -> Response:
    call.require(call.has("admin"))
    domain, config = call.path("id"), (await call.document()).get("config")

    def work(tx: Tx) -> tuple[bool, list[Record]]:
        need_domain(tx, {"domain_id": domain})
        rows = _rows(call, domain, config)
        there = bool(store.find(tx, TABLE, {"domain_id": domain}))
        store.unlink(tx, TABLE, {"domain_id": domain})
        for row in rows:
            store.link(tx, TABLE, row)
        return there, rows

    there, rows = await call.context.write(work)
    return json_response({"config": _config(rows)}, 200 if there else 201)


def _need_just_that(group: str, option: str | None, config: Record) -> None:
    """A call that names a group or option changes that and nothing else."""
    if option is not None:
        other = next(iter(config[group]))
        if len(config[group]) != 1:
            raise invalid(
                f"Trying to update option {option} in group {group}, so that, and only that, option must be specified"
                "  in the config"
            )
        if other != option:
            raise invalid(
                f"Trying to update option {option} in group {group}, but config provided contains option {other} instead"
            )
    elif len(config) != 1:
        raise invalid(f"Trying to update group {group}, so that, and only that, group must be specified in the config")
    elif group not in config:
        other = next(iter(config))
        raise invalid(f"request to update group {group}, but config provided contains group {other} instead")


async def update(call: IdentityCall) -> Response:
    """What is said is added or replaced; all of the domain's is answered."""
    call.require(call.has("admin"))
    (group, option), domain = _where(call), call.path("id")
    config = (await call.document()).get("config")
    if option is not None:
        config = {group: config}

    def work(tx: Tx) -> list[Record]:
        need_domain(tx, {"domain_id": domain})
        rows = _rows(call, domain, config)
        need_known(group, option)
        if group is not None:
            _need_just_that(group, option, cast("Record", config))
            if not store.find(tx, TABLE, _key(domain, group, option)):
                raise _missing(domain, group, option)
        for row in rows:
            store.unlink(tx, TABLE, _key(domain, row["option_group"], row["option"]))
            store.link(tx, TABLE, row)
        return store.find(tx, TABLE, {"domain_id": domain})

    return json_response({"config": _config(await call.context.write(work))})


async def delete(call: IdentityCall) -> Response:
    call.require(call.has("admin"))
    (group, option), domain = _where(call), call.path("id")

    def work(tx: Tx) -> None:
        need_domain(tx, {"domain_id": domain})
        need_known(group, option)
        if group is not None and not store.find(tx, TABLE, _key(domain, group, None)):
            raise _missing(domain, group, None)
        if option is not None and not store.find(tx, TABLE, _key(domain, group, option)):
            raise _missing(domain, group, option)
        store.unlink(tx, TABLE, _key(domain, group, option))

    await call.context.write(work)
    return empty_response()


async def default(call: IdentityCall) -> Response:
    """What an option is where a domain says nothing."""
    call.require(call.may_read())
    group, option = _where(call)
    need_known(group, option)
    if group is None:
        return json_response({"config": dict(SHOWN)})
    if option is None:
        return json_response({"config": {group: SHOWN[group]}})
    if option not in SHOWN[group]:
        raise invalid(f"Reading the default for option {option} in group {group} is not supported")
    return json_response({"config": {option: SHOWN[group][option]}})


ROUTES: Routes = {
    **{f"domains/config{part}/default": {"GET": default} for part in ("", "/{group}", "/{group}/{option}")},
    "domains/{id}/config": {"PUT": replace, "GET": show, "PATCH": update, "DELETE": delete},
    "domains/{id}/config/{group}": {"GET": show, "PATCH": update, "DELETE": delete},
    "domains/{id}/config/{group}/{option}": {"GET": show, "PATCH": update, "DELETE": delete},
}
