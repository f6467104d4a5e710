"""2.64: a server group has one policy, and rules for it."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid


def one_policy(body: Json) -> Json:
    """Convert `policies`, a list that must hold exactly one policy. Raises Invalid for any other list."""
    group = body.get("server_group") if isinstance(body, dict) else None
    if not isinstance(group, dict):
        return body
    if "policies" not in group:
        raise Invalid(
            f"Invalid input for field/attribute server_group. Value: {group}. 'policies' is a required property"
        )
    policies = group["policies"]
    if not isinstance(policies, list) or len(policies) != 1:
        few = (
            "is too short"
            if policies == []
            else "is too long"
            if isinstance(policies, list)
            else "is not of type 'array'"
        )
        raise Invalid(f"Invalid input for field/attribute policies. Value: {policies}. {policies} {few}")
    if not isinstance(policies[0], str):
        raise Invalid(
            f"Invalid input for field/attribute 0. Value: {policies[0]}. {policies[0]} is not of type 'string'"
        )
    kept = {name: value for name, value in group.items() if name != "policies"}
    return {**body, "server_group": {**kept, "policy": policies[0]}}


def list_of_policies(body: Json) -> Json:
    for place in ("server_group", "server_groups"):
        for row in rows_at(body, place):
            row["policies"] = [row.pop("policy")]
            row["metadata"] = {}
            del row["rules"]
    return body


CHANGE = VersionChange(
    at=(2, 64),
    summary="`policy` (one) and `rules` replace `policies`; `metadata`, which was always empty, is gone.",
    refuses={"POST /os-server-groups": {"server_group": ("policy", "rules")}},
    request={"POST /os-server-groups": one_policy},
    response={
        "GET /os-server-groups": list_of_policies,
        "GET /os-server-groups/{id}": list_of_policies,
        "POST /os-server-groups": list_of_policies,
    },
)
