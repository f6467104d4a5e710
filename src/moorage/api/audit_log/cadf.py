"""Facts of a request as an event of CADF (DMTF DSP0262), in the shape of Keystone's audit middleware and notifications.

The library registers options and takes a third of a second to import: this module is imported where the log is on.
"""

import platform
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from pycadf import cadftaxonomy as words
from pycadf import event, host, reason, resource, tag

from moorage.api.audit_log.request_facts import TYPES, Facts, action_of, path_of, target_of
from moorage.model.json_types import JsonObject

ACCOUNT = words.ACCOUNT_USER
SERVICE = words.SERVICE_SECURITY
HERE = platform.node() or "localhost"
AGENT_CHARS_MAX = 255
OK_BELOW = 400


def outcome_of(facts: Facts) -> str:
    if facts.status is None:
        return str(words.OUTCOME_PENDING)
    return str(words.OUTCOME_SUCCESS if facts.status < OK_BELOW else words.OUTCOME_FAILURE)


def quiet(make: Callable[[Facts], event.Event]) -> Callable[[Facts], event.Event]:
    """The library warns of ids that are no UUIDs: those of services and of unknown callers are names, as in Keystone's middleware."""

    @wraps(make)
    def made(facts: Facts) -> event.Event:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return make(facts)

    return made


@quiet
def of_request(facts: Facts) -> event.Event:
    """`audit.http.request` before there is an answer, `audit.http.response` when there is one."""
    kind, target = target_of(facts)
    made = event.Event(
        action=action_of(facts),
        outcome=outcome_of(facts),
        initiator=_initiator(facts),
        target=resource.Resource(id=target, typeURI=kind, name=facts.service),
        observer=_observer(facts.service),
        reason=_reason(facts),
    )
    return _finished(made, facts)


@quiet
def of_login(facts: Facts) -> event.Event:
    """`identity.authenticate`, as Keystone records it: whose account was proved, or which one was claimed."""
    account = facts.principal.user if facts.principal is not None else str(facts.login.get("id") or words.UNKNOWN)
    made = event.Event(
        action=words.ACTION_AUTHENTICATE,
        outcome=outcome_of(facts),
        initiator=_initiator(facts),
        target=resource.Resource(id=account, typeURI=ACCOUNT),
        observer=_observer(facts.service),
        reason=_reason(facts),
    )
    return _finished(made, facts)


def _observer(service: str) -> Any:
    return resource.Resource(id=f"{service}.{HERE}", typeURI=TYPES.get(service, words.UNKNOWN), name=service)


def _reason(facts: Facts) -> Any:
    return None if facts.status is None else reason.Reason(reasonType="HTTP", reasonCode=str(facts.status))


def _initiator(facts: Facts) -> Any:
    """No part of a token is kept, not even a masked one: `identity_status` says whether it was good."""
    principal, login = facts.principal, facts.login
    made = resource.Resource(
        id=principal.user if principal is not None and principal.user else login.get("id") or words.UNKNOWN,
        typeURI=ACCOUNT,
        name=principal.user_name
        if principal is not None and principal.user_name
        else login.get("name") or words.UNKNOWN,
        host=host.Host(address=facts.address or "unknown", agent=facts.agent[:AGENT_CHARS_MAX] or None),
    )
    more = {
        "domain_id": principal.user_domain if principal is not None else login.get("domain"),
        "project_id": None if principal is None else principal.project,
        "project_domain_id": principal.project_domain if principal is not None and principal.project else None,
        "scope": None if principal is None else _scope(principal),
        "application_credential_id": login.get("application_credential"),
        "methods": login.get("methods"),
        "identity_status": "Confirmed" if principal is not None else "Invalid",
        "request_id": facts.request_id,
        "global_request_id": facts.global_request_id,
    }
    for name, value in more.items():
        if value:
            setattr(made, name, value)
    return made


def _scope(principal: Any) -> str:
    if principal.system:
        return "system"
    if principal.domain is not None:
        return f"domain:{principal.domain}"
    return "project" if principal.project else "unscoped"


def as_dict(made: event.Event) -> JsonObject:
    """As it is written."""
    written: JsonObject = made.as_dict()
    return written


def _finished(made: Any, facts: Facts) -> event.Event:
    made.requestPath = path_of(facts)
    if facts.request_id:
        made.add_tag(tag.generate_name_value_tag("correlation_id", facts.request_id))
    return made
