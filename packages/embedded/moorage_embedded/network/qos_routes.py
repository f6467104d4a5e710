"""QoS rules live under their policy, and under aliases of their own."""

from collections.abc import Callable
from typing import Any

from moorage_embedded.network import crud, listing, qos
from moorage_embedded.network.faults import bad, forbidden, not_found
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.resources import POLICY
from moorage_embedded.network.store import Doc

_KINDS = {f"{kind}_rules": kind for kind in qos.RULES}
_ALIASES = {f"alias-{kind.replace('_', '-')}-rules": kind for kind in qos.RULES}
Found = tuple[Callable[[NetworkCall, Any], Any], bool, int]


def _rule_body(ask: Any, kind: str) -> Any:
    name = f"{kind}_rule"
    if name not in ask.body:
        raise bad(f"Unable to find '{name}' in request body")
    return ask.body[name]


def _shown(rule: Doc) -> Doc:
    return {name: value for name, value in rule.items() if name not in {"type", "qos_policy_id"}}


def find(method: str, parts: tuple[str, ...]) -> Found | None:
    if len(parts) >= 4 and parts[1] == "policies" and parts[3] in _KINDS:
        return _under_policy(method, len(parts), _KINDS[parts[3]])
    if len(parts) == 3 and parts[1] in _ALIASES:
        return _alias(method, _ALIASES[parts[1]])
    if method == "GET" and parts[1:] == ("rule-types",):
        return (lambda call, ask: {"rule_types": [{"type": kind} for kind in qos.RULES]}), False, 200
    if method == "GET" and len(parts) == 3 and parts[1] == "rule-types":
        return (lambda call, ask: {"rule_type": _details(call, ask.parts[2])}), False, 200
    return None


_RANGE = {"parameter_type": "range", "parameter_values": {"start": 0, "end": 2**31 - 1}}


def _details(call: NetworkCall, kind: str) -> Doc:
    """What the one driver takes in a rule of this kind; for administrators, as in Neutron."""
    if not call.who.admin:
        raise forbidden("get_rule_type")
    if kind not in qos.RULES:
        raise not_found("", kind)
    directions = ["egress", "ingress"] + (["any"] if kind == "minimum_packet_rate" else [])
    choices: dict[str, list[Any]] = {"direction": directions, "dscp_mark": list(range(0, 58, 2))}
    parameters = [
        {"parameter_name": name}
        | ({"parameter_type": "choices", "parameter_values": choices[name]} if name in choices else _RANGE)
        for name in qos.RULES[kind]
    ]
    return {"type": kind, "drivers": [{"name": "openvswitch", "supported_parameters": parameters}]}


def _under_policy(method: str, length: int, kind: str) -> Found | None:
    name = f"{kind}_rule"

    def policy(call: NetworkCall, ask: Any, *, lock: bool = False) -> Doc:
        return crud.find(call, POLICY, ask.parts[2], lock=lock)

    def listed(call: NetworkCall, ask: Any) -> Doc:
        rules = [_shown(each) for each in policy(call, ask)["rules"] if each["type"] == kind]
        return {f"{name}s": [listing.only(each, ()) for each in rules]}

    table: dict[tuple[str, int], Found] = {
        ("GET", 4): (listed, False, 200),
        ("POST", 4): (
            lambda call, ask: {name: _shown(qos.add_rule(call, policy(call, ask, lock=True), kind, _rule_body(ask, kind)))},
            True, 201,
        ),
        ("GET", 5): (
            lambda call, ask: {name: _shown(qos.find_rule(policy(call, ask), kind, ask.parts[4]))}, False, 200,
        ),
        ("PUT", 5): (
            lambda call, ask: {
                name: _shown(qos.change_rule(call, policy(call, ask, lock=True), kind, ask.parts[4], _rule_body(ask, kind)))
            },
            True, 200,
        ),
        ("DELETE", 5): (
            lambda call, ask: qos.remove_rule(call, policy(call, ask, lock=True), kind, ask.parts[4]), True, 204,
        ),
    }  # fmt: skip
    return table.get((method, length))


def _alias(method: str, kind: str) -> Found | None:
    name = f"{kind}_rule"

    def policy(call: NetworkCall, id: str, *, lock: bool = False) -> Doc:
        for each in call.store.all_mentioning("policy", id):
            if any(rule["id"] == id for rule in each["rules"]):
                return crud.find(call, POLICY, each["id"], lock=lock)
        raise not_found("", id)

    table: dict[str, Found] = {
        "GET": (
            lambda call, ask: {name: _shown(qos.find_rule(policy(call, ask.parts[2]), kind, ask.parts[2]))}, False, 200,
        ),
        "PUT": (
            lambda call, ask: {
                name: _shown(
                    qos.change_rule(call, policy(call, ask.parts[2], lock=True), kind, ask.parts[2], _rule_body(ask, kind))
                )
            },
            True, 200,
        ),
        "DELETE": (
            lambda call, ask: qos.remove_rule(call, policy(call, ask.parts[2], lock=True), kind, ask.parts[2]), True, 204,
        ),
    }  # fmt: skip
    return table.get(method)
