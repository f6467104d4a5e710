"""2.15: server groups may be soft."""

from moorage.api.microversions import Json, VersionChange
from moorage.model.errors import Invalid


def no_soft_policies(body: Json) -> None:
    """Refuse the soft policies, which older versions do not know. Raises Invalid."""
    group = body.get("server_group") if isinstance(body, dict) else None
    policies = group.get("policies") if isinstance(group, dict) else None
    for policy in policies if isinstance(policies, list) else ():
        if policy in ("soft-affinity", "soft-anti-affinity"):
            raise Invalid(
                f"Invalid input for field/attribute 0. Value: {policy}. '{policy}' is not one of "
                "['anti-affinity', 'affinity']"
            )


CHANGE = VersionChange(
    at=(2, 15),
    summary="Policies of server groups may be `soft-affinity` and `soft-anti-affinity`.",
    loosens={"POST /os-server-groups": no_soft_policies},
)
