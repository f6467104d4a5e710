"""QoS rules live under their policy, and under aliases of their own."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from moorage_embedded.network import crud, qos
from moorage_embedded.network.faults import not_found
from moorage_embedded.network.request import NetworkCall, NetworkRequest, Verb
from moorage_embedded.network.resources import POLICY
from moorage_embedded.network.store import Doc

_RANGE = {"parameter_type": "range", "parameter_values": {"start": 0, "end": 2**31 - 1}}


def _shown(rule: Doc) -> Doc:
    return {name: value for name, value in rule.items() if name not in {"type", "qos_policy_id"}}


def rule_types(call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {"rule_types": [{"type": kind} for kind in qos.RULES]}


def rule_type(call: NetworkCall, ask: NetworkRequest) -> Doc:
    """What the one driver takes in a rule of this kind; for administrators, as in Neutron. Raises NeutronFault: 403, 404."""
    kind = ask.path["type"]
    call.require(call.who.admin, "get_rule_type")
    if kind not in qos.RULES:
        raise not_found("", kind)
    directions = ["egress", "ingress"] + (["any"] if kind == "minimum_packet_rate" else [])
    choices: dict[str, list[Any]] = {"direction": directions, "dscp_mark": list(range(0, 58, 2))}
    parameters = [
        {"parameter_name": name}
        | ({"parameter_type": "choices", "parameter_values": choices[name]} if name in choices else _RANGE)
        for name in qos.RULES[kind]
    ]
    return {"rule_type": {"type": kind, "drivers": [{"name": "openvswitch", "supported_parameters": parameters}]}}


def _policy(call: NetworkCall, ask: NetworkRequest, *, lock: bool = False) -> Doc:
    """The policy that the path names, or the one that has the rule that it names. Raises NeutronFault (404)."""
    if "policy" in ask.path:
        return crud.find(call, POLICY, ask.path["policy"], lock=lock)
    id = ask.path["id"]
    for each in call.store.all_mentioning("policy", id):
        if any(rule["id"] == id for rule in each["rules"]):
            return crud.find(call, POLICY, each["id"], lock=lock)
    raise not_found("", id)


def index(kind: str, call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {f"{kind}_rules": [_shown(each) for each in _policy(call, ask)["rules"] if each["type"] == kind]}


def create(kind: str, call: NetworkCall, ask: NetworkRequest) -> Doc:
    policy = _policy(call, ask, lock=True)
    return {f"{kind}_rule": _shown(qos.add_rule(call, policy, kind, ask.inner(f"{kind}_rule")))}


def show(kind: str, call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {f"{kind}_rule": _shown(qos.find_rule(_policy(call, ask), kind, ask.path["id"]))}


def update(kind: str, call: NetworkCall, ask: NetworkRequest) -> Doc:
    policy, said = _policy(call, ask, lock=True), ask.inner(f"{kind}_rule")
    return {f"{kind}_rule": _shown(qos.change_rule(call, policy, kind, ask.path["id"], said))}


def delete(kind: str, call: NetworkCall, ask: NetworkRequest) -> None:
    qos.remove_rule(call, _policy(call, ask, lock=True), kind, ask.path["id"])


def _of_kind(kind: str) -> dict[str, Mapping[str, Verb]]:
    rules, alias = f"qos/policies/{{policy}}/{kind}_rules", f"qos/alias-{kind.replace('_', '-')}-rules"
    one: dict[str, Verb] = {"GET": partial(show, kind), "PUT": partial(update, kind), "DELETE": partial(delete, kind)}
    return {
        rules: {"GET": partial(index, kind), "POST": partial(create, kind)},
        f"{rules}/{{id}}": one,
        f"{alias}/{{id}}": one,
    }


ROUTES: Mapping[str, Mapping[str, Verb]] = {
    "qos/rule-types": {"GET": rule_types},
    "qos/rule-types/{type}": {"GET": rule_type},
    **{path: verbs for kind in qos.RULES for path, verbs in _of_kind(kind).items()},
}
